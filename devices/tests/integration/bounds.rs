//! Claims and selectors that would take very long end with a reason.
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
    rows::{DeviceIdx, WantedIdx},
    search::{Chosen, Devices, Refusal},
    selectors::{Selectors, Verdicts, budget},
    usage::Usage,
    wanted::{AllWanted, Match},
};
use kube_batch_model::{
    column::{Column, NodeIdx, Ordinal},
    facts::{
        device::{
            class::DeviceClassFacts,
            request::{Selector, Wanted},
            slice::SliceFacts,
        },
        node::NodeFacts,
    },
    name::Name,
};
use serde_json::{Value, json};

/// One node with these devices, at most 128 in a slice.
fn inventory(devices: &[Value]) -> Inventory {
    let node: Node = serde_json::from_value(json!({"metadata": {"name": "n"}})).unwrap();
    let nodes: Column<NodeIdx, Arc<NodeFacts>> =
        [Arc::new(read::node(&node).unwrap())].into_iter().collect();
    let slices = devices.chunks(128).enumerate().map(|(n, of_slice)| {
        let slice: ResourceSlice = serde_json::from_value(json!({
            "metadata": {"name": format!("s{n:04}")},
            "spec": {
                "driver": "d", "nodeName": "n", "devices": of_slice,
                "pool": {
                    "name": "p", "generation": 1, "resourceSliceCount": devices.len().div_ceil(128),
                },
            },
        }))
        .unwrap();
        Arc::new(read::slice(&slice).unwrap())
    });
    let slices: Vec<Arc<SliceFacts>> = slices.collect();
    Inventory::new(&nodes, &slices, &[])
}

fn any_class() -> Arc<DeviceClassFacts> {
    let class: DeviceClass =
        serde_json::from_value(json!({"metadata": {"name": "any"}, "spec": {}})).unwrap();
    Arc::new(read::device_class(&class).unwrap())
}

/// Chooses devices for a claim, on one node with these devices.
fn choose(devices: Value, claim: Value) -> Result<Vec<Chosen>, Refusal> {
    let class = any_class();
    let classes: DeviceClasses = BTreeMap::from([(class.name.clone(), class)]);
    let claim: ResourceClaim =
        serde_json::from_value(json!({"metadata": {"name": "c"}, "spec": {"devices": claim}}))
            .unwrap();
    let claim = read::resource_claim(&claim).unwrap();
    let inventory = inventory(devices.as_array().unwrap());
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

/// The most devices of the bound: 80 slices of 128.
const MANY: usize = 10_240;

fn unlike_devices() -> Vec<Value> {
    let device = |at: usize| {
        json!({"name": format!("d{at}"), "attributes": {
            "id": {"string": format!("GPU-{at:036}")}, "model": {"string": "h200"},
        }})
    };
    (0..MANY).map(device).collect()
}

/// A request with these selectors.
fn wanted(expressions: impl IntoIterator<Item = String>) -> Wanted {
    let selectors = expressions.into_iter().map(|own| Selector(Some(Name::from(own)))).collect();
    Wanted { selectors, ..Wanted::of_class(&Name::from("any"), 1) }
}

/// The requests of one namespace, cycle for cycle.
struct Cycles {
    inventory: Inventory,
    selectors: Selectors,
    all: AllWanted,
}

impl Cycles {
    fn new(devices: &[Value]) -> Self {
        let inventory = inventory(devices);
        Self { inventory, selectors: Selectors::default(), all: AllWanted::default() }
    }

    /// What is left of the budget after a cycle, and the rows of the requests.
    fn run(&mut self, requests: &[Wanted]) -> (u64, Vec<WantedIdx>) {
        let mut budget = budget(&self.inventory);
        self.all = self.all.again(&mut self.selectors);
        let class = any_class();
        let mut row = |request| {
            let own = (request, &class);
            self.all.row(&self.inventory, &mut self.selectors, own, &mut budget)
        };
        let rows = requests.iter().map(&mut row).collect();
        (budget, rows)
    }

    /// The cycles until all requests are decided.
    fn until_decided(&mut self, requests: &[Wanted]) -> usize {
        (1..100)
            .find(|_| {
                self.run(requests);
                !self.all.has_postponed()
            })
            .unwrap()
    }

    /// How many of the expressions are compiled and evaluated.
    fn n_known(&self, requests: &[Wanted]) -> usize {
        let expressions = requests.iter().flat_map(|request| &request.selectors);
        let names = expressions.filter_map(|Selector(name)| name.as_ref());
        let known = names.filter_map(|name| self.selectors.get(name));
        known.filter(|verdicts| !matches!(verdicts, Verdicts::Postponed(_))).count()
    }
}

#[test]
fn a_claim_that_excludes_devices_by_their_ids_is_decided_after_some_cycles() {
    let excludes =
        |n: usize| wanted((0..n).map(|at| format!("device.attributes['d'].id != 'GPU-{at:036}'")));
    for (n_selectors, n_cycles) in [(1, 1), (3, 2), (32, 13)] {
        let mut cycles = Cycles::new(&unlike_devices());
        let request = excludes(n_selectors);
        let found = cycles.until_decided(std::slice::from_ref(&request));
        assert_eq!(found, n_cycles, "{n_selectors} selectors");
        let (_, rows) = cycles.run(&[request]);
        let matching = cycles.all.get(rows[0]);
        let matches = |at: usize| matching.of(DeviceIdx::new(at)) == Match::Yes;
        assert!((0..n_selectors).all(|at| !matches(at)));
        assert!((n_selectors..MANY).all(matches));
    }
}

#[test]
fn an_expression_that_takes_more_than_a_cycle_is_continued_in_the_next() {
    let mut cycles = Cycles::new(&unlike_devices());
    let request = wanted(["device.attributes['d'].id.matches('7.*7|9.*9')".to_owned()]);
    let n_cycles = cycles.until_decided(std::slice::from_ref(&request));
    assert!((2..=5).contains(&n_cycles), "{n_cycles} cycles");
    let (_, rows) = cycles.run(&[request]);
    for at in 0..MANY {
        let id = format!("GPU-{at:036}");
        let is_twice = |digit| id.matches(digit).count() > 1;
        let expected = if is_twice('7') || is_twice('9') { Match::Yes } else { Match::No };
        assert_eq!(cycles.all.get(rows[0]).of(DeviceIdx::new(at)), expected, "{id}");
    }
}

#[test]
fn compiling_uses_up_the_budget_of_a_cycle() {
    let mut cycles = Cycles::new(&unlike_devices());
    for pattern in ["^.{1,500}$", "a?a?a?a?a?a?a?a?".repeat(60).as_str()] {
        let expression = |n: usize| format!("'{n}'.matches('{pattern}') && {n} > 0");
        let requests: Vec<Wanted> = (0..100).map(|n| wanted([expression(n)])).collect();
        cycles.run(&requests);
        let n_known = cycles.n_known(&requests);
        assert!((1..=3).contains(&n_known), "{n_known} for {pattern}");
    }
}

#[test]
fn expressions_that_need_much_on_each_device_leave_nothing_for_others() {
    let mut cycles = Cycles::new(&unlike_devices());
    let costly = |n: usize| {
        wanted([format!("device.attributes['d'].id != '' && lists.range(30).all(x, x < {n} + 30)")])
    };
    let requests: Vec<Wanted> = (0..100).map(costly).collect();
    let (budget, _) = cycles.run(&requests);
    assert_eq!((budget, cycles.n_known(&requests)), (0, 0));
}

#[test]
fn a_value_that_is_too_large_to_be_made_takes_no_more_than_the_limit() {
    let mut cycles = Cycles::new(&unlike_devices());
    let text = "lists.range(9223372036854775807).size() > 0 && device.attributes['d'].id != ''";
    assert_eq!(cycles.until_decided(&[wanted([text.to_owned()])]), 4);
}

#[test]
fn names_that_no_device_has_take_neither_time_nor_memory() {
    let mut cycles = Cycles::new(&unlike_devices());
    let before = cycles.run(&[]).0;
    let terms: Vec<String> =
        (0..300).map(|n| format!("'x' in device.attributes.d.?a{n}.orValue([])")).collect();
    let (after, _) = cycles.run(&[wanted([terms.join(" || ")])]);
    assert!(!cycles.all.has_postponed());
    // Compiling 14 KB takes most of it: 10240 devices are one group.
    assert!(before - after < 700_000, "{}", before - after);
}
