//! The Kubernetes objects that the scheduler reads, as one enum.
//!
//! Any served version of a built-in kind is read as the current one; the fields that the scheduler
//! reads are the same in all. Other kinds are distinguished from misspelt ones, and ignored.

use std::fmt;

use k8s_openapi::{
    api::{
        apps::v1::{Deployment, ReplicaSet, StatefulSet},
        batch::v1::Job,
        core::v1::{Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod},
        policy::v1::PodDisruptionBudget,
        resource::v1::{
            DeviceClass, DeviceTaintRule, ResourceClaim, ResourceClaimTemplate, ResourceSlice,
        },
        scheduling::{v1::PriorityClass, v1alpha3::CompositePodGroup},
        storage::v1::{CSIDriver, CSINode, StorageClass},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube_batch_api::{
    crd::v1alpha2,
    dialect::{self, RawObject},
};
use kube_batch_model::{api_version::ApiVersion, name::ObjectKey};
use kube_batch_yaml::{Located, Problem, Problems, suggest};
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::jobset::JobSet;

/// The API groups whose kinds this project defines.
const OWN_GROUPS: [&str; 2] = [ApiVersion::V1Alpha1.group(), ApiVersion::V1Alpha2.group()];

/// The weight of a queue that names none, as the CRDs set it.
// Parity: see docs/parity.md#d3.
const QUEUE_WEIGHT: i32 = 1;

/// An object of a kind that the scheduler reads.
#[derive(Clone, Debug, PartialEq)]
pub enum Object {
    /// A node.
    Node(Box<Node>),
    /// A pod.
    Pod(Box<Pod>),
    /// A namespace.
    Namespace(Box<Namespace>),
    /// A volume.
    PersistentVolume(Box<PersistentVolume>),
    /// A claim to a volume.
    PersistentVolumeClaim(Box<PersistentVolumeClaim>),
    /// A class of volumes.
    StorageClass(Box<StorageClass>),
    /// The volume limits of a node.
    CsiNode(Box<CSINode>),
    /// Whether a driver must be on the nodes of its pods.
    CsiDriver(Box<CSIDriver>),
    /// A claim for devices.
    ResourceClaim(Box<ResourceClaim>),
    /// A template of claims for devices.
    ResourceClaimTemplate(Box<ResourceClaimTemplate>),
    /// Devices of a driver.
    ResourceSlice(Box<ResourceSlice>),
    /// A class of devices.
    DeviceClass(Box<DeviceClass>),
    /// A taint of devices.
    DeviceTaintRule(Box<DeviceTaintRule>),
    /// A named priority.
    PriorityClass(Box<PriorityClass>),
    /// A disruption budget; a legacy gang.
    PodDisruptionBudget(Box<PodDisruptionBudget>),
    /// A job of `batch`.
    Job(Box<Job>),
    /// A replica set.
    ReplicaSet(Box<ReplicaSet>),
    /// A deployment.
    Deployment(Box<Deployment>),
    /// A stateful set.
    StatefulSet(Box<StatefulSet>),
    /// A set of jobs.
    JobSet(Box<JobSet>),
    /// A group of PodGroups.
    CompositePodGroup(Box<CompositePodGroup>),
    /// A gang, of any API.
    PodGroup(ApiVersion, Box<RawObject>),
    /// A queue, of any API.
    Queue(ApiVersion, Box<RawObject>),
}

/// The kind of an [`Object`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// `Node`.
    Node,
    /// `Pod`.
    Pod,
    /// `Namespace`.
    Namespace,
    /// `PersistentVolume`.
    PersistentVolume,
    /// `PersistentVolumeClaim`.
    PersistentVolumeClaim,
    /// `StorageClass`.
    StorageClass,
    /// `CSINode`.
    CsiNode,
    /// `CSIDriver`.
    CsiDriver,
    /// `ResourceClaim`.
    ResourceClaim,
    /// `ResourceClaimTemplate`.
    ResourceClaimTemplate,
    /// `ResourceSlice`.
    ResourceSlice,
    /// `DeviceClass`.
    DeviceClass,
    /// `DeviceTaintRule`.
    DeviceTaintRule,
    /// `PriorityClass`.
    PriorityClass,
    /// `PodDisruptionBudget`.
    PodDisruptionBudget,
    /// `Job`.
    Job,
    /// `ReplicaSet`.
    ReplicaSet,
    /// `Deployment`.
    Deployment,
    /// `StatefulSet`.
    StatefulSet,
    /// `JobSet`.
    JobSet,
    /// `CompositePodGroup`.
    CompositePodGroup,
    /// `PodGroup`.
    PodGroup,
    /// `Queue`.
    Queue,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 23] = [
        Self::Node,
        Self::Pod,
        Self::Namespace,
        Self::PersistentVolume,
        Self::PersistentVolumeClaim,
        Self::StorageClass,
        Self::CsiNode,
        Self::CsiDriver,
        Self::ResourceClaim,
        Self::ResourceClaimTemplate,
        Self::ResourceSlice,
        Self::DeviceClass,
        Self::DeviceTaintRule,
        Self::PriorityClass,
        Self::PodDisruptionBudget,
        Self::Job,
        Self::ReplicaSet,
        Self::Deployment,
        Self::StatefulSet,
        Self::JobSet,
        Self::CompositePodGroup,
        Self::PodGroup,
        Self::Queue,
    ];

    /// The name in manifests.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Node => "Node",
            Self::Pod => "Pod",
            Self::Namespace => "Namespace",
            Self::PersistentVolume => "PersistentVolume",
            Self::PersistentVolumeClaim => "PersistentVolumeClaim",
            Self::StorageClass => "StorageClass",
            Self::CsiNode => "CSINode",
            Self::CsiDriver => "CSIDriver",
            Self::ResourceClaim => "ResourceClaim",
            Self::ResourceClaimTemplate => "ResourceClaimTemplate",
            Self::ResourceSlice => "ResourceSlice",
            Self::DeviceClass => "DeviceClass",
            Self::DeviceTaintRule => "DeviceTaintRule",
            Self::PriorityClass => "PriorityClass",
            Self::PodDisruptionBudget => "PodDisruptionBudget",
            Self::Job => "Job",
            Self::ReplicaSet => "ReplicaSet",
            Self::Deployment => "Deployment",
            Self::StatefulSet => "StatefulSet",
            Self::JobSet => "JobSet",
            Self::CompositePodGroup => "CompositePodGroup",
            Self::PodGroup => "PodGroup",
            Self::Queue => "Queue",
        }
    }

    /// The kind with this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Whether its objects have a namespace.
    pub const fn is_namespaced(self) -> bool {
        match self {
            Self::Pod
            | Self::PersistentVolumeClaim
            | Self::PodDisruptionBudget
            | Self::Job
            | Self::ReplicaSet
            | Self::Deployment
            | Self::StatefulSet
            | Self::JobSet
            | Self::CompositePodGroup
            | Self::PodGroup
            | Self::ResourceClaim
            | Self::ResourceClaimTemplate => true,
            Self::Node
            | Self::Namespace
            | Self::PersistentVolume
            | Self::StorageClass
            | Self::CsiNode
            | Self::CsiDriver
            | Self::ResourceSlice
            | Self::DeviceClass
            | Self::DeviceTaintRule
            | Self::PriorityClass
            | Self::Queue => false,
        }
    }

    /// The plural in URLs.
    pub const fn plural(self) -> &'static str {
        match self {
            Self::Node => "nodes",
            Self::Pod => "pods",
            Self::Namespace => "namespaces",
            Self::PersistentVolume => "persistentvolumes",
            Self::PersistentVolumeClaim => "persistentvolumeclaims",
            Self::StorageClass => "storageclasses",
            Self::CsiNode => "csinodes",
            Self::CsiDriver => "csidrivers",
            Self::ResourceClaim => "resourceclaims",
            Self::ResourceClaimTemplate => "resourceclaimtemplates",
            Self::ResourceSlice => "resourceslices",
            Self::DeviceClass => "deviceclasses",
            Self::DeviceTaintRule => "devicetaintrules",
            Self::PriorityClass => "priorityclasses",
            Self::PodDisruptionBudget => "poddisruptionbudgets",
            Self::Job => "jobs",
            Self::ReplicaSet => "replicasets",
            Self::Deployment => "deployments",
            Self::StatefulSet => "statefulsets",
            Self::JobSet => "jobsets",
            Self::CompositePodGroup => "compositepodgroups",
            Self::PodGroup => "podgroups",
            Self::Queue => "queues",
        }
    }

    /// Its resources as RBAC and kubectl name them: plural and group. PodGroup and Queue have several.
    pub fn resources(self) -> Vec<String> {
        let name = |group: &str| match group {
            "" => self.plural().to_owned(),
            group => format!("{}.{group}", self.plural()),
        };
        match self {
            Self::PodGroup | Self::Queue => {
                self.versions().map(|version| name(version.group())).collect()
            }
            // Later groups are of the past.
            _ => vec![name(self.groups()[0])],
        }
    }

    /// The API of each of its [`resources`](Self::resources), as in URLs: `api/v1`,
    /// `apis/batch/v1`.
    pub fn apis(self) -> Vec<String> {
        match self {
            Self::PodGroup | Self::Queue => {
                self.versions().map(|version| format!("apis/{version}")).collect()
            }
            Self::JobSet => vec![format!("apis/{}/v1alpha2", self.groups()[0])],
            Self::CompositePodGroup => vec![format!("apis/{}/v1alpha3", self.groups()[0])],
            _ if self.groups()[0].is_empty() => vec!["api/v1".to_owned()],
            _ => vec![format!("apis/{}/v1", self.groups()[0])],
        }
    }

    /// The APIs of PodGroups, or those of queues.
    fn versions(self) -> impl Iterator<Item = ApiVersion> {
        let has_kind =
            move |v: &ApiVersion| self == Self::PodGroup || dialect::spec(*v).queues.is_some();
        ApiVersion::ALL.into_iter().filter(has_kind)
    }

    /// The kinds for `kubectl get` that print everything a simulation reads and any cluster serves.
    /// `kube-batch` is the category of PodGroups and Queues.
    pub fn kubectl_list() -> String {
        let served = |kind: &Self| {
            !matches!(
                kind,
                Self::CompositePodGroup
                    | Self::PodGroup
                    | Self::Queue
                    | Self::JobSet
                    | Self::DeviceTaintRule
            )
        };
        let kinds = Self::ALL.into_iter().filter(served).map(Self::plural);
        kinds.chain(["kube-batch"]).collect::<Vec<_>>().join(",")
    }

    /// The API groups it is served in, past and present; the core group is empty.
    const fn groups(self) -> &'static [&'static str] {
        match self {
            Self::Node
            | Self::Pod
            | Self::Namespace
            | Self::PersistentVolume
            | Self::PersistentVolumeClaim => &[""],
            Self::StorageClass | Self::CsiNode | Self::CsiDriver => &["storage.k8s.io"],
            Self::ResourceClaim
            | Self::ResourceClaimTemplate
            | Self::ResourceSlice
            | Self::DeviceClass
            | Self::DeviceTaintRule => &["resource.k8s.io"],
            Self::PriorityClass | Self::CompositePodGroup => &["scheduling.k8s.io"],
            Self::PodDisruptionBudget => &["policy"],
            Self::Job => &["batch"],
            Self::ReplicaSet | Self::Deployment => &["apps", "extensions"],
            Self::StatefulSet => &["apps"],
            Self::JobSet => &["jobset.x-k8s.io"],
            Self::PodGroup | Self::Queue => &OWN_GROUPS,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// `apiVersion` and `kind` as they are written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TypeMeta {
    /// `v1`, `apps/v1`.
    pub api_version: String,
    /// `Pod`, `PodList`.
    pub kind: String,
}

impl fmt::Display for TypeMeta {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.api_version, self.kind)
    }
}

/// The meaning of a [`TypeMeta`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recognised {
    /// A kind that the scheduler reads.
    Kind(Kind, Served),
    /// A list of objects.
    List,
    /// Probably a typo; the message suggests a correction.
    Misspelt(String),
    /// Something else.
    Other,
}

/// The API in which a kind is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Served {
    /// In a group of Kubernetes.
    BuiltIn,
    /// In one of the groups of PodGroup and Queue.
    Custom(ApiVersion),
}

impl TypeMeta {
    /// The meaning of this type.
    pub fn recognise(&self) -> Recognised {
        if self.kind.ends_with("List") {
            return Recognised::List;
        }
        let (group, version) = self.api_version.rsplit_once('/').unwrap_or(("", &self.api_version));
        let is_ours = |kind: &Kind| kind.groups().contains(&group);
        let kind = Kind::parse(&self.kind);
        if let (Some(kind @ (Kind::PodGroup | Kind::Queue)), Some(version)) =
            (kind, ApiVersion::parse(&self.api_version))
            && kind.versions().any(|own| own == version)
        {
            return Recognised::Kind(kind, Served::Custom(version));
        }
        match kind {
            Some(kind) if is_ours(&kind) => match kind {
                Kind::PodGroup | Kind::Queue => self.unserved(kind),
                _ if is_version(version) => Recognised::Kind(kind, Served::BuiltIn),
                _ => self.unserved(kind),
            },
            // Other groups have kinds with these names; the core group does not.
            Some(kind) if group.is_empty() => self.unserved(kind),
            Some(_) => Recognised::Other,
            None => {
                let known = Kind::ALL.iter().filter(|kind| is_ours(kind)).map(|kind| kind.name());
                suggest(&self.kind, known).map_or(Recognised::Other, |meant| {
                    Recognised::Misspelt(format!(
                        "unknown kind {:?} of {}, did you mean {meant}",
                        self.kind, self.api_version
                    ))
                })
            }
        }
    }

    /// Whether it is of a known kind whose controller creates pods, which the simulator does not
    /// imitate.
    pub fn creates_pods(&self) -> bool {
        let (group, _) = self.api_version.rsplit_once('/').unwrap_or(("", &self.api_version));
        CREATE_PODS.iter().any(|(known, kinds)| *known == group && kinds.contains(&&*self.kind))
    }

    fn unserved(&self, kind: Kind) -> Recognised {
        let served = match kind {
            Kind::PodGroup | Kind::Queue => ApiVersion::OWN.map(|v| v.to_string()).join(" and "),
            Kind::Node
            | Kind::Pod
            | Kind::Namespace
            | Kind::PersistentVolume
            | Kind::PersistentVolumeClaim => "v1".to_owned(),
            Kind::StorageClass
            | Kind::CsiNode
            | Kind::CsiDriver
            | Kind::ResourceClaim
            | Kind::ResourceClaimTemplate
            | Kind::ResourceSlice
            | Kind::DeviceClass
            | Kind::DeviceTaintRule
            | Kind::PriorityClass
            | Kind::PodDisruptionBudget
            | Kind::Job
            | Kind::ReplicaSet
            | Kind::Deployment
            | Kind::StatefulSet => format!("{}/v1", kind.groups()[0]),
            Kind::JobSet => format!("{}/v1alpha2", kind.groups()[0]),
            Kind::CompositePodGroup => format!("{}/v1alpha3", kind.groups()[0]),
        };
        Recognised::Misspelt(format!("{kind} is in {served}, not in {:?}", self.api_version))
    }
}

/// Kinds by API group whose controllers create pods, and that are not among [`Kind`].
const CREATE_PODS: [(&str, &[&str]); 16] = [
    ("", &["ReplicationController"]),
    ("apps", &["DaemonSet"]),
    ("batch", &["CronJob"]),
    (
        "kubeflow.org",
        &[
            "JAXJob",
            "MPIJob",
            "MXJob",
            "Notebook",
            "PaddleJob",
            "PyTorchJob",
            "TFJob",
            "XGBoostJob",
        ],
    ),
    ("trainer.kubeflow.org", &["TrainJob"]),
    ("ray.io", &["RayCluster", "RayJob", "RayService"]),
    ("batch.volcano.sh", &["Job"]),
    ("flow.volcano.sh", &["JobFlow"]),
    ("sparkoperator.k8s.io", &["ScheduledSparkApplication", "SparkApplication"]),
    ("flink.apache.org", &["FlinkDeployment", "FlinkSessionJob"]),
    ("leaderworkerset.x-k8s.io", &["LeaderWorkerSet"]),
    ("workload.codeflare.dev", &["AppWrapper"]),
    ("argoproj.io", &["CronWorkflow", "Rollout", "Workflow"]),
    ("serving.kserve.io", &["InferenceService", "LLMInferenceService"]),
    ("serving.knative.dev", &["Service"]),
    ("tekton.dev", &["PipelineRun", "TaskRun"]),
];

/// `v1`, `v1beta1`, `v2alpha3`.
fn is_version(text: &str) -> bool {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let Some(version) = text.strip_prefix('v') else { return false };
    let stages = version.split_once("alpha").or_else(|| version.split_once("beta"));
    match stages {
        Some((major, minor)) => number(major) && number(minor),
        None => number(version),
    }
}

/// Evaluates the body with the boxed object of any variant.
macro_rules! with_each {
    ($object:expr, $inner:ident => $body:expr) => {
        match $object {
            Object::Node($inner) => $body,
            Object::Pod($inner) => $body,
            Object::Namespace($inner) => $body,
            Object::PersistentVolume($inner) => $body,
            Object::PersistentVolumeClaim($inner) => $body,
            Object::StorageClass($inner) => $body,
            Object::CsiNode($inner) => $body,
            Object::CsiDriver($inner) => $body,
            Object::ResourceClaim($inner) => $body,
            Object::ResourceClaimTemplate($inner) => $body,
            Object::ResourceSlice($inner) => $body,
            Object::DeviceClass($inner) => $body,
            Object::DeviceTaintRule($inner) => $body,
            Object::PriorityClass($inner) => $body,
            Object::PodDisruptionBudget($inner) => $body,
            Object::Job($inner) => $body,
            Object::ReplicaSet($inner) => $body,
            Object::Deployment($inner) => $body,
            Object::StatefulSet($inner) => $body,
            Object::JobSet($inner) => $body,
            Object::CompositePodGroup($inner) => $body,
            Object::PodGroup(_, $inner) => $body,
            Object::Queue(_, $inner) => $body,
        }
    };
}

impl Object {
    /// Reads an object whose kind is known; unknown fields are recorded in `unknown`.
    ///
    /// A queue without a weight gets that of the CRD.
    ///
    /// # Errors
    ///
    /// [`Problem`] at the first field of the wrong type, or if it has no name: skip the object.
    pub fn read(
        kind: Kind,
        served: Served,
        node: &Located<'_>,
        unknown: &Problems,
    ) -> Result<Self, Problem> {
        let version = match served {
            Served::BuiltIn => ApiVersion::V1Alpha2,
            Served::Custom(version) => version,
        };
        let object = match kind {
            Kind::Node => Self::Node(typed(node, unknown)?),
            Kind::Pod => Self::Pod(typed(node, unknown)?),
            Kind::Namespace => Self::Namespace(typed(node, unknown)?),
            Kind::PersistentVolume => Self::PersistentVolume(typed(node, unknown)?),
            Kind::PersistentVolumeClaim => Self::PersistentVolumeClaim(typed(node, unknown)?),
            Kind::StorageClass => Self::StorageClass(typed(node, unknown)?),
            Kind::CsiNode => Self::CsiNode(typed(node, unknown)?),
            Kind::CsiDriver => Self::CsiDriver(typed(node, unknown)?),
            Kind::ResourceClaim => Self::ResourceClaim(typed(node, unknown)?),
            Kind::ResourceClaimTemplate => Self::ResourceClaimTemplate(typed(node, unknown)?),
            Kind::ResourceSlice => Self::ResourceSlice(typed(node, unknown)?),
            Kind::DeviceClass => Self::DeviceClass(typed(node, unknown)?),
            Kind::DeviceTaintRule => Self::DeviceTaintRule(typed(node, unknown)?),
            Kind::PriorityClass => Self::PriorityClass(typed(node, unknown)?),
            Kind::PodDisruptionBudget => Self::PodDisruptionBudget(typed(node, unknown)?),
            Kind::Job => Self::Job(typed(node, unknown)?),
            Kind::ReplicaSet => Self::ReplicaSet(typed(node, unknown)?),
            Kind::Deployment => Self::Deployment(typed(node, unknown)?),
            Kind::StatefulSet => Self::StatefulSet(typed(node, unknown)?),
            Kind::JobSet => Self::JobSet(typed(node, unknown)?),
            Kind::CompositePodGroup => Self::CompositePodGroup(typed(node, unknown)?),
            Kind::PodGroup => {
                if version.is_own() {
                    typed::<v1alpha2::PodGroup>(node, unknown)?;
                }
                Self::PodGroup(version, raw(node)?)
            }
            Kind::Queue => {
                if version.is_own() {
                    typed::<v1alpha2::Queue>(node, unknown)?;
                }
                let mut queue = raw(node)?;
                set_default_weight(version, &mut queue);
                Self::Queue(version, queue)
            }
        };
        if object.meta().name.as_deref().unwrap_or_default().is_empty() {
            return Err(node.nearest("metadata").problem("metadata.name", "is missing"));
        }
        Ok(object)
    }

    /// Its kind.
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Node(_) => Kind::Node,
            Self::Pod(_) => Kind::Pod,
            Self::Namespace(_) => Kind::Namespace,
            Self::PersistentVolume(_) => Kind::PersistentVolume,
            Self::PersistentVolumeClaim(_) => Kind::PersistentVolumeClaim,
            Self::StorageClass(_) => Kind::StorageClass,
            Self::CsiNode(_) => Kind::CsiNode,
            Self::CsiDriver(_) => Kind::CsiDriver,
            Self::ResourceClaim(_) => Kind::ResourceClaim,
            Self::ResourceClaimTemplate(_) => Kind::ResourceClaimTemplate,
            Self::ResourceSlice(_) => Kind::ResourceSlice,
            Self::DeviceClass(_) => Kind::DeviceClass,
            Self::DeviceTaintRule(_) => Kind::DeviceTaintRule,
            Self::PriorityClass(_) => Kind::PriorityClass,
            Self::PodDisruptionBudget(_) => Kind::PodDisruptionBudget,
            Self::Job(_) => Kind::Job,
            Self::ReplicaSet(_) => Kind::ReplicaSet,
            Self::Deployment(_) => Kind::Deployment,
            Self::StatefulSet(_) => Kind::StatefulSet,
            Self::JobSet(_) => Kind::JobSet,
            Self::CompositePodGroup(_) => Kind::CompositePodGroup,
            Self::PodGroup(..) => Kind::PodGroup,
            Self::Queue(..) => Kind::Queue,
        }
    }

    /// Where it is served.
    pub const fn served(&self) -> Served {
        match self {
            Self::PodGroup(version, _) | Self::Queue(version, _) => Served::Custom(*version),
            Self::Node(_)
            | Self::Pod(_)
            | Self::Namespace(_)
            | Self::PersistentVolume(_)
            | Self::PersistentVolumeClaim(_)
            | Self::StorageClass(_)
            | Self::CsiNode(_)
            | Self::CsiDriver(_)
            | Self::ResourceClaim(_)
            | Self::ResourceClaimTemplate(_)
            | Self::ResourceSlice(_)
            | Self::DeviceClass(_)
            | Self::DeviceTaintRule(_)
            | Self::PriorityClass(_)
            | Self::PodDisruptionBudget(_)
            | Self::Job(_)
            | Self::ReplicaSet(_)
            | Self::Deployment(_)
            | Self::StatefulSet(_)
            | Self::JobSet(_)
            | Self::CompositePodGroup(_) => Served::BuiltIn,
        }
    }

    /// Name, namespace, labels and the like.
    pub fn meta(&self) -> &ObjectMeta {
        with_each!(self, inner => &inner.metadata)
    }

    /// Name, namespace, labels and the like, to be changed.
    pub fn meta_mut(&mut self) -> &mut ObjectMeta {
        with_each!(self, inner => &mut inner.metadata)
    }

    /// Namespace and name. A namespace in the manifest of a kind that has none is ignored.
    pub fn key(&self) -> ObjectKey {
        let meta = self.meta();
        let namespace = meta.namespace.as_deref().filter(|_| self.kind().is_namespaced());
        ObjectKey::new(namespace.unwrap_or_default(), meta.name.as_deref().unwrap_or_default())
    }
}

impl fmt::Display for Object {
    /// Kind, namespace and name: `Pod ns/a`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind(), self.key())
    }
}

/// A PodGroup or queue of any API. Fields that nothing here reads are not checked.
fn raw(node: &Located<'_>) -> Result<Box<RawObject>, Problem> {
    typed(node, &Problems::default())
}

/// Sets the default of the CRDs, as an absent weight is read as 0, which is a weight too. Not if the queue
/// has a uid: an API server stored it, and has set its own defaults.
fn set_default_weight(version: ApiVersion, queue: &mut RawObject) {
    if version.is_own() && queue.metadata.uid.is_none() && queue.spec["weight"].is_null() {
        if queue.spec.is_null() {
            queue.spec = json!({});
        }
        queue.spec["weight"] = json!(QUEUE_WEIGHT);
    }
}

fn typed<T: DeserializeOwned>(node: &Located<'_>, unknown: &Problems) -> Result<Box<T>, Problem> {
    // The types require the current version, which the object may not have.
    node.typed_except(&["apiVersion", "kind"], unknown).map(Box::new)
}

#[cfg(test)]
mod tests {
    use kube_batch_yaml::{Limits, parse};

    use super::*;

    fn recognise(api_version: &str, kind: &str) -> Recognised {
        TypeMeta { api_version: api_version.into(), kind: kind.into() }.recognise()
    }

    #[test]
    fn any_served_version_is_recognised() {
        for (api_version, kind) in [
            ("v1", Kind::Pod),
            ("v1", Kind::PersistentVolumeClaim),
            ("policy/v1", Kind::PodDisruptionBudget),
            ("policy/v1beta1", Kind::PodDisruptionBudget),
            ("scheduling.k8s.io/v1beta1", Kind::PriorityClass),
            ("scheduling.k8s.io/v1alpha1", Kind::PriorityClass),
            ("storage.k8s.io/v1beta1", Kind::CsiNode),
            ("storage.k8s.io/v1", Kind::StorageClass),
            ("batch/v1", Kind::Job),
            ("apps/v1beta2", Kind::ReplicaSet),
            ("extensions/v1beta1", Kind::ReplicaSet),
            ("apps/v1", Kind::Deployment),
            ("apps/v1", Kind::StatefulSet),
            ("jobset.x-k8s.io/v1alpha2", Kind::JobSet),
        ] {
            assert_eq!(
                recognise(api_version, kind.name()),
                Recognised::Kind(kind, Served::BuiltIn),
                "{api_version}"
            );
        }
        for kind in [Kind::PodGroup, Kind::Queue] {
            for version in kind.versions() {
                let expected = Recognised::Kind(kind, Served::Custom(version));
                assert_eq!(recognise(&version.to_string(), kind.name()), expected);
            }
        }
    }

    #[test]
    fn other_kinds_are_ignored_and_typos_are_reported() {
        for (api_version, kind) in [
            ("v1", "ConfigMap"),
            ("v1", "Service"),
            ("v1", "PodTemplate"),
            ("apps/v1", "DaemonSet"),
            ("apps/v1", "ControllerRevision"),
            ("batch/v1", "CronJob"),
            ("storage.k8s.io/v1", "VolumeAttachment"),
            ("scheduling.k8s.io/v1alpha2", "PodGroup"),
            ("batch.volcano.sh/v1alpha1", "Job"),
            ("longhorn.io/v1beta2", "Node"),
            ("example.com/v1", "Podd"),
        ] {
            assert_eq!(recognise(api_version, kind), Recognised::Other, "{api_version} {kind}");
        }
        for (api_version, kind, expected) in [
            ("v1", "Podd", "unknown kind \"Podd\" of v1, did you mean Pod"),
            ("v1", "node", "unknown kind \"node\" of v1, did you mean Node"),
            (
                "v1",
                "Queue",
                "Queue is in scheduling.incubator.k8s.io/v1alpha1 and \
                             scheduling.sigs.dev/v1alpha2, not in \"v1\"",
            ),
            ("v1", "Job", "Job is in batch/v1, not in \"v1\""),
            ("one", "Pod", "Pod is in v1, not in \"one\""),
            (
                "policy/v",
                "PodDisruptionBudget",
                "PodDisruptionBudget is in policy/v1, not in \"policy/v\"",
            ),
            (
                "scheduling.sigs.dev/v1alpha1",
                "PodGroup",
                "PodGroup is in scheduling.incubator.k8s.io/v1alpha1 and scheduling.sigs.dev/v1alpha2, \
              not in \"scheduling.sigs.dev/v1alpha1\"",
            ),
            (
                "scheduling.sigs.dev/v1alpha2",
                "Podgroup",
                "unknown kind \"Podgroup\" of scheduling.sigs.dev/v1alpha2, did you mean PodGroup",
            ),
        ] {
            assert_eq!(
                recognise(api_version, kind),
                Recognised::Misspelt(expected.into()),
                "{kind}"
            );
        }
        assert_eq!(recognise("v1", "PodList"), Recognised::List);
        assert_eq!(recognise("v1", "List"), Recognised::List);
    }

    #[test]
    fn every_kind_is_read_under_its_name() {
        for kind in Kind::ALL {
            let text = "metadata: {name: a, namespace: ns}";
            let node = parse(text, &Limits::default()).expect("YAML");
            let served = Served::Custom(ApiVersion::V1Alpha1);
            let read = Object::read(kind, served, &node, &Problems::default());
            let mut object = read.expect("an object");
            assert_eq!(object.kind(), kind);
            let key = if kind.is_namespaced() { "ns/a" } else { "a" };
            assert_eq!(object.to_string(), format!("{kind} {key}"));
            object.meta_mut().name = Some("b".into());
            assert_eq!(object.meta().name.as_deref(), Some("b"));
            assert_eq!(Kind::parse(kind.name()), Some(kind));
        }
    }

    #[test]
    fn an_object_needs_a_name() {
        for (text, line) in [("metadata: {generateName: a-}", 1), ("\nspec: {}", 2)] {
            let node = parse(text, &Limits::default()).expect("YAML");
            let read = Object::read(Kind::Pod, Served::BuiltIn, &node, &Problems::default());
            let problem = read.expect_err("no name");
            assert_eq!(
                (problem.line, &*problem.path, &*problem.message),
                (line, "metadata.name", "is missing")
            );
        }
    }
}
