//! The effective request of a pod, and the amounts that scores count for it.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{Container, ContainerStatus, Pod, PodSpec, ResourceRequirements},
    apimachinery::pkg::api::resource::Quantity as ApiQuantity,
};
use kube_batch_model::{
    facts::{FactError, request::ScoringAmounts},
    name::ObjectKey,
    resource::{CPU, MEMORY, PODS, ResourceList},
};

use super::amounts::amounts_of_pod;

/// CPU that scores count for a container that names none, in milli-cores. Kubernetes' own default.
const SCORING_CPU_MILLI: i64 = 100;
/// Memory that scores count for a container that names none, in bytes. Kubernetes' own default.
const SCORING_MEMORY_BYTES: i64 = 200 << 20;

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
        let mut lists: Vec<_> =
            containers(spec).filter_map(|c| c.resources.as_ref()?.requests.as_ref()).collect();
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
        map: Option<&BTreeMap<String, ApiQuantity>>,
        field: &str,
    ) -> Result<ResourceList, FactError> {
        map.map_or(Ok(ResourceList::default()), |map| {
            amounts_of_pod(map)
                .map_err(|error| FactError::amount(format!("Pod {}", self.key), field, &error))
        })
    }
}

/// Init containers and containers.
pub(super) fn containers(spec: &PodSpec) -> impl Iterator<Item = &Container> + Clone {
    spec.init_containers.iter().flatten().chain(&spec.containers)
}

/// An init container that keeps running beside the containers.
pub(super) fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}
