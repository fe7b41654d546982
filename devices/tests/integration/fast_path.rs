//! The fast paths give the same answers as the plain search, in random clusters.
#![expect(clippy::unwrap_used, reason = "the objects are valid")]

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::{
    core::v1::Node,
    resource::v1::{DeviceClass, ResourceClaim, ResourceSlice},
};
use kube_batch_api::read;
use kube_batch_devices::{
    claims::{Claim, DeviceClasses},
    inventory::Inventory,
    long::LongSearches,
    search::{Chosen, Devices, Refusal},
    selectors::Selectors,
    usage::{Held, Usage},
    wanted::AllWanted,
};
use kube_batch_model::{
    column::{Column, NodeIdx},
    facts::{
        device::{claim::ResourceClaimFacts, slice::SliceFacts},
        node::NodeFacts,
    },
    name::Name,
};
use serde_json::{Value, json};

/// Random numbers: xorshift, so that a seed gives the same cluster everywhere.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % n
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn pick<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize].clone()
    }
}

const DRIVER: &str = "d";

/// Devices of one slice. Some consume counters, some can be shared, some are tainted or lack an attribute.
fn device(random: &mut Random, at: usize, has_counters: bool) -> Value {
    let mut device = json!({"name": format!("d{at}"), "attributes": {
        "model": {"string": random.pick(&["a", "b"])},
        "link": {"int": random.below(2)},
    }});
    if random.one_in(4) {
        device["attributes"]["size"] = json!({"int": random.below(3)});
    }
    if random.one_in(10) {
        device["taints"] = json!([{"key": "broken", "effect": "NoSchedule"}]);
    }
    if has_counters && random.one_in(2) {
        let amount = random.pick(&["10Gi", "20Gi", "40Gi"]);
        device["consumesCounters"] =
            json!([{"counterSet": "set", "counters": {"memory": {"value": amount}}}]);
    }
    if random.one_in(12) {
        device["allowMultipleAllocations"] = json!(true);
        device["capacity"] = json!({"memory": {"value": "40Gi"}});
    }
    device
}

fn slices(random: &mut Random, node: usize) -> Vec<ResourceSlice> {
    let (has_counters, is_shared) = (random.one_in(3), random.one_in(8));
    let n_slices = if has_counters { 2 } else { 1 };
    let n_expected = if random.one_in(20) { 3 } else { n_slices };
    let n_devices = random.below(9) as usize;
    let devices: Vec<Value> = (0..n_devices).map(|at| device(random, at, has_counters)).collect();
    let slice = |name: &str, mut spec: Value| {
        spec["driver"] = json!(DRIVER);
        spec["pool"] =
            json!({"name": format!("p{node}"), "generation": 1, "resourceSliceCount": n_expected});
        match is_shared {
            true => spec["allNodes"] = json!(true),
            false => spec["nodeName"] = json!(format!("n{node}")),
        }
        let name = format!("s{node}-{name}");
        serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap()
    };
    let mut slices = vec![slice("devices", json!({"devices": devices}))];
    if has_counters {
        let counters = json!({"memory": {"value": "60Gi"}});
        slices.push(slice(
            "counters",
            json!({"sharedCounters": [{"name": "set", "counters": counters}]}),
        ));
    }
    slices
}

/// What a request wants.
fn wanted(random: &mut Random) -> Value {
    let attribute = |name: &str| format!("device.attributes[\"{DRIVER}\"].{name}");
    let mut wanted = json!({"deviceClassName": random.pick(&["any", "model-a"])});
    if random.one_in(6) {
        wanted["allocationMode"] = json!("All");
    } else {
        wanted["count"] = json!(1 + random.below(4));
    }
    if random.one_in(3) {
        let expression = random.pick(&[
            format!("{} == \"b\"", attribute("model")),
            format!("{} > 0", attribute("link")),
            format!("{} > 0", attribute("size")),
            "device.driver == \"other\"".to_owned(),
        ]);
        wanted["selectors"] = json!([{"cel": {"expression": expression}}]);
    }
    if random.one_in(8) {
        wanted["tolerations"] = json!([{"operator": "Exists"}]);
    }
    if random.one_in(12) {
        wanted["adminAccess"] = json!(true);
    }
    if random.one_in(12) {
        wanted["capacity"] = json!({"requests": {"memory": "10Gi"}});
    }
    wanted
}

fn claim(random: &mut Random, at: usize) -> ResourceClaimFacts {
    let requests: Vec<Value> = (0..1 + random.below(2))
        .map(|request| {
            let name = format!("r{request}");
            if random.one_in(6) {
                let alternatives: Vec<Value> = (0..2)
                    .map(|at| {
                        let mut alternative = wanted(random);
                        alternative["name"] = json!(format!("a{at}"));
                        alternative.as_object_mut().unwrap().remove("adminAccess");
                        alternative
                    })
                    .collect();
                json!({"name": name, "firstAvailable": alternatives})
            } else {
                json!({"name": name, "exactly": wanted(random)})
            }
        })
        .collect();
    let mut devices = json!({"requests": requests});
    if random.one_in(3) {
        let rule = random.pick(&["matchAttribute", "distinctAttribute"]);
        let name = random.pick(&["link", "model", "size"]);
        devices["constraints"] = json!([{rule: format!("{DRIVER}/{name}")}]);
    }
    let claim: ResourceClaim = serde_json::from_value(
        json!({"metadata": {"name": format!("c{at}"), "namespace": "ns"}, "spec": {"devices": devices}}),
    )
    .unwrap();
    read::resource_claim(&claim).unwrap()
}

fn classes() -> DeviceClasses {
    let class = |name: &str, selectors: Value| {
        let class: DeviceClass = serde_json::from_value(
            json!({"metadata": {"name": name}, "spec": {"selectors": selectors}}),
        )
        .unwrap();
        Arc::new(read::device_class(&class).unwrap())
    };
    let expression = format!("device.attributes[\"{DRIVER}\"].model == \"a\"");
    let all =
        [class("any", json!([])), class("model-a", json!([{"cel": {"expression": expression}}]))];
    all.into_iter().map(|class| (class.name.clone(), class)).collect()
}

/// How often each kind of answer was given.
type Counts = BTreeMap<&'static str, u32>;

/// Places claims one after the other, on random nodes, with both; what is placed is in use afterwards.
fn play(seed: u64, counts: &mut Counts) {
    let random = &mut Random::new(seed);
    let n_nodes = 1 + random.below(4) as usize;
    let nodes: Column<NodeIdx, Arc<NodeFacts>> = (0..n_nodes)
        .map(|at| {
            let node: Node =
                serde_json::from_value(json!({"metadata": {"name": format!("n{at}")}})).unwrap();
            Arc::new(read::node(&node).unwrap())
        })
        .collect();
    let slices: Vec<Arc<SliceFacts>> = (0..n_nodes)
        .flat_map(|node| slices(random, node))
        .map(|slice| Arc::new(read::slice(&slice).unwrap()))
        .collect();
    let inventory = Inventory::new(&nodes, &slices, &[]);
    let classes = classes();
    let (mut selectors, mut wanted) = (Selectors::default(), AllWanted::default());
    let mut usage = Usage::none(&inventory);
    let mut long = LongSearches::default();
    for _ in 0..6 {
        let facts: Vec<ResourceClaimFacts> =
            (0..1 + random.below(2) as usize).map(|at| claim(random, at)).collect();
        let budget = &mut u64::MAX.clone();
        let ready: Vec<(String, Claim)> = facts
            .iter()
            .map(|claim| {
                let (name, spec) = (claim.key.to_string(), &claim.spec);
                let tables = (&inventory, &mut selectors, &mut wanted);
                let ready = Claim::new(tables, &classes, (&name, spec), budget).unwrap();
                (name, ready)
            })
            .collect();
        let claims: Vec<(&str, &Claim)> =
            ready.iter().map(|(name, claim)| (name.as_str(), claim)).collect();
        let devices =
            Devices { inventory: &inventory, wanted: &wanted, selectors: &selectors, first: 0 };
        let mut placed: Option<Vec<Chosen>> = None;
        for node in nodes.ids() {
            let in_use = [&usage];
            let expected = devices.choose(node, &claims, &in_use);
            let (quickly, _) = devices.choose_quickly(node, &claims, &in_use);
            *counts.entry(if quickly.is_some() { "quick" } else { "long" }).or_default() += 1;
            let long = quickly.clone().unwrap_or_else(|| {
                long.choose(devices, &Name::from("ns"), (node, &claims), &in_use)
            });
            assert_eq!(long, expected, "seed {seed}, quickly: {quickly:?}");
            *counts.entry(kind(&expected)).or_default() += 1;
            let most = devices.max_times(node, &claims, &in_use);
            let times = times(devices, node, &claims, usage.clone());
            assert!(times <= most, "seed {seed}: {times} times, not {most}");
            let is_exact = if times == most { "exact" } else { "estimate" };
            *counts.entry(is_exact).or_default() += 1;
            if let Ok(chosen) = expected {
                placed = Some(chosen);
            }
        }
        let placed = placed.into_iter().flatten().zip(&ready);
        for (chosen, (_, claim)) in placed {
            let allocation = devices.allocation(claim, &chosen, &Name::from("n0"));
            usage.add(&inventory, &Held::of(&inventory, &allocation));
        }
    }
}

/// How many times a node has devices for the claims, one after the other.
fn times(devices: Devices<'_>, node: NodeIdx, claims: &[(&str, &Claim)], mut usage: Usage) -> u64 {
    // Devices that can be shared may suffice for any number of claims.
    for times in 0..20 {
        let Ok(chosen) = devices.choose(node, claims, &[&usage]) else { return times };
        for (chosen, (_, claim)) in chosen.iter().zip(claims) {
            let allocation = devices.allocation(claim, chosen, &Name::from("n0"));
            usage.add(devices.inventory, &Held::of(devices.inventory, &allocation));
        }
    }
    20
}

fn kind(answer: &Result<Vec<Chosen>, Refusal>) -> &'static str {
    match answer {
        Ok(_) => "devices",
        Err(Refusal::Insufficient) => "insufficient",
        Err(Refusal::InvalidPools) => "invalid pools",
        Err(Refusal::TooComplex) => "too complex",
        Err(Refusal::Error(_)) => "error",
    }
}

#[test]
fn fast_paths_give_the_answers_of_the_search() {
    let mut counts = Counts::new();
    for seed in 0..20_000 {
        play(seed, &mut counts);
    }
    for kind in ["quick", "long", "devices", "insufficient", "error", "exact"] {
        assert!(counts.get(kind).is_some_and(|n| *n > 500), "{kind} is rare: {counts:?}");
    }
}

/// One device is lacking, which the search finds out after thousands of steps on each node.
#[test]
fn nodes_that_are_alike_are_searched_once() {
    let nodes: Column<NodeIdx, Arc<NodeFacts>> = (0..2_000)
        .map(|at| {
            let name = format!("n{at:04}");
            let node: Node = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
            Arc::new(read::node(&node).unwrap())
        })
        .collect();
    let slice = |node: usize| {
        let name = format!("n{node:04}");
        let device = |at: usize| {
            json!({"name": format!("d{at}"), "attributes": {
                "link": {"string": format!("{node}-{}", at % 5)}, "last": {"bool": at > 14},
            }})
        };
        let devices: Vec<Value> = (0..16).map(device).collect();
        let slice: ResourceSlice = serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {
                "driver": DRIVER, "nodeName": name, "devices": devices,
                "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
            },
        }))
        .unwrap();
        Arc::new(read::slice(&slice).unwrap())
    };
    let slices: Vec<Arc<SliceFacts>> = (0..2_000).map(slice).collect();
    let claim: ResourceClaim = serde_json::from_value(json!({
        "metadata": {"name": "c", "namespace": "ns"},
        "spec": {"devices": {
            "requests": [
                {"name": "many", "exactly": {"deviceClassName": "any", "count": 6}},
                {"name": "last", "exactly": {"deviceClassName": "any", "count": 2, "selectors": [
                    {"cel": {"expression": format!("device.attributes[\"{DRIVER}\"].last")}},
                ]}},
            ],
        }},
    }))
    .unwrap();
    let facts = read::resource_claim(&claim).unwrap();
    let inventory = Inventory::new(&nodes, &slices, &[]);
    let (mut selectors, mut wanted) = (Selectors::default(), AllWanted::default());
    let tables = (&inventory, &mut selectors, &mut wanted);
    let budget = &mut u64::MAX.clone();
    let claim = Claim::new(tables, &classes(), ("ns/c", &facts.spec), budget).unwrap();
    let usage = Usage::none(&inventory);
    let devices =
        Devices { inventory: &inventory, wanted: &wanted, selectors: &selectors, first: 0 };
    let claims = [("ns/c", &claim)];
    let mut long = LongSearches::default();
    let owner = Name::from("ns");
    for node in nodes.ids() {
        assert_eq!(devices.choose_quickly(node, &claims, &[&usage]).0, None);
        let answer = long.choose(devices, &owner, (node, &claims), &[&usage]);
        // Were each node searched, the steps of the owner would end with one of the first.
        assert_eq!(answer, devices.choose(node, &claims, &[&usage]));
    }
}
