//! PodGroups and queues of Volcano, `scheduling.volcano.sh/v1beta1`.
//!
//! Volcano uses the same annotation as kube-batch, so PodGroups of the two APIs share one set of names.
//! Controllers of Volcano create the pods of a job only once its PodGroup is in the phase Inqueue.
//! Its PodGroups have no status subresource, so the status is written to the object itself.
//!
//! Source: `staging/src/volcano.sh/apis/pkg/apis/scheduling/v1beta1/types.go` of Volcano.
// Parity: see docs/parity.md#k2.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    object::RawObject,
    spec::{Dialect, DialectSpec, Patch, without},
};
use crate::{
    crd::{DesiredState, QueueSpec},
    naming::IN_SPEC,
    read::{
        self,
        group::{group, min_member, min_resources},
    },
};
use kube_batch_model::{
    facts::{
        FactError,
        group::{GroupFacts, RoleFacts},
        metadata::MetadataPrefixes,
        queue::QueueFacts,
        topology::{TopologyFacts, TopologyLevel},
    },
    group_version::GroupVersion,
    name::Name,
    object_status::{PodGroupStatus, QueueStatus},
};

pub(super) const SPEC: DialectSpec = DialectSpec {
    groups: "podgroups.scheduling.volcano.sh",
    queues: Some("queues.scheduling.volcano.sh"),
    naming: IN_SPEC,
    patch: Patch::Object,
    dialect: &Volcano,
};

/// The fields of a PodGroup that are read.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolcanoGroupSpec {
    min_member: Option<i32>,
    min_task_member: Option<BTreeMap<String, i32>>,
    /// Read by the table in [`naming`](crate::naming), as is `priority_class_name`.
    pub queue: Option<String>,
    /// The PriorityClass.
    pub priority_class_name: Option<String>,
    min_resources: Option<BTreeMap<String, Quantity>>,
    network_topology: Option<NetworkTopology>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct NetworkTopology {
    /// `hard` if absent.
    mode: Option<String>,
    highest_tier_allowed: Option<u32>,
    highest_tier_name: Option<String>,
}

impl NetworkTopology {
    /// The narrowest level that holds the group is preferred; in the mode `hard`, no level is used that is
    /// broader than the one named, if one is.
    // Parity: see docs/parity.md#t4.
    fn facts(self) -> TopologyFacts {
        let named = non_empty(self.highest_tier_name).map(TopologyLevel::Label);
        let highest = named.or(self.highest_tier_allowed.map(TopologyLevel::Tier));
        let is_hard = self.mode.as_deref() != Some("soft");
        TopologyFacts {
            required: highest.filter(|_| is_hard),
            preferred: Some(TopologyLevel::Tier(1)),
        }
    }
}

/// The fields of a queue that are read.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct VolcanoQueueSpec {
    weight: Option<i32>,
    capability: Option<BTreeMap<String, Quantity>>,
    deserved: Option<BTreeMap<String, Quantity>>,
    guarantee: Option<VolcanoGuarantee>,
    parent: Option<String>,
    priority: Option<i32>,
    reclaimable: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct VolcanoGuarantee {
    resource: Option<BTreeMap<String, Quantity>>,
}

/// The queue above all others of Volcano, which makes it.
const ROOT: &str = "root";

/// Fields of a queue that have an effect here. The root has none.
const HONOURED: [&str; 7] =
    ["weight", "capability", "deserved", "guarantee", "parent", "priority", "reclaimable"];

struct Volcano;

impl Dialect for Volcano {
    fn read_group(
        &self,
        object: &RawObject,
        prefixes: &MetadataPrefixes,
    ) -> Result<GroupFacts, FactError> {
        let spec: VolcanoGroupSpec = object.spec("PodGroup")?;
        let mut facts = group(
            (GroupVersion::Volcano, SPEC.naming),
            (&object.metadata, &object.spec),
            prefixes,
        )?;
        facts.min_member = min_member(&facts.key, spec.min_member.unwrap_or(0))?;
        let roles = spec.min_task_member.unwrap_or_default().into_iter().map(|(role, min)| {
            let min = min_member(&facts.key, min)?;
            Ok(RoleFacts { name: Name::from(role), min })
        });
        let roles = roles.collect::<Result<Vec<RoleFacts>, FactError>>()?;
        facts.set_roles(roles);
        facts.min_resources = min_resources(&facts.key, spec.min_resources.as_ref())?;
        facts.topology = spec.network_topology.map(|topology| Arc::new(topology.facts()));
        facts.status = object.status("PodGroup")?;
        Ok(facts)
    }

    fn read_queue(&self, object: &RawObject) -> Result<QueueFacts, FactError> {
        let is_top = object.metadata.name.as_deref() == Some(ROOT);
        let own: VolcanoQueueSpec =
            if is_top { VolcanoQueueSpec::default() } else { object.spec("Queue")? };
        let status: QueueStatus = object.status("Queue")?;
        let is_closed = matches!(&*status.state, "Closed" | "Closing");
        let spec = QueueSpec {
            // As Volcano's admission sets it.
            weight: own.weight.unwrap_or(1),
            capability: own.capability.unwrap_or_default(),
            deserved: own.deserved.unwrap_or_default(),
            guarantee: own.guarantee.and_then(|own| own.resource).unwrap_or_default(),
            parent: own.parent.filter(|parent| parent != ROOT),
            priority: own.priority,
            reclaimable: own.reclaimable,
            state: is_closed.then_some(DesiredState::Closed),
            ..QueueSpec::default()
        };
        let mut facts = read::queue(GroupVersion::Volcano, &object.metadata, &spec, Some(&status))?;
        facts.is_top = is_top;
        let set = object.spec.as_object().into_iter().flatten().filter(|own| !own.1.is_null());
        let names = set.map(|(field, _)| &**field);
        let others = names.filter(|field| is_top || !HONOURED.contains(field));
        facts.not_honoured = others.map(Name::from).collect();
        Ok(facts)
    }

    fn status_value(&self, status: &PodGroupStatus) -> Value {
        without(json!(status), &["ready"])
    }
}

fn non_empty(text: Option<String>) -> Option<Name> {
    text.filter(|text| !text.is_empty()).map(Name::from)
}
