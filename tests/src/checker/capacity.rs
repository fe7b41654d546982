//! What fits on a node.

use std::collections::BTreeMap;

use kube_batch_model::{
    decision::EvictReason,
    name::{Name, ObjectKey},
};

use super::view::{Eviction, Node, Pod, View};

/// Amounts by resource; an amount of a pod may be the largest that fits into 64 bits.
type Amounts<'p> = BTreeMap<&'p str, i128>;

/// Bound pods fit into what no pod holds; bound and nominated pods fit together once those that leave have
/// left.
pub(super) fn no_node_is_over_committed(view: &View<'_>) -> Vec<String> {
    let mut problems = Vec::new();
    for (name, node) in &view.nodes {
        let Node { present, bound, nominated, .. } = node;
        let now = present.iter().chain(bound).copied();
        if let Some(excess) = excess(view, node, bound, now) {
            problems.push(format!("node {name} is over-committed by bindings: {excess}"));
        }
        if let Some(excess) = excess(view, node, nominated, later(node)) {
            problems.push(format!("node {name} is over-committed by nominations: {excess}"));
        }
    }
    problems
}

/// No victim could stay: without the eviction of one unit, the nominated pods would not all fit on their
/// nodes. A unit is one pod, or a whole gang.
///
/// Victims that leave for a queue with a capability are not checked: it may be what they leave for.
pub(super) fn no_victim_could_stay(view: &View<'_>) -> Vec<String> {
    let units = victims(view);
    let needless = units.iter().filter(|unit| could_stay(view, unit));
    needless
        .map(|unit| format!("{} could stay: no nominated pod needs it", names(view, unit)))
        .collect()
}

fn victims<'p>(view: &View<'p>) -> Vec<Vec<&'p Pod<'p>>> {
    let mut units = Vec::new();
    let mut of_composites: BTreeMap<&ObjectKey, Vec<&Pod<'_>>> = BTreeMap::new();
    for job in view.jobs.values() {
        let is_victim = |pod: &&Pod<'_>| {
            pod.eviction().is_some_and(|eviction| {
                eviction.reason != EvictReason::StaleGang && !has_capability(view, eviction.queue)
            })
        };
        let victims: Vec<&Pod<'_>> = job.evicted().filter(is_victim).collect();
        if victims.is_empty() {
            continue;
        }
        if let Some(root) = job.composites.last().filter(|_| job.leaves_whole()) {
            of_composites.entry(&root.key).or_default().extend(victims);
        } else if job.leaves_whole() {
            units.push(victims);
        } else {
            units.extend(victims.into_iter().map(|victim| vec![victim]));
        }
    }
    units.extend(of_composites.into_values());
    units
}

fn has_capability(view: &View<'_>, name: &Name) -> bool {
    let mut queues = view.store.queues.values().filter(|queue| queue.name == *name);
    queues.any(|queue| !queue.capability.is_empty())
}

fn names(view: &View<'_>, unit: &[&Pod<'_>]) -> String {
    let first = unit[0].key();
    if unit.len() == 1 {
        format!("evicted pod {first}")
    } else {
        format!(
            "evicted gang of {} ({first} and {} more)",
            unit[0].facts.job_key(view.store.served()),
            unit.len() - 1
        )
    }
}

fn could_stay(view: &View<'_>, unit: &[&Pod<'_>]) -> bool {
    let mut by_node: BTreeMap<&Name, Vec<&Pod<'_>>> = BTreeMap::new();
    for pod in unit {
        if let Some(node) = pod.present_on() {
            by_node.entry(node).or_default().push(pod);
        }
    }
    let decided = unit.iter().filter_map(|pod| Some(pod.eviction()?.at)).max();
    // Later evictions for other jobs were not known when the unit was chosen.
    let is_later = |pod: &&&Pod<'_>| {
        let others = |eviction: &Eviction<'_>| {
            Some(eviction.at) > decided
                && !unit.iter().any(|own| own.eviction().is_some_and(|own| own.by == eviction.by))
        };
        pod.eviction().as_ref().is_some_and(others)
    };
    by_node.into_iter().all(|(name, staying)| {
        let node = &view.nodes[name];
        // A victim may have to leave because of its ports, its volumes or its rules.
        let matter_alone = staying.iter().chain(&node.nominated).all(|pod| has_only_amounts(pod));
        let all = later(node).chain(staying).chain(node.present.iter().filter(is_later).copied());
        matter_alone && excess(view, node, &node.nominated, all).is_none()
    })
}

fn has_only_amounts(pod: &Pod<'_>) -> bool {
    let template = &pod.facts.template;
    [
        template.pod_terms.is_empty(),
        template.spread.is_empty(),
        template.host_ports.is_empty(),
        template.claims.is_empty(),
        pod.facts.device_claims.is_empty() && template.extended.is_empty(),
        template.disks.is_empty(),
    ]
    .iter()
    .all(|is_empty| *is_empty)
}

/// The pods of a node after everything that was decided has happened.
fn later<'n, 'p>(node: &'n Node<'p>) -> impl Iterator<Item = &'p Pod<'p>> + use<'n, 'p> {
    let Node { present, bound, nominated, .. } = node;
    let staying = present.iter().filter(|pod| !pod.leaves());
    staying.chain(bound).chain(nominated).copied()
}

/// The first resource that `placed` pods request and of which `all` pods together request more than the
/// node has. Of other resources, the node may have had too little before.
fn excess<'p>(
    view: &View<'_>,
    node: &Node<'_>,
    placed: &[&'p Pod<'p>],
    all: impl Iterator<Item = &'p Pod<'p>>,
) -> Option<String> {
    if placed.is_empty() {
        return None;
    }
    let requested = sum(placed.iter().copied());
    let held = sum(all);
    let has = |resource: &str| i128::from(node.facts.allocatable.get(resource));
    let too_much =
        |(resource, amount): &(&&str, &i128)| **amount > 0 && held[*resource] > has(resource);
    // A class of devices may stand for a resource that the node does not advertise.
    let is_counted = |(resource, _): &(&&str, &i128)| {
        let mut classes = view.store.device_classes.values();
        has(resource) > 0 || !classes.any(|class| class.stands_for(resource))
    };
    let (resource, _) = requested.iter().filter(is_counted).find(too_much)?;
    Some(format!("{} {resource} of {}", held[resource], has(resource)))
}

fn sum<'p>(pods: impl Iterator<Item = &'p Pod<'p>>) -> Amounts<'p> {
    let mut sum = Amounts::new();
    for pod in pods {
        for (resource, amount) in pod.facts.template.request.iter() {
            *sum.entry(resource.as_str()).or_default() += i128::from(amount);
        }
    }
    sum
}
