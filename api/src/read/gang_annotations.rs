//! The annotations by which pods without a PodGroup form a gang.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube_batch_model::{
    facts::{
        gang_annotations::{GangAnnotations, MIN_AVAILABLE},
        topology::TopologyFacts,
    },
    name::Name,
};

use crate::naming::POD;

/// Reads them; `None` if there are none.
pub(super) fn gang_annotations(meta: &ObjectMeta) -> Option<GangAnnotations> {
    let annotations = meta.annotations.as_ref();
    let minimum = annotations.and_then(|all| all.get(MIN_AVAILABLE));
    let read = minimum.map(|text| text.parse().map_err(|_| Name::from(text.as_str())));
    let (min_available, unreadable) = match read {
        None => (None, None),
        Some(Ok(number)) => (Some(number), None),
        Some(Err(text)) => (None, Some(text)),
    };
    let topology = TopologyFacts::of_annotations(annotations);
    let queue = POD.queue.read(meta, None).map(Name::from);
    let found = GangAnnotations { min_available, queue, topology, unreadable };
    (found != GangAnnotations::default()).then_some(found)
}
