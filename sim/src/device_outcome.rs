//! Devices in the result of a simulation (Dynamic Resource Allocation).

use std::sync::Arc;

use kube_batch_devices::{
    devices_of_class::DevicesOfClass,
    inventory::Inventory,
    selectors::Selectors,
    usage::{Held, Usage},
    wanted::AllWanted,
};
use kube_batch_model::{
    devices::ExtendedClaim,
    facts::{device::request::Wanted, pod::TaskFacts},
};
use schemars::JsonSchema;
use serde::Serialize;

use crate::world::World;

/// The devices of a class on a node (Dynamic Resource Allocation).
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DevicesOutcome {
    /// The class.
    pub class: String,
    /// The node; absent for devices that several nodes can use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Number of devices.
    pub total: usize,
    /// Number of those that are allocated, whole or in part.
    pub used: usize,
}

/// The devices of each class on each node.
pub(crate) fn devices_outcome(world: &World) -> Vec<DevicesOutcome> {
    let cluster = world.snapshot().cluster;
    let published = &cluster.devices.published;
    let rules: Vec<_> = published.taint_rules.values().cloned().collect();
    let inventory = Inventory::new(&cluster.nodes.facts, published.slices.values(), &rules);
    let (mut selectors, mut wanted) = (Selectors::default(), AllWanted::default());
    let mut usage = Usage::none(&inventory);
    let allocations = cluster.devices.claims.values().filter_map(|claim| claim.allocation.as_ref());
    for allocation in allocations {
        usage.add(&inventory, &Held::of(&inventory, allocation));
    }
    let mut outcomes = Vec::new();
    for class in published.classes.values() {
        let any = Wanted::of_class(&class.name, 1);
        let row = wanted.row(&inventory, &mut selectors, (&any, class), &mut u64::MAX.clone());
        for (node, devices) in DevicesOfClass::of(&inventory, wanted.get(row)).iter() {
            outcomes.push(DevicesOutcome {
                class: class.name.to_string(),
                node: node.map(|node| cluster.node_name(node).to_string()),
                total: devices.len(),
                used: devices.iter().filter(|row| usage.is_in_use(**row)).count(),
            });
        }
    }
    outcomes
}

/// The devices of the claims of a pod that has a node, `driver/pool/device`.
pub(crate) fn devices_of_pod(world: &World, facts: &Arc<TaskFacts>) -> Vec<String> {
    let extended =
        (!facts.template.extended.is_empty()).then(|| ExtendedClaim::key(&facts.key, &facts.uid));
    let keys = facts.claim_keys().chain(extended).filter(|_| facts.node.is_some());
    let claims = keys.filter_map(|key| world.store.resource_claims.get(&key));
    let devices = claims.flat_map(|claim| {
        let results = claim.allocation.iter().flat_map(|allocation| &allocation.results);
        results.map(|result| result.id.to_string()).collect::<Vec<_>>()
    });
    devices.collect()
}
