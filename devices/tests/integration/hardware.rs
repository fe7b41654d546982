//! What part of the hardware devices take.
#![expect(clippy::unwrap_used, reason = "the objects are valid")]

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::{core::v1::Node, resource::v1::ResourceSlice};
use kube_batch_api::read;
use kube_batch_devices::{hardware::Physical, inventory::Inventory};
use kube_batch_model::{
    column::{Column, NodeIdx},
    facts::node::NodeFacts,
    name::Name,
};
use serde_json::{Value, json};

/// Nano-units in 1Gi.
const GIB: i128 = (1 << 30) * 1_000_000_000;

/// The devices of one node, and the counters of their pool.
fn inventory(counters: Value, devices: Value) -> Inventory {
    let node: Node = serde_json::from_value(json!({"metadata": {"name": "n"}})).unwrap();
    let nodes: Column<NodeIdx, Arc<NodeFacts>> =
        [Arc::new(read::node(&node).unwrap())].into_iter().collect();
    let slice = |name: &str, key: &str, value: Value| {
        let mut slice = json!({
            "metadata": {"name": name},
            "spec": {
                "driver": "d", "nodeName": "n",
                "pool": {"name": "p", "generation": 1, "resourceSliceCount": 2},
            },
        });
        slice["spec"][key] = value;
        let slice: ResourceSlice = serde_json::from_value(slice).unwrap();
        Arc::new(read::slice(&slice).unwrap())
    };
    let slices = [slice("a", "sharedCounters", counters), slice("b", "devices", devices)];
    Inventory::new(&nodes, &slices, &[])
}

/// The parts that each device takes, with the number of its physical device in the order in which they are seen.
fn parts(inventory: &Inventory, share: Option<(&str, i128)>) -> Vec<Vec<(usize, i64)>> {
    let share = share.map(|(name, amount)| BTreeMap::from([(Name::from(name), amount)]));
    let mut seen: Vec<Physical> = Vec::new();
    let mut number = |physical: Physical| {
        let known = seen.iter().position(|seen| *seen == physical);
        known.unwrap_or_else(|| {
            seen.push(physical);
            seen.len() - 1
        })
    };
    let rows = inventory.devices().ids();
    let of_device = |row| inventory.parts(row, share.as_ref());
    rows.map(|row| of_device(row).into_iter().map(|(of, part)| (number(of), part)).collect())
        .collect()
}

fn set(name: &str, memory: &str, slices: u32) -> Value {
    json!({"name": name, "counters": {"memory": {"value": memory}, "slices": {"value": slices.to_string()}}})
}

fn consumes(of: &str, memory: &str, slices: u32) -> Value {
    json!({"counterSet": of, "counters": {"memory": {"value": memory}, "slices": {"value": slices.to_string()}}})
}

#[test]
fn a_partition_takes_its_largest_fraction_of_each_set() {
    let inventory = inventory(
        json!([set("g0", "80Gi", 7), set("g1", "80Gi", 7)]),
        json!([
            {"name": "whole", "consumesCounters": [consumes("g0", "80Gi", 7)]},
            {"name": "quarter", "consumesCounters": [consumes("g0", "20Gi", 1)]},
            {"name": "many-slices", "consumesCounters": [consumes("g1", "10Gi", 3)]},
            {"name": "of-both", "consumesCounters": [consumes("g0", "40Gi", 2), consumes("g1", "20Gi", 1)]},
        ]),
    );
    let expected = [vec![(0, 1000)], vec![(0, 250)], vec![(1, 428)], vec![(0, 500), (1, 250)]];
    assert_eq!(parts(&inventory, None), expected);
}

#[test]
fn other_devices_are_physical_ones_by_themselves() {
    let inventory = inventory(json!([]), json!([{"name": "d0"}, {"name": "d1"}]));
    assert_eq!(parts(&inventory, None), [[(0, 1000)], [(1, 1000)]]);
}

#[test]
fn a_share_takes_its_largest_fraction_of_the_capacities() {
    let capacity = json!({"memory": {"value": "80Gi"}, "bandwidth": {"value": "10"}});
    let inventory = inventory(
        json!([set("g0", "80Gi", 7)]),
        json!([
            {"name": "d0", "allowMultipleAllocations": true, "capacity": capacity},
            {
                "name": "half", "allowMultipleAllocations": true, "capacity": capacity,
                "consumesCounters": [consumes("g0", "40Gi", 3)],
            },
        ]),
    );
    // A share of half a device takes half as much of the whole.
    assert_eq!(parts(&inventory, Some(("memory", 20 * GIB))), [[(0, 250)], [(1, 125)]]);
    assert_eq!(parts(&inventory, Some(("bandwidth", 5_000_000_000))), [[(0, 500)], [(1, 250)]]);
    assert_eq!(parts(&inventory, Some(("memory", 1))), [[(0, 1)], [(1, 1)]], "never nothing");
}
