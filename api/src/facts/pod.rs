//! Pods: what a task is.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Container, ContainerStatus, Pod, PodSpec, ResourceRequirements},
    apimachinery::pkg::api::resource::Quantity as ApiQuantity,
};
use serde::{Deserialize, Serialize};

use super::{
    Controller, FactError,
    class::{PodTemplate, ScoringAmounts, is_sidecar},
    created,
    metadata::MetadataPrefixes,
    object_key,
};
use crate::{
    intern::{InternTable, Interned},
    name::{Name, Names, ObjectKey},
    resource::{CPU, MEMORY, PODS, ResourceList},
    selector::Labels,
    status::TaskStatus,
};

/// Annotation that joins a pod to the PodGroup of that name in its namespace, in either API group.
pub const GROUP_ANNOTATION: &str = "scheduling.k8s.io/group-name";

/// CPU that scores count for a container that names none, in milli-cores. Kubernetes' own default.
const SCORING_CPU_MILLI: i64 = 100;
/// Memory that scores count for a container that names none, in bytes. Kubernetes' own default.
const SCORING_MEMORY_BYTES: i64 = 200 << 20;

/// The fields of a pod that the scheduler uses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskFacts {
    /// The pod's uid.
    pub uid: Name,
    /// Namespace and name.
    pub key: ObjectKey,
    /// Creation time.
    pub created: Timestamp,
    /// `spec.schedulerName`.
    pub scheduler: Name,
    /// The PodGroup named by the annotation, if any.
    pub group: Option<Name>,
    /// The controlling owner.
    pub controller: Option<Controller>,
    /// `spec.priority`, 0 if absent.
    // Parity: differs, see docs/parity.md#r6.
    pub priority: i32,
    /// `spec.priorityClassName`.
    pub priority_class: Option<Name>,
    /// Whether `spec.preemptionPolicy` is `Never`.
    pub never_preempts: bool,
    /// Whether the pod has scheduling gates.
    pub gated: bool,
    /// The status of the pod according to the API server.
    pub status: TaskStatus,
    /// `spec.nodeName`.
    pub node: Option<Name>,
    /// `status.nominatedNodeName`.
    pub nominated_node: Option<Name>,
    /// The PodScheduled condition, if it is False: reason and message.
    pub unscheduled: Option<(Name, Name)>,
    /// Labels. Not serialized: a dump writes them once for all pods that share them.
    #[serde(skip)]
    pub labels: Interned<Labels>,
    /// What placement rules can see of the pod. Not serialized, as the labels.
    #[serde(skip)]
    pub template: Interned<PodTemplate>,
}

/// Gives equal names, labels and templates one allocation each, and knows which labels and
/// annotations are kept.
#[derive(Debug, Default)]
pub struct Interner {
    names: Names,
    labels: InternTable<Labels>,
    templates: InternTable<PodTemplate>,
    prefixes: MetadataPrefixes,
}

impl Interner {
    /// An interner that keeps these labels and annotations.
    pub fn new(prefixes: MetadataPrefixes) -> Self {
        Self { prefixes, ..Self::default() }
    }

    /// The labels and annotations that are kept.
    pub const fn prefixes(&self) -> &MetadataPrefixes {
        &self.prefixes
    }

    /// Labels as this interner shares them.
    pub fn labels(&mut self, labels: Arc<Labels>) -> Interned<Labels> {
        self.labels.intern_shared(labels)
    }

    /// A template as this interner shares it.
    pub fn template(&mut self, template: Arc<PodTemplate>) -> Interned<PodTemplate> {
        self.templates.intern_shared(template)
    }

    /// Removes labels and templates that no pod has any more.
    pub fn sweep(&mut self) {
        self.labels.sweep();
        self.templates.sweep();
    }
}

impl TaskFacts {
    /// Reads a pod.
    ///
    /// # Errors
    ///
    /// [`FactError`] if it has no name, no uid, no spec, or an amount that cannot be read: skip it.
    pub fn from_pod(pod: &Pod, interner: &mut Interner) -> Result<Self, FactError> {
        let key = object_key("Pod", &pod.metadata)?;
        let key = ObjectKey { namespace: interner.names.intern(&key.namespace), ..key };
        let uid = match pod.metadata.uid.as_deref() {
            Some(uid) if !uid.is_empty() => Name::from(uid),
            _ => return Err(FactError::new(format!("Pod {key}"), "metadata.uid", "is missing")),
        };
        let labels = Labels::from_map(pod.metadata.labels.as_ref());
        let template = PodTemplate::from_pod(pod, &key, &labels, &interner.prefixes)?;
        let spec = pod
            .spec
            .as_ref()
            .ok_or_else(|| FactError::new(format!("Pod {key}"), "spec", "is missing"))?;
        let status = pod.status.as_ref();
        let annotations = pod.metadata.annotations.as_ref();
        let mut non_empty = |text: Option<&String>| {
            text.filter(|text| !text.is_empty()).map(|text| interner.names.intern(text))
        };
        Ok(Self {
            created: created(&pod.metadata),
            scheduler: non_empty(spec.scheduler_name.as_ref())
                .unwrap_or_else(|| Name::from("default-scheduler")),
            group: non_empty(annotations.and_then(|a| a.get(GROUP_ANNOTATION))),
            controller: Controller::of(&pod.metadata),
            priority: spec.priority.unwrap_or(0),
            priority_class: non_empty(spec.priority_class_name.as_ref()),
            never_preempts: spec.preemption_policy.as_deref() == Some("Never"),
            gated: spec.scheduling_gates.as_ref().is_some_and(|gates| !gates.is_empty()),
            status: observed_status(pod),
            node: non_empty(spec.node_name.as_ref()),
            nominated_node: non_empty(status.and_then(|s| s.nominated_node_name.as_ref())),
            unscheduled: status
                .and_then(|s| s.conditions.as_ref())
                .into_iter()
                .flatten()
                .find(|c| c.type_ == "PodScheduled" && c.status == "False")
                .map(|c| {
                    let text = |t: &Option<String>| Name::from(t.as_deref().unwrap_or_default());
                    (text(&c.reason), text(&c.message))
                }),
            labels: interner.labels.intern(labels),
            template: interner.templates.intern(template),
            uid,
            key,
        })
    }
}

/// The status of a pod according to the API server.
// Parity: a terminating pod is Releasing whatever its phase, see docs/parity.md#s2.
fn observed_status(pod: &Pod) -> TaskStatus {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let bound = pod
        .spec
        .as_ref()
        .is_some_and(|spec| spec.node_name.as_ref().is_some_and(|node| !node.is_empty()));
    match phase {
        Some("Succeeded") => TaskStatus::Succeeded,
        Some("Failed") => TaskStatus::Failed,
        _ if pod.metadata.deletion_timestamp.is_some() => TaskStatus::Releasing,
        Some("Running") => TaskStatus::Running,
        None | Some("" | "Pending") if bound => TaskStatus::Bound,
        None | Some("" | "Pending") => TaskStatus::Pending,
        Some(_) => TaskStatus::Unknown,
    }
}

/// A pod's effective request, and what scores see of it.
pub(super) struct EffectiveRequest {
    pub(super) request: ResourceList,
    pub(super) scoring: ScoringAmounts,
    pub(super) arriving: ScoringAmounts,
}

/// Kubernetes' effective request: the larger of what containers and sidecars need together and what
/// each init container needs beside the sidecars started before it; pod-level amounts instead where
/// they are named; plus overhead; plus one pod slot.
// Parity: one number for fit and accounting, see docs/parity.md#r3.
pub(super) fn effective_request(
    pod: &Pod,
    spec: &PodSpec,
    key: &ObjectKey,
) -> Result<EffectiveRequest, FactError> {
    let reader = RequestReader { pod, key, defaults: Defaults::None };
    let mut request = reader.sum(spec)?;
    reader.pod_level(spec, &mut request)?;
    reader.overhead(spec, &mut request)?;
    let scoring = RequestReader { defaults: Defaults::for_scoring(spec), ..reader };
    let mut scored = scoring.sum(spec)?;
    scoring.pod_level(spec, &mut scored)?;
    scoring.overhead(spec, &mut scored)?;
    let arriving = RequestReader { defaults: Defaults::EVERY, ..reader };
    let mut arrives = arriving.sum(spec)?;
    arriving.overhead(spec, &mut arrives)?;
    request.set(PODS, 1);
    let amounts = |list: &ResourceList| ScoringAmounts {
        cpu_milli: list.get(CPU),
        memory_bytes: list.get(MEMORY),
    };
    Ok(EffectiveRequest { request, scoring: amounts(&scored), arriving: amounts(&arrives) })
}

/// What a container that names no request counts.
#[derive(Clone, Copy)]
enum Defaults {
    None,
    Scoring { cpu: bool, memory: bool },
}

impl Defaults {
    const EVERY: Self = Self::Scoring { cpu: true, memory: true };

    /// With pod-level requests, a resource that is named anywhere in the pod gets no defaults.
    fn for_scoring(spec: &PodSpec) -> Self {
        let Some(pod_level) = spec.resources.as_ref().and_then(|r| r.requests.as_ref()) else {
            return Self::EVERY;
        };
        let all = spec.init_containers.iter().flatten().chain(&spec.containers);
        let mut lists: Vec<_> =
            all.filter_map(|c| c.resources.as_ref()?.requests.as_ref()).collect();
        lists.push(pod_level);
        let unnamed = |name: &str| lists.iter().all(|list| !list.contains_key(name));
        Self::Scoring { cpu: unnamed(CPU), memory: unnamed(MEMORY) }
    }

    fn apply(self, list: &mut ResourceList) {
        let Self::Scoring { cpu, memory } = self else { return };
        if cpu && !list.names(CPU) {
            list.set(CPU, SCORING_CPU_MILLI);
        }
        if memory && !list.names(MEMORY) {
            list.set(MEMORY, SCORING_MEMORY_BYTES);
        }
    }
}

struct RequestReader<'a> {
    pod: &'a Pod,
    key: &'a ObjectKey,
    defaults: Defaults,
}

impl RequestReader<'_> {
    fn sum(&self, spec: &PodSpec) -> Result<ResourceList, FactError> {
        let mut together = ResourceList::default();
        let mut sidecars = ResourceList::default();
        let mut peak = ResourceList::default();
        let init = spec.init_containers.as_deref().unwrap_or_default();
        for (at, container) in init.iter().enumerate() {
            let mut request = self.container(container, &format!("spec.initContainers[{at}]"))?;
            if is_sidecar(container) {
                together.add(&request);
                sidecars.add(&request);
                peak.max(&sidecars);
            } else {
                request.add(&sidecars);
                peak.max(&request);
            }
        }
        for (at, container) in spec.containers.iter().enumerate() {
            together.add(&self.container(container, &format!("spec.containers[{at}]"))?);
        }
        together.max(&peak);
        Ok(together)
    }

    /// The request of one container. While it is resized in place, the largest of what is desired,
    /// allocated and actual.
    fn container(&self, container: &Container, path: &str) -> Result<ResourceList, FactError> {
        let desired = self.list(
            container.resources.as_ref().and_then(|r| r.requests.as_ref()),
            &format!("{path}.resources.requests"),
        )?;
        let mut request = match self.resized(container) {
            Some(status) => {
                let infeasible = self.resize_is_infeasible();
                let mut actual = if infeasible { ResourceList::default() } else { desired };
                let resources = status.resources.as_ref();
                let requests = resources.and_then(|r| r.requests.as_ref());
                let field = format!("status.containerStatuses[{}].resources", container.name);
                actual.max(&self.list(requests, &field)?);
                let field =
                    format!("status.containerStatuses[{}].allocatedResources", container.name);
                actual.max(&self.list(status.allocated_resources.as_ref(), &field)?);
                actual
            }
            None => desired,
        };
        self.defaults.apply(&mut request);
        Ok(request)
    }

    /// The status of a container of a bound pod that reports resources of its own.
    fn resized(&self, container: &Container) -> Option<&ContainerStatus> {
        self.pod.spec.as_ref()?.node_name.as_ref().filter(|node| !node.is_empty())?;
        let status = self.pod.status.as_ref()?;
        let sidecars = status.init_container_statuses.iter().flatten();
        let all = status.container_statuses.iter().flatten();
        let found = if is_sidecar(container) {
            sidecars.chain(all).find(|status| status.name == container.name)
        } else {
            all.into_iter().find(|status| status.name == container.name)
        };
        found.filter(|status| status.resources.is_some())
    }

    fn resize_is_infeasible(&self) -> bool {
        let conditions = self.pod.status.as_ref().and_then(|s| s.conditions.as_ref());
        conditions.into_iter().flatten().any(|condition| {
            condition.type_ == "PodResizePending"
                && condition.status == "True"
                && condition.reason.as_deref() == Some("Infeasible")
        })
    }

    fn pod_level(&self, spec: &PodSpec, request: &mut ResourceList) -> Result<(), FactError> {
        let Some(resources) = &spec.resources else { return Ok(()) };
        let mut wanted = self.list(resources.requests.as_ref(), "spec.resources.requests")?;
        if let Some(status) = self.resized_pod() {
            if self.resize_is_infeasible() {
                wanted = ResourceList::default();
            }
            wanted.max(&self.list(status.requests.as_ref(), "status.resources.requests")?);
            let allocated = self.pod.status.as_ref().and_then(|s| s.allocated_resources.as_ref());
            wanted.max(&self.list(allocated, "status.allocatedResources")?);
        }
        for (name, amount) in wanted.iter() {
            if matches!(name.as_str(), CPU | MEMORY) || name.starts_with("hugepages-") {
                request.set(name, amount);
            }
        }
        Ok(())
    }

    fn resized_pod(&self) -> Option<&ResourceRequirements> {
        self.pod.spec.as_ref()?.node_name.as_ref().filter(|node| !node.is_empty())?;
        self.pod.status.as_ref()?.resources.as_ref()
    }

    fn overhead(&self, spec: &PodSpec, request: &mut ResourceList) -> Result<(), FactError> {
        request.add(&self.list(spec.overhead.as_ref(), "spec.overhead")?);
        Ok(())
    }

    fn list(
        &self,
        map: Option<&std::collections::BTreeMap<String, ApiQuantity>>,
        field: &str,
    ) -> Result<ResourceList, FactError> {
        map.map_or(Ok(ResourceList::default()), |map| {
            ResourceList::from_map(map)
                .map_err(|error| FactError::amount(format!("Pod {}", self.key), field, &error))
        })
    }
}
