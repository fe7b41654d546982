//! Claims and selectors that would take very long end with a reason.
#![expect(clippy::unwrap_used, reason = "the objects are valid")]

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::{
    core::v1::Node,
    resource::v1::{DeviceClass, ResourceClaim, ResourceSlice},
};
use kube_batch_api::{
    column::{Column, NodeIdx, Ordinal},
    facts::{
        device::{claim::ResourceClaimFacts, class::DeviceClassFacts, slice::SliceFacts},
        node::NodeFacts,
    },
};
use kube_batch_devices::{
    claims::{Claim, Classes},
    inventory::Inventory,
    search::{Chosen, Devices, Refusal},
    selectors::Selectors,
    usage::Usage,
    wanted::AllWanted,
};
use serde_json::{Value, json};

/// Chooses devices for a claim, on one node with these devices.
fn choose(devices: Value, claim: Value) -> Result<Vec<Chosen>, Refusal> {
    let node: Node = serde_json::from_value(json!({"metadata": {"name": "n"}})).unwrap();
    let nodes: Column<NodeIdx, Arc<NodeFacts>> =
        [Arc::new(NodeFacts::from_node(&node).unwrap())].into_iter().collect();
    let slice: ResourceSlice = serde_json::from_value(json!({
        "metadata": {"name": "s"},
        "spec": {
            "driver": "d", "nodeName": "n", "devices": devices,
            "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
        },
    }))
    .unwrap();
    let slice = Arc::new(SliceFacts::from_slice(&slice).unwrap());
    let class: DeviceClass =
        serde_json::from_value(json!({"metadata": {"name": "any"}, "spec": {}})).unwrap();
    let class = Arc::new(DeviceClassFacts::from_class(&class).unwrap());
    let classes: Classes = BTreeMap::from([(class.name.clone(), class)]);
    let claim: ResourceClaim =
        serde_json::from_value(json!({"metadata": {"name": "c"}, "spec": {"devices": claim}}))
            .unwrap();
    let claim = ResourceClaimFacts::from_resource_claim(&claim).unwrap();
    let inventory = Inventory::new(&nodes, [&slice], &[]);
    let (mut selectors, mut wanted) = (Selectors::default(), AllWanted::default());
    let tables = (&inventory, &mut selectors, &mut wanted);
    let claim = Claim::new(tables, &classes, ("ns/c", &claim.spec), &mut u64::MAX.clone()).unwrap();
    let usage = Usage::none(&inventory);
    let devices =
        Devices { inventory: &inventory, wanted: &wanted, selectors: &selectors, first: 0 };
    devices.choose(NodeIdx::new(0), &[("ns/c", &claim)], &[&usage])
}

fn devices(n: usize) -> Value {
    (0..n).map(|at| json!({"name": format!("d{at}"), "attributes": {"at": {"int": at}}})).collect()
}

fn request(name: &str, count: usize, expression: &str) -> Value {
    json!({"name": name, "exactly": {
        "deviceClassName": "any", "count": count, "selectors": [{"cel": {"expression": expression}}],
    }})
}

#[test]
fn an_exponential_search_ends() {
    // Each choice of ten of forty devices is tried before it is found that no device is left for `last`.
    let claim = json!({"requests": [
        request("many", 10, "true"),
        request("last", 1, "device.attributes[\"d\"].at > 100"),
    ]});
    assert_eq!(choose(devices(40), claim), Err(Refusal::TooComplex));
}

#[test]
fn an_expression_that_costs_much_on_each_device_ends() {
    let costly = "lists.range(150).all(x, lists.range(150).all(y, \
                  x + y + device.attributes[\"d\"].at >= 0))";
    let all = json!({"name": "r", "exactly": {
        "deviceClassName": "any", "allocationMode": "All",
        "selectors": [{"cel": {"expression": costly}}],
    }});
    let answer = choose(devices(100), json!({"requests": [all]}));
    assert_eq!(answer, Err(Refusal::TooComplex));
}
