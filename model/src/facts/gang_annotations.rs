//! The annotations by which pods without a PodGroup form a gang.
// Parity: new, see docs/parity.md#k5.

use serde::{Deserialize, Serialize};

use super::topology::{TOPOLOGY_PREFERRED, TOPOLOGY_REQUIRED, TopologyFacts};
use crate::{membership::QUEUE_LABEL, name::Name};

/// Annotation: minimum number of pods of the controller that start together.
pub const MIN_AVAILABLE: &str = "scheduling.sigs.dev/min-available";

/// The annotations of a pod that count if it is in no PodGroup.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GangAnnotations {
    /// The minimum number of pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_available: Option<u32>,
    /// The queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<Name>,
    /// The topology.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topology: Option<TopologyFacts>,
    /// The value of [`MIN_AVAILABLE`], if that is not a number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unreadable: Option<Name>,
}

/// The annotations of the pods of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CombinedAnnotations {
    /// The largest minimum.
    pub min_available: Option<u32>,
    /// The queue of the first pod that names one.
    pub queue: Option<Name>,
    /// Each level of the first pod that names it.
    pub topology: Option<TopologyFacts>,
    /// The annotations that have different values in different pods, each with the value that is used.
    pub different: Vec<(&'static str, Name)>,
}

impl CombinedAnnotations {
    /// Combines the annotations of pods, in their order.
    pub fn of<'a>(pods: impl Iterator<Item = &'a GangAnnotations> + Clone) -> Self {
        let minima = pods.clone().filter_map(|pod| pod.min_available);
        let queues = pods.clone().filter_map(|pod| pod.queue.as_ref());
        let topologies = pods.filter_map(|pod| pod.topology.as_ref());
        let required = topologies.clone().filter_map(|own| own.required.as_ref());
        let preferred = topologies.filter_map(|own| own.preferred.as_ref());
        let (min_available, queue) = (minima.clone().max(), queues.clone().next());
        let mut different = Vec::new();
        if let Some(most) = min_available.filter(|most| minima.clone().any(|own| own != *most)) {
            different.push((MIN_AVAILABLE, Name::from(most.to_string())));
        }
        if let Some(first) = queue.filter(|first| queues.clone().any(|own| own != *first)) {
            different.push((QUEUE_LABEL, first.clone()));
        }
        let topology = TopologyFacts {
            required: required.clone().next().cloned(),
            preferred: preferred.clone().next().cloned(),
        };
        if let Some(first) = &topology.required
            && required.clone().any(|own| own != first)
        {
            different.push((TOPOLOGY_REQUIRED, first.name()));
        }
        if let Some(first) = &topology.preferred
            && preferred.clone().any(|own| own != first)
        {
            different.push((TOPOLOGY_PREFERRED, first.name()));
        }
        let topology = (topology != TopologyFacts::default()).then_some(topology);
        Self { min_available, queue: queue.cloned(), topology, different }
    }
}
