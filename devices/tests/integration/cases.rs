//! Cases whose expectations come from running Kubernetes 1.37.1: see `cases/README.md`.
#![expect(clippy::unwrap_used, reason = "a malformed case fails the test")]

use std::{collections::BTreeMap, fs, path::Path, sync::Arc};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::{
        core::v1::{Node, Pod},
        resource::v1::{
            DeviceClass, DeviceRequestAllocationResult, DeviceTaintRule, ResourceClaim,
            ResourceSlice,
        },
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube_batch_api::read::{
    self,
    device::claim::{api_allocation, entries},
    metadata::object_key,
};
use kube_batch_devices::{
    claims::{Claim, DeviceClasses},
    extended::{claim_for, class_for},
    inventory::Inventory,
    pod::{Readiness, readiness, resolve},
    result::score,
    search::{Devices, Refusal},
    selectors::Selectors,
    usage::{Held, Usage},
    wanted::AllWanted,
};
use kube_batch_model::{
    column::{Column, NodeIdx},
    devices::ExtendedClaim,
    facts::{
        device::{
            claim::{Allocation, ClaimEntry, ClaimSource, ResourceClaimFacts},
            request::{AllocationMode, Alternatives},
        },
        extended::ExtendedRequests,
        metadata::MetadataPrefixes,
        node::NodeFacts,
    },
    name::{Name, ObjectKey},
    selector::{Labels, NodeTerm},
};
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Case {
    name: String,
    #[serde(default)]
    gates: BTreeMap<String, bool>,
    #[serde(default)]
    nodes: Vec<Node>,
    #[serde(default)]
    device_classes: Vec<DeviceClass>,
    #[serde(default)]
    resource_slices: Vec<ResourceSlice>,
    #[serde(default)]
    device_taint_rules: Vec<DeviceTaintRule>,
    #[serde(default)]
    resource_claims: Vec<ResourceClaim>,
    #[serde(default)]
    pod_groups: Vec<Value>,
    /// Pods that were given devices on a node just before.
    #[serde(default)]
    before: Vec<Before>,
    pod: Pod,
    expect: Expect,
}

#[derive(Debug, Deserialize)]
struct Before {
    pod: Pod,
    node: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Expect {
    #[serde(default)]
    skipped: bool,
    #[serde(default)]
    fits: BTreeMap<String, bool>,
    #[serde(default)]
    reason: BTreeMap<String, String>,
    #[serde(default)]
    attempt_fails: Value,
    #[serde(default)]
    allocations: BTreeMap<String, BTreeMap<String, Value>>,
    #[serde(default)]
    raw_scores: BTreeMap<String, i64>,
}

/// Cases in which we decide otherwise, with the reason. Each must differ.
const DIFFERENT: &[(&str, &str)] = &[
    (
        "claims/being-written",
        "a claim that is being written can be shared, on the node of its devices",
    ),
    ("claims/same-claim-twice", "a claim that two entries name is allocated once"),
    (
        "consumable-capacity/request-too-large-to-round",
        "the message has the largest quantity instead of 10E: larger ones are capped when they are read",
    ),
];

/// Feature gates that are off in Kubernetes 1.37 unless they are switched on. A case that needs one must
/// differ, or the gate makes no difference to it.
const GATES_LEFT_OUT: &[&str] = &[
    "DRAListTypeAttributes",
    "DRADerivedAttributes",
    "DRADeviceCompatibilityGroups",
    "DRAOptionalNodeOperations",
    "DRAFractionalCapacityRange",
    "DRANodeAllocatableResources",
];

/// Cases that need one of these gates, and in which it makes no difference.
const SAME_WITHOUT_GATE: &[&str] = &[
    "alpha-gates/groups-none",
    "alpha-gates/list-distinct",
    "alpha-gates/list-includes",
    "alpha-gates/list-match-narrows",
];

/// The outcome of a case: for each node, the allocations or why there are none.
type Outcome = BTreeMap<String, Result<BTreeMap<String, Value>, String>>;

fn cases() -> Vec<(String, Case)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut files: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let mut cases = Vec::new();
    for path in files.iter().filter(|path| path.extension().is_some_and(|ext| ext == "yaml")) {
        let file = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let text = fs::read_to_string(path).unwrap();
        let of_file: Vec<Case> =
            serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{file}: {error}"));
        cases.extend(of_file.into_iter().map(|case| (format!("{file}/{}", case.name), case)));
    }
    cases
}

/// Namespace and uid, which the cases leave out.
fn fill(meta: &mut ObjectMeta) {
    meta.uid = meta.uid.take().or(meta.name.clone());
    meta.namespace.get_or_insert_with(|| "default".to_owned());
}

/// The objects of a case.
struct World {
    nodes: Column<NodeIdx, Arc<NodeFacts>>,
    classes: DeviceClasses,
    claims: BTreeMap<Name, Arc<ResourceClaimFacts>>,
    inventory: Inventory,
}

/// The pod of a case, and what it needs.
struct PodToPlace {
    key: ObjectKey,
    uid: Name,
    /// The uid of its PodGroup.
    group: Name,
    entries: Vec<ClaimEntry>,
    containers: Vec<ExtendedRequests>,
}

impl PodToPlace {
    fn new(case: &Case, pod: &Pod) -> Self {
        let mut pod = pod.clone();
        fill(&mut pod.metadata);
        let key = object_key("Pod", &pod.metadata).unwrap();
        let labels = Labels::default();
        let template = read::template(&pod, &key, &labels, &MetadataPrefixes::default());
        let containers = template.unwrap().extended;
        let uid = Name::from(pod.metadata.uid.as_deref().unwrap());
        let group = pod.spec.as_ref().and_then(|spec| spec.scheduling_group.as_ref());
        let name = group.and_then(|group| group.pod_group_name.as_deref());
        let mut groups = case.pod_groups.iter().map(|group| &group["metadata"]);
        let group = groups.find(|meta| meta["name"].as_str() == name);
        let uid_of_group = group.and_then(|meta| meta["uid"].as_str().or(name));
        let group = Name::from(uid_of_group.unwrap_or_default());
        Self { key, uid, group, entries: entries(&pod), containers }
    }
}

/// The allocations of a pod on a node, by claim, and what is written besides for extended resources.
#[derive(Default)]
struct Given {
    claims: Vec<(Name, Allocation)>,
    extended: Option<(String, ExtendedClaim)>,
    score: i64,
}

impl World {
    fn new(case: &Case) -> Self {
        let nodes = case.nodes.iter().map(|node| Arc::new(read::node(node).unwrap()));
        let nodes: Column<NodeIdx, Arc<NodeFacts>> = nodes.collect();
        let slices = case.resource_slices.iter();
        let slices: Vec<_> = slices.map(|slice| Arc::new(read::slice(slice).unwrap())).collect();
        let rules = case.device_taint_rules.iter();
        let rules: Vec<_> = rules.map(|rule| Arc::new(read::taint_rule(rule).unwrap())).collect();
        let classes = case.device_classes.iter();
        let classes = classes.map(|class| Arc::new(read::device_class(class).unwrap()));
        let claims = case.resource_claims.iter().map(|claim| {
            let mut claim = claim.clone();
            fill(&mut claim.metadata);
            let facts = read::resource_claim(&claim).unwrap();
            (facts.key.name.clone(), Arc::new(facts))
        });
        Self {
            inventory: Inventory::new(&nodes, &slices, &rules),
            classes: classes.map(|class| (class.name.clone(), class)).collect(),
            claims: claims.collect(),
            nodes,
        }
    }

    /// What a pod is given on each node; the outer error is for all nodes.
    #[expect(clippy::type_complexity, reason = "a table of answers")]
    fn place(&self, pod: &PodToPlace) -> Result<Vec<(Name, Result<Given, String>)>, String> {
        let owners = [&pod.uid, &pod.group];
        let resolved = resolve((&pod.key, &owners), &pod.entries, |name| self.claims.get(name))?;
        let (mut selectors, mut wanted) = (Selectors::default(), AllWanted::default());
        let mut new = Vec::new();
        for claim in resolved.iter().filter(|claim| claim.allocation.is_none()) {
            let tables = (&self.inventory, &mut selectors, &mut wanted);
            let ready = Claim::new(
                tables,
                &self.classes,
                (&claim.key.to_string(), &claim.spec),
                &mut u64::MAX.clone(),
            )?;
            new.push((claim.key.to_string(), ready));
        }
        let mut answers = Vec::new();
        for (node, facts) in self.nodes.iter() {
            let tables = (&mut selectors, &mut wanted);
            let answer = self.place_on((node, facts), pod, &resolved, new.clone(), tables);
            answers.push((facts.name.clone(), answer));
        }
        Ok(answers)
    }

    fn place_on(
        &self,
        (node, facts): (NodeIdx, &NodeFacts),
        pod: &PodToPlace,
        resolved: &[&Arc<ResourceClaimFacts>],
        mut new: Vec<(String, Claim)>,
        (selectors, wanted): (&mut Selectors, &mut AllWanted),
    ) -> Result<Given, String> {
        let is_advertised = |name: &Name| facts.allocatable.get(name) > 0;
        let extended = claim_for(&pod.containers, &self.classes, is_advertised)
            .map_err(|error| error.to_string())?;
        let is_left_over = |claim: &Arc<ResourceClaimFacts>| {
            claim.extended_for.is_some() && claim.controller.as_ref() == Some(&pod.uid)
        };
        if extended.is_some() && self.claims.values().any(is_left_over) {
            return Err("cannot schedule extended resource claim".to_owned());
        }
        let name = format!("default/{}-extended-resources-abcde", pod.key.name);
        if let Some(extended) = &extended {
            let spec = Arc::new(extended.spec.clone());
            let tables = (&self.inventory, &mut *selectors, &mut *wanted);
            new.push((
                name.clone(),
                Claim::new(tables, &self.classes, (&name, &spec), &mut u64::MAX.clone())?,
            ));
        }
        let mut usage = Usage::none(&self.inventory);
        let allocations = self.claims.values().filter_map(|claim| claim.allocation.as_ref());
        for allocation in allocations {
            usage.add(&self.inventory, &Held::of(&self.inventory, allocation));
        }
        let devices = Devices { inventory: &self.inventory, wanted, selectors, first: 0 };
        let claims: Vec<(&str, &Claim)> =
            new.iter().map(|(name, claim)| (name.as_str(), claim)).collect();
        let chosen = devices.choose(node, &claims, &[&usage]).map_err(|refusal| match refusal {
            Refusal::Insufficient => "cannot allocate all claims".to_owned(),
            Refusal::InvalidPools => "invalid resource pools were encountered".to_owned(),
            Refusal::TooComplex => "too complex".to_owned(),
            Refusal::Error(text) => text,
        })?;
        if resolved.iter().any(|claim| !is_available(claim, facts)) {
            return Err("resourceclaim not available on the node".to_owned());
        }
        let given = claims.iter().zip(&chosen).map(|((name, claim), chosen)| {
            let name = Name::from(name.rsplit('/').next().unwrap());
            (name, devices.allocation(claim, chosen, &facts.name))
        });
        let given: Vec<(Name, Allocation)> = given.collect();
        let scores =
            claims.iter().zip(&given).map(|((_, claim), (_, own))| score(&claim.spec, own));
        let of_allocated = resolved
            .iter()
            .filter_map(|claim| Some(score(&claim.spec, claim.allocation.as_ref()?)));
        Ok(Given {
            score: scores.chain(of_allocated).sum(),
            extended: extended.map(|claim| (name.replace("default/", ""), claim)),
            claims: given,
        })
    }

    /// Gives devices to a pod that was placed just before.
    fn place_before(&mut self, case: &Case, before: &Before) {
        let answers = self.place(&PodToPlace::new(case, &before.pod)).unwrap();
        let given =
            answers.into_iter().find(|(node, _)| **node == *before.node).unwrap().1.unwrap();
        for (name, allocation) in given.claims {
            let claim = Arc::make_mut(self.claims.get_mut(&name).unwrap());
            claim.allocation = Some(allocation);
        }
    }
}

/// Whether the devices of a claim can be used on a node.
fn is_available(claim: &ResourceClaimFacts, node: &NodeFacts) -> bool {
    let Some(allocation) = &claim.allocation else { return true };
    let matches = |term: &NodeTerm| term.matches(&node.name, &node.labels);
    let is_reachable = allocation.nodes.as_ref().is_none_or(|terms| terms.iter().any(matches));
    let now: Timestamp = "2026-11-01T00:00:00Z".parse().unwrap();
    let is_ready = readiness(claim, allocation, Some((now, SignedDuration::from_mins(10))));
    is_reachable && is_ready != Readiness::Failed
}

fn play(case: &Case) -> (Outcome, BTreeMap<String, i64>) {
    let mut world = World::new(case);
    case.before.iter().for_each(|before| world.place_before(case, before));
    let mut scores = BTreeMap::new();
    let outcome = match world.place(&PodToPlace::new(case, &case.pod)) {
        Err(text) => {
            let refused =
                |node: &Arc<NodeFacts>| (node.name.to_string(), Err(format!("prefilter: {text}")));
            world.nodes.values().map(refused).collect()
        }
        Ok(answers) => answers
            .into_iter()
            .map(|(node, answer)| {
                let shown = answer.map(|given| {
                    scores.insert(node.to_string(), given.score);
                    show(&given, &node)
                });
                (node.to_string(), shown)
            })
            .collect(),
    };
    (outcome, scores)
}

/// What a pod is given, in the form of the cases.
fn show(given: &Given, node: &Name) -> BTreeMap<String, Value> {
    let claims = given.claims.iter();
    let mut shown: BTreeMap<String, Value> =
        claims.map(|(name, own)| (name.to_string(), shown(own, node))).collect();
    if let Some((name, claim)) = &given.extended {
        show_extended(claim, name, &mut shown);
    }
    shown
}

/// Adds what is written besides the allocation for extended resources.
fn show_extended(claim: &ExtendedClaim, name: &str, allocations: &mut BTreeMap<String, Value>) {
    let requests = claim.spec.requests.iter().map(|request| {
        let Alternatives::Exactly(wanted) = &request.alternatives else {
            panic!("one alternative")
        };
        let AllocationMode::ExactCount(count) = wanted.mode else { panic!("a count") };
        json!({"name": *request.name, "deviceClassName": *wanted.class, "count": count})
    });
    allocations.get_mut(name).unwrap()["requests"] = requests.collect();
    let mappings = claim.mappings.iter().map(|mapping| {
        json!({
            "containerName": *mapping.container,
            "resourceName": *mapping.resource,
            "requestName": *mapping.request,
        })
    });
    let mappings: Value = mappings.collect();
    let status = json!({"resourceClaimName": name, "requestMappings": mappings});
    allocations.insert("extendedResourceClaimStatus".to_owned(), status);
}

/// An allocation in the form of the cases.
fn shown(allocation: &Allocation, node: &Name) -> Value {
    let api = api_allocation(allocation);
    let devices = api.devices.unwrap_or_default();
    let results: Vec<DeviceRequestAllocationResult> = devices.results.unwrap_or_default();
    let mut results = serde_json::to_value(results).unwrap();
    for result in results.as_array_mut().unwrap() {
        let result = result.as_object_mut().unwrap();
        if result.contains_key("shareID") {
            result.insert("shareID".to_owned(), "any".into());
        }
    }
    let mut shown = serde_json::Map::new();
    shown.insert("results".to_owned(), results);
    if let Some(config) = devices.config {
        shown.insert("config".to_owned(), serde_json::to_value(config).unwrap());
    }
    match api.node_selector {
        None => shown.insert("nodes".to_owned(), "all".into()),
        Some(_) if allocation.nodes == Some(vec![NodeTerm::of_node(node)]) => {
            shown.insert("nodes".to_owned(), node.to_string().into())
        }
        Some(selector) => {
            shown.insert("nodeSelector".to_owned(), serde_json::to_value(selector).unwrap())
        }
    };
    Value::Object(shown)
}

/// What Kubernetes decides, in the same form.
fn expected(case: &Case) -> Outcome {
    let expect = &case.expect;
    let mut outcome = Outcome::new();
    for (node, fits) in &expect.fits {
        let answer = if *fits {
            Ok(expect.allocations.get(node).cloned().unwrap_or_default())
        } else {
            Err(expect.reason.get(node).cloned().unwrap_or_default())
        };
        outcome.insert(node.clone(), answer);
    }
    let prefix = "running \"DynamicResources\" filter plugin: ";
    match &expect.attempt_fails {
        Value::Object(by_node) => {
            for (node, text) in by_node {
                let text = text.as_str().unwrap();
                let text = text.strip_prefix(prefix).unwrap_or(text);
                outcome.insert(node.clone(), Err(text.to_owned()));
            }
        }
        Value::String(text) => {
            for node in &case.nodes {
                let name = node.metadata.name.clone().unwrap();
                outcome.insert(name, Err(text.clone()));
            }
        }
        _ => {}
    }
    outcome
}

/// Without the words of cel-go.
fn normal(outcome: Outcome) -> Outcome {
    let cut = |text: String| {
        let at =
            ["CEL compile error:", "CEL result of type"].iter().find_map(|word| text.find(word));
        match at {
            Some(at) => text[..at + 12].to_owned(),
            None => text,
        }
    };
    outcome.into_iter().map(|(node, answer)| (node, answer.map_err(cut))).collect()
}

#[test]
fn devices_are_allocated_as_kubernetes_does() {
    let (mut failed, mut n_played) = (Vec::new(), 0);
    for (name, case) in cases() {
        n_played += 1;
        let (ours, scores) = play(&case);
        let (ours, theirs) = (normal(ours), normal(expected(&case)));
        let is_without_gate = case
            .gates
            .iter()
            .any(|(gate, is_on)| *is_on && GATES_LEFT_OUT.contains(&gate.as_str()));
        let differs = DIFFERENT.iter().any(|(different, _)| *different == name)
            || is_without_gate && !SAME_WITHOUT_GATE.contains(&name.as_str());
        let is_scored = case.expect.raw_scores.is_empty() || case.expect.raw_scores == scores;
        if (ours == theirs) == differs || !is_scored {
            eprintln!("{name}:\n  ours   {ours:?} {scores:?}\n  theirs {theirs:?}");
            failed.push(name);
        }
    }
    assert!(failed.is_empty(), "{} of {n_played} cases failed: {failed:?}", failed.len());
}

#[test]
fn only_pods_without_claims_are_skipped() {
    for (name, case) in cases() {
        let pod = PodToPlace::new(&case, &case.pod);
        let world = World::new(&case);
        let resources = pod.containers.iter().flat_map(|container| &container.requests);
        let mut resources = resources.map(|request| &request.resource);
        let needs_class = resources.any(|name| class_for(&world.classes, name).is_some());
        let mut entries = pod.entries.iter();
        let needs_claim = entries.any(|entry| entry.source != ClaimSource::NotNeeded);
        assert_eq!(!needs_claim && !needs_class, case.expect.skipped, "{name}");
    }
}
