//! Amounts of an outcome, in units of people.

use std::collections::{BTreeMap, BTreeSet};

use kube_batch_model::{
    people,
    resource::{CPU, MEMORY, PODS, ResourceList},
};
use kube_batch_sim::outcome::{ClusterOutcome, Outcome};

/// What follows the name of a class of devices in the name of the resource that stands for them.
const DEVICES_OF_CLASS: &str = ".deviceclass.resource.kubernetes.io/devices";

/// Quantities as amounts.
pub(super) fn read(quantities: &BTreeMap<String, String>) -> ResourceList {
    let quantities = quantities.iter().map(|(name, quantity)| (&**name, &**quantity)).collect();
    ResourceList::of_limits(&quantities).expect("the simulation wrote them")
}

/// What is used of what there is: `3/8`.
pub(super) fn parts(resource: &str, used: &ResourceList, all: &ResourceList) -> String {
    people::part(resource, used.get(resource), all.get(resource))
}

/// Amounts of some resources: `48 GPUs, 12 cpu`.
pub(super) fn of(quantities: &BTreeMap<String, String>, resources: &[String]) -> String {
    let amounts = read(quantities);
    let has_one = |name: &&String| quantities.contains_key(&***name);
    let shown = resources.iter().filter(has_one);
    let named = |name: &String| match name.strip_suffix(DEVICES_OF_CLASS) {
        Some(class) => format!("{} {class}", people::amount(name, amounts.get(name))),
        None => people::named(name, amounts.get(name)),
    };
    let shown: Vec<String> = shown.map(named).collect();
    if shown.is_empty() { "-".to_owned() } else { shown.join(", ") }
}

/// Resources other than CPU, memory and pods that some node has and is not merely a default of
/// Kubernetes, or that some pod uses: each has a column.
pub(super) fn other_resources(outcome: &Outcome) -> BTreeSet<String> {
    let ClusterOutcome { allocatable, utilization, .. } = &outcome.cluster;
    let is_shown = |name: &&String| {
        let is_used = utilization.get(*name).is_some_and(|used| *used > 0.0);
        let is_there = allocatable.get(*name).is_some_and(|amount| amount != "0");
        // Extended resources have a domain; storage and huge pages are on every node.
        ![CPU, MEMORY, PODS].contains(&name.as_str())
            && (is_used || (is_there && name.contains('/')))
    };
    allocatable.keys().chain(utilization.keys()).filter(is_shown).cloned().collect()
}

/// What partitions of devices are counted in, beside the devices of their classes.
const PHYSICAL_DEVICES: &str = "/physical-devices";

/// How many resources the table of queues shows at most.
const MAX_RESOURCES: usize = 2;

/// The resources that queues divide: the one of which most is requested of what there is, and another of which more is
/// requested than there is.
pub(super) fn contended(outcome: &Outcome) -> Vec<String> {
    let all = read(&outcome.cluster.allocatable);
    let mut requested = ResourceList::default();
    for queue in outcome.queues.iter().filter(|queue| queue.parent.is_none()) {
        for (name, amount) in read(&queue.requested).iter() {
            requested.set(name, requested.get(name).saturating_add(amount));
        }
    }
    let part = |name: &str| requested.get(name) as f64 / (all.get(name).max(1)) as f64;
    let is_shown = |name: &str| name != PODS && !name.ends_with(PHYSICAL_DEVICES);
    let names = requested.iter().filter(|(name, amount)| *amount > 0 && is_shown(name));
    let mut names: Vec<String> = names.map(|(name, _)| name.to_string()).collect();
    // Of equal ones devices come first, because they are what teams share.
    names.sort_by(|l, r| {
        part(r).total_cmp(&part(l)).then_with(|| (!l.contains('/'), l).cmp(&(!r.contains('/'), r)))
    });
    let is_short = |(at, name): &(usize, String)| *at == 0 || part(name) > 1.0;
    let shown = names.into_iter().enumerate().filter(is_short).map(|(_, name)| name);
    shown.take(MAX_RESOURCES).collect()
}
