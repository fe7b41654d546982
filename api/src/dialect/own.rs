//! The PodGroups and queues of this project, whose two API groups are field for field the same.

use std::sync::Arc;

use super::{
    object::RawObject,
    spec::{Dialect, DialectSpec, Patch},
};
use crate::{
    crd::{PodGroupSpec, QueueSpec},
    naming::IN_SPEC,
    read::{
        self,
        group::{group, min_member},
    },
};
use kube_batch_model::{
    facts::{
        FactError, group::GroupFacts, metadata::MetadataPrefixes, queue::QueueFacts,
        topology::TopologyFacts,
    },
    group_version::GroupVersion,
    object_status::{PodGroupStatus, QueueStatus},
};

/// The older API group.
pub(super) const V1ALPHA1: DialectSpec = DialectSpec {
    groups: "podgroups.scheduling.incubator.k8s.io",
    queues: Some("queues.scheduling.incubator.k8s.io"),
    naming: IN_SPEC,
    patch: Patch::Status,
    dialect: &Own(GroupVersion::V1Alpha1),
};

/// The newer API group.
pub(super) const V1ALPHA2: DialectSpec = DialectSpec {
    groups: "podgroups.scheduling.sigs.dev",
    queues: Some("queues.scheduling.sigs.dev"),
    naming: IN_SPEC,
    patch: Patch::Status,
    dialect: &Own(GroupVersion::V1Alpha2),
};

struct Own(GroupVersion);

impl Dialect for Own {
    fn read_group(
        &self,
        object: &RawObject,
        prefixes: &MetadataPrefixes,
    ) -> Result<GroupFacts, FactError> {
        let spec: PodGroupSpec = object.spec("PodGroup")?;
        let status: PodGroupStatus = object.status("PodGroup")?;
        let annotations = object.metadata.annotations.as_ref();
        let mut facts = group((self.0, IN_SPEC), (&object.metadata, &object.spec), prefixes)?;
        facts.min_member = min_member(&facts.key, spec.min_member)?;
        facts.topology = TopologyFacts::of_annotations(annotations).map(Arc::new);
        facts.status = status;
        Ok(facts)
    }

    fn read_queue(&self, object: &RawObject) -> Result<QueueFacts, FactError> {
        let spec: QueueSpec = object.spec("Queue")?;
        let status: QueueStatus = object.status("Queue")?;
        read::queue(self.0, &object.metadata, &spec, Some(&status))
    }
}
