//! PodGroups of the coscheduling plugin of scheduler-plugins, `scheduling.x-k8s.io/v1alpha1`.
//!
//! `minMember` and `minResources` are read. Their status has a phase and counts, and no conditions.
//!
//! Source: `apis/scheduling/v1alpha1/types.go` of scheduler-plugins.
// Parity: see docs/parity.md#k3.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    object::RawObject,
    spec::{Dialect, DialectSpec, Patch, no_queues, without},
};
use crate::{
    naming::{Class, Naming, QUEUE_IN_METADATA},
    read::group::{group, min_member, min_resources},
};
use kube_batch_model::{
    facts::{FactError, group::GroupFacts, metadata::MetadataPrefixes, queue::QueueFacts},
    group_version::GroupVersion,
    object_status::PodGroupStatus,
};

pub(super) const SPEC: DialectSpec = DialectSpec {
    groups: "podgroups.scheduling.x-k8s.io",
    queues: None,
    naming: Naming { queue: QUEUE_IN_METADATA, class: Class::Unchecked },
    patch: Patch::Status,
    dialect: &Coscheduling,
};

/// The fields of a PodGroup that are read.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CoschedulingGroupSpec {
    min_member: i32,
    min_resources: Option<BTreeMap<String, Quantity>>,
}

/// The status, without the fields that this scheduler does not write.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    phase: String,
    running: i32,
    succeeded: i32,
    failed: i32,
}

struct Coscheduling;

impl Dialect for Coscheduling {
    fn read_group(
        &self,
        object: &RawObject,
        prefixes: &MetadataPrefixes,
    ) -> Result<GroupFacts, FactError> {
        let spec: CoschedulingGroupSpec = object.spec("PodGroup")?;
        let status: Status = object.status("PodGroup")?;
        let mut facts = group(
            (GroupVersion::Coscheduling, SPEC.naming),
            (&object.metadata, &object.spec),
            prefixes,
        )?;
        facts.min_member = min_member(&facts.key, spec.min_member)?;
        facts.min_resources = min_resources(&facts.key, spec.min_resources.as_ref())?;
        facts.status = PodGroupStatus {
            phase: status.phase,
            running: status.running,
            succeeded: status.succeeded,
            failed: status.failed,
            ..PodGroupStatus::default()
        };
        Ok(facts)
    }

    fn read_queue(&self, object: &RawObject) -> Result<QueueFacts, FactError> {
        Err(no_queues(object))
    }

    fn status_value(&self, status: &PodGroupStatus) -> Value {
        without(json!(status), &["ready", "conditions"])
    }
}
