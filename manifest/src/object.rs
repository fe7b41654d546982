//! The Kubernetes objects that the scheduler reads, as one enum.
//!
//! Any served version of a built-in kind is read as the current one; the fields that the scheduler
//! reads are the same in all. Other kinds are distinguished from misspelt ones, and ignored.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
pub use kube_batch_api::kind::Kind;
use kube_batch_api::{crd::v1alpha2, dialect::RawObject, each_kind, kind::ApplyObject as _};
use kube_batch_cache::store::{Change, Store};
use kube_batch_model::{facts::FactError, group_version::GroupVersion, name::ObjectKey};
use kube_batch_yaml::{Located, Problem, Problems, suggest};
use serde::de::DeserializeOwned;
use serde_json::json;

/// The weight of a queue that names none, as the CRDs set it.
// Parity: see docs/parity.md#d3.
const QUEUE_WEIGHT: i32 = 1;

/// How an object may be stored.
macro_rules! apply {
    ($store:expr, $object:expr,) => {
        None
    };
    ($store:expr, $object:expr, $facts:ty) => {
        Some($store.apply(&**$object))
    };
}

macro_rules! declare_objects {
    ($(
        $(#[$doc:meta])* $variant:ident: $type:ty,
        $name:literal, $resource:literal, $version:literal, $scope:ident, $availability:ident, $if_missing:literal
        $(, watched($need:ident, $facts:ty = $read:path))?;
    )*) => {
        /// An object of a kind that the scheduler or the simulator reads.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Object {
            $( $(#[$doc])* $variant(Box<$type>), )*
            /// A gang, of any API.
            PodGroup(GroupVersion, Box<RawObject>),
            /// A queue, of any API.
            Queue(GroupVersion, Box<RawObject>),
        }

        impl Object {
            fn typed(kind: Kind, version: GroupVersion, node: &Located<'_>, unknown: &Problems) -> Result<Self, Problem> {
                match kind {
                    $( Kind::$variant => typed(node, unknown).map(Self::$variant), )*
                    Kind::PodGroup => group(version, node, unknown),
                    Kind::Queue => queue(version, node, unknown),
                }
            }

            /// Its kind.
            pub const fn kind(&self) -> Kind {
                match self {
                    $( Self::$variant(_) => Kind::$variant, )*
                    Self::PodGroup(..) => Kind::PodGroup,
                    Self::Queue(..) => Kind::Queue,
                }
            }

            /// Where it is served.
            pub const fn served(&self) -> Served {
                match self {
                    $( Self::$variant(_) )|* => Served::BuiltIn,
                    Self::PodGroup(version, _) | Self::Queue(version, _) => Served::Custom(*version),
                }
            }

            /// Name, namespace, labels and the like.
            pub fn meta(&self) -> &ObjectMeta {
                match self {
                    $( Self::$variant(object) => &object.metadata, )*
                    Self::PodGroup(_, object) | Self::Queue(_, object) => &object.metadata,
                }
            }

            /// Name, namespace, labels and the like, to be changed.
            pub fn meta_mut(&mut self) -> &mut ObjectMeta {
                match self {
                    $( Self::$variant(object) => &mut object.metadata, )*
                    Self::PodGroup(_, object) | Self::Queue(_, object) => &mut object.metadata,
                }
            }

            /// Stores the facts of the object. `None` if the scheduler keeps none of its kind: only a controller reads
            /// it.
            ///
            /// # Errors
            ///
            /// [`FactError`] if the object is invalid: it is not stored, and other objects are not affected.
            pub fn apply(&self, store: &mut Store) -> Option<Result<Change, FactError>> {
                match self {
                    $( Self::$variant(_object) => apply!(store, _object, $($facts)?), )*
                    Self::PodGroup(version, group) => {
                        store.set_served(*version, true);
                        Some(store.apply_group(*version, group))
                    }
                    Self::Queue(version, queue) => {
                        store.set_served(*version, true);
                        Some(store.apply_queue(*version, queue))
                    }
                }
            }
        }
    };
}

each_kind!(declare_objects);

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
    Custom(GroupVersion),
}

impl TypeMeta {
    /// The meaning of this type.
    pub fn recognise(&self) -> Recognised {
        if self.kind.ends_with("List") {
            return Recognised::List;
        }
        let (group, version) = self.api_version.rsplit_once('/').unwrap_or(("", &self.api_version));
        let is_ours = |kind: &Kind| kind.is_in(group);
        let kind = Kind::parse(&self.kind);
        if let (Some(kind @ (Kind::PodGroup | Kind::Queue)), Some(version)) =
            (kind, GroupVersion::parse(&self.api_version))
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
            Kind::PodGroup | Kind::Queue => GroupVersion::OWN.map(|v| v.to_string()).to_vec(),
            _ => kind.api_versions(),
        };
        let served = served.join(" and ");
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
            Served::BuiltIn => GroupVersion::V1Alpha2,
            Served::Custom(version) => version,
        };
        let object = Self::typed(kind, version, node, unknown)?;
        if object.meta().name.as_deref().unwrap_or_default().is_empty() {
            return Err(node.nearest("metadata").problem("metadata.name", "is missing"));
        }
        Ok(object)
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

fn group(version: GroupVersion, node: &Located<'_>, unknown: &Problems) -> Result<Object, Problem> {
    if version.is_own() {
        typed::<v1alpha2::PodGroup>(node, unknown)?;
    }
    Ok(Object::PodGroup(version, raw(node)?))
}

fn queue(version: GroupVersion, node: &Located<'_>, unknown: &Problems) -> Result<Object, Problem> {
    if version.is_own() {
        typed::<v1alpha2::Queue>(node, unknown)?;
    }
    let mut queue = raw(node)?;
    set_default_weight(version, &mut queue);
    Ok(Object::Queue(version, queue))
}

/// A PodGroup or queue of any API. Fields that nothing here reads are not checked.
fn raw(node: &Located<'_>) -> Result<Box<RawObject>, Problem> {
    typed(node, &Problems::default())
}

/// Sets the default of the CRDs, as an absent weight is read as 0, which is a weight too. Not if the queue
/// has a uid: an API server stored it, and has set its own defaults.
fn set_default_weight(version: GroupVersion, queue: &mut RawObject) {
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
        for kind in Kind::ALL.iter().copied() {
            let text = "metadata: {name: a, namespace: ns}";
            let node = parse(text, &Limits::default()).expect("YAML");
            let served = Served::Custom(GroupVersion::V1Alpha1);
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
