//! Devices and the claims for them.

use std::collections::{BTreeMap, BTreeSet};

use kube_batch_model::{
    decision::DeviceChoice,
    facts::{
        device::{
            DeviceId,
            claim::{Allocation, DeviceResult},
            request::{AllocationMode, Alternatives, ClaimSpec, DeviceRequest},
            slice::{DeviceNodes, SliceNodes},
        },
        node::NodeFacts,
    },
    name::{Name, ObjectKey},
    selector::NodeTerm,
};

use super::view::{Pod, View};

/// The allocation of each claim that the cycle allocates. Several pods may share one.
fn new_allocations<'p>(
    view: &View<'p>,
    problems: &mut Vec<String>,
) -> BTreeMap<&'p ObjectKey, &'p Allocation> {
    let mut allocations: BTreeMap<&ObjectKey, &Allocation> = BTreeMap::new();
    for DeviceChoice { claim, allocation, .. } in view.pods.iter().flat_map(|pod| pod.devices) {
        let Some(allocation) = allocation else { continue };
        if known_allocation(view, claim).is_some() {
            problems.push(format!("claim {claim} is allocated, and is allocated again"));
        }
        if allocations.insert(claim, allocation).is_some_and(|other| other != allocation) {
            problems.push(format!("claim {claim} is allocated twice, and not the same"));
        }
    }
    allocations
}

fn known_allocation<'p>(view: &View<'p>, claim: &ObjectKey) -> Option<&'p Allocation> {
    view.store.resource_claims.get(claim)?.allocation.as_ref()
}

/// A device that the cycle gives to a claim for itself is not given to another, and no other has it.
pub(super) fn devices_are_given_once(view: &View<'_>) -> Vec<String> {
    let mut problems = Vec::new();
    let new = new_allocations(view, &mut problems);
    let known = view.store.resource_claims.values();
    let known = known.filter_map(|claim| Some((&claim.key, claim.allocation.as_ref()?)));
    let results = |(claim, allocation): (&'_ ObjectKey, &'_ Allocation)| {
        allocation.exclusive().map(|id| (id.clone(), claim.clone())).collect::<Vec<_>>()
    };
    let mut holders: BTreeMap<DeviceId, ObjectKey> = known.flat_map(results).collect();
    for (id, claim) in new.into_iter().flat_map(results) {
        if let Some(other) = holders.insert(id.clone(), claim.clone()) {
            problems.push(format!("device {id} of claim {claim} is that of claim {other}"));
        }
    }
    problems
}

/// Every claim of a pod that is bound is allocated, and its node can use the devices. They are as many as the claim
/// requests, and they are published.
pub(super) fn bound_pods_have_devices(view: &View<'_>) -> Vec<String> {
    let new = new_allocations(view, &mut Vec::new());
    let mut problems = Vec::new();
    for pod in view.pods {
        let Some(node) = pod.bound_to().and_then(|node| view.nodes.get(node)) else { continue };
        let mut problem = |claim: &ObjectKey, what: &str| {
            problems.push(format!("pod {} is bound, and its claim {claim} {what}", pod.key()));
        };
        let keys: BTreeSet<ObjectKey> = pod.facts.claim_keys().collect();
        for key in &keys {
            let Some(claim) = view.store.resource_claims.get(key) else {
                problem(key, "does not exist");
                continue;
            };
            let Some(allocation) = known_allocation(view, key).or(new.get(key).copied()) else {
                problem(key, "is not allocated");
                continue;
            };
            if !reaches(allocation, node.facts) {
                problem(key, "has devices of another node");
            }
            let Some(allocation) = new.get(key) else { continue };
            problems_of_new(view, node.facts, &claim.spec, allocation)
                .into_iter()
                .for_each(|what| problem(key, what));
        }
        let made = pod.devices.iter().filter_map(|choice| {
            let spec = &choice.new.as_ref()?.spec;
            Some((&choice.claim, spec, choice.allocation.as_ref()))
        });
        for (key, spec, allocation) in made.clone() {
            let what = allocation.map(|own| problems_of_new(view, node.facts, spec, own));
            what.unwrap_or_else(|| vec!["is not allocated"])
                .into_iter()
                .for_each(|what| problem(key, what));
        }
        if needs_extended_claim(view, pod, node.facts) && made.count() != 1 {
            problems.push(format!("pod {} gets no extended resource", pod.key()));
        }
    }
    problems
}

/// What is wrong with an allocation that the cycle has made.
fn problems_of_new(
    view: &View<'_>,
    node: &NodeFacts,
    spec: &ClaimSpec,
    allocation: &Allocation,
) -> Vec<&'static str> {
    let mut problems = Vec::new();
    if !allocation.results.iter().all(|result| is_published(view, node, result)) {
        problems.push("has a device that the node does not have");
    }
    if !spec.requests.iter().all(|request| has_count(request, &allocation.results)) {
        problems.push("has more or fewer devices than it requests");
    }
    problems
}

/// Whether a request got as many devices as it wants.
fn has_count(request: &DeviceRequest, results: &[DeviceResult]) -> bool {
    let count =
        |name: &str| results.iter().filter(|result| &*result.request == name).count() as u64;
    let has = |name: &str, mode: &AllocationMode| match mode {
        AllocationMode::ExactCount(n) => count(name) == *n,
        AllocationMode::All => count(name) > 0,
        AllocationMode::Unknown(_) => false,
    };
    match &request.alternatives {
        Alternatives::Exactly(wanted) => has(&request.name, &wanted.mode),
        Alternatives::FirstAvailable(list) => {
            list.iter().any(|(name, wanted)| has(&format!("{}/{name}", request.name), &wanted.mode))
        }
        Alternatives::Unknown => false,
    }
}

/// Whether a slice publishes a device for a node.
fn is_published(view: &View<'_>, node: &NodeFacts, result: &DeviceResult) -> bool {
    let DeviceId { driver, pool, device } = &result.id;
    view.store.resource_slices.values().any(|slice| {
        let reaches = match &slice.nodes {
            SliceNodes::All(nodes) => is_for(nodes, node),
            SliceNodes::PerDevice => true,
        };
        reaches
            && (&slice.driver, &slice.pool) == (driver, pool)
            && slice.devices.iter().any(|own| own.name == *device)
    })
}

fn is_for(nodes: &DeviceNodes, node: &NodeFacts) -> bool {
    match nodes {
        DeviceNodes::None => false,
        DeviceNodes::Node(name) => *name == node.name,
        DeviceNodes::All => true,
        DeviceNodes::Selector(terms) => matches(terms, node),
    }
}

fn reaches(allocation: &Allocation, node: &NodeFacts) -> bool {
    allocation.nodes.as_ref().is_none_or(|terms| matches(terms, node))
}

fn matches(terms: &[NodeTerm], node: &NodeFacts) -> bool {
    terms.iter().any(|term| term.matches(&node.name, &node.labels))
}

/// Whether a pod requests a resource that a class of devices stands for and its node does not advertise.
fn needs_extended_claim(view: &View<'_>, pod: &Pod<'_>, node: &NodeFacts) -> bool {
    let is_of_class = |resource: &Name| {
        view.store.device_classes.values().any(|class| class.stands_for(resource))
    };
    let requests = pod.facts.template.extended.iter().flat_map(|container| &container.requests);
    let mut resources = requests.map(|request| &request.resource);
    resources.any(|name| is_of_class(name) && node.allocatable.get(name) == 0)
}
