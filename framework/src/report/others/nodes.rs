//! Which nodes come close to what a pod needs, which are kept for others, and which it selects.

use std::{cmp::Reverse, collections::BTreeMap};

use kube_batch_model::{
    cluster::{Capacity, Cluster},
    column::{ClassIdx, Dim, JobIdx, NodeIdx, TaskIdx},
    name::Name,
    others::{ClosestNode, KeptRoom, SelectedNodes, Shortage},
    reason::NodeReason,
    resource::ResourceVector,
    selector::Requirement,
    status::TaskStatus,
};

use super::short::{MAX_COMPARED, Short};
use crate::session::Session;

/// How many of the nodes that have most free are asked whether other rules admit the pod.
const MAX_CLOSEST: usize = 8;

/// With how many values of labels a pod may compare those of nodes: its owner decides about their number.
const MAX_VALUES: usize = 64;

/// How many labels that a pod requires are named.
const MAX_NAMED: usize = 3;

/// The nodes, as pods of one class see them that are short of one resource.
#[derive(Clone, Default)]
pub(super) struct NodesForClass {
    pub(super) closest: Option<NodeIdx>,
    pub(super) kept: Option<Kept>,
}

/// A node that has enough for the pods, which is kept for another job.
#[derive(Clone, Copy)]
pub(super) struct Kept {
    node: NodeIdx,
    /// How many more such nodes were found.
    n_more: u32,
    holder: JobIdx,
}

/// What each job uses on a node; `None` for pods without one.
pub(super) type UseByJob = BTreeMap<Option<JobIdx>, i64>;

/// Compares the nodes for the first of these.
pub(super) fn compare_nodes(
    session: &mut Session,
    shorts: impl Iterator<Item = Short>,
) -> BTreeMap<Short, NodesForClass> {
    let kept = kept_on_nodes(session);
    let mut compared: BTreeMap<Short, NodesForClass> = BTreeMap::new();
    for short in shorts {
        if compared.len() == MAX_COMPARED {
            break;
        }
        compared.entry(short).or_insert_with(|| nodes_for_class(session, short, &kept));
    }
    compared
}

/// What tasks hold on nodes whose moves are only kept: it is idle until they start.
fn kept_on_nodes(session: &Session) -> BTreeMap<NodeIdx, ResourceVector> {
    let cluster = session.cluster();
    let mut kept: BTreeMap<NodeIdx, ResourceVector> = BTreeMap::new();
    let jobs = session.jobs_with_kept_moves();
    for task in jobs.into_iter().flat_map(|job| session.kept_tasks(job)) {
        let placement = cluster.tasks.placement[task];
        if let Some(node) = placement.node.filter(|_| placement.status == TaskStatus::Allocated) {
            let zero = || ResourceVector::zero(cluster.dimensions.len());
            cluster.request(task).charge(kept.entry(node).or_insert_with(zero), 1);
        }
    }
    kept
}

fn nodes_for_class(
    session: &mut Session,
    Short { class, dim }: Short,
    kept: &BTreeMap<NodeIdx, ResourceVector>,
) -> NodesForClass {
    let cluster = session.cluster();
    let (nodes, request) = (&cluster.nodes, &cluster.classes.request[class]);
    let amount = request.get(dim);
    let mut close: Vec<(Reverse<i64>, NodeIdx)> = Vec::new();
    let mut with_kept = Vec::new();
    for node in nodes.facts.ids() {
        let free = nodes.available(node, dim, Capacity::Idle);
        if free >= amount || !request.fits_in(&nodes.allocatable[node]) {
            continue;
        }
        let idle = &nodes.idle[node];
        let with = |kept: &ResourceVector| -> Vec<i64> {
            idle.iter().zip(kept.iter()).map(|(idle, kept)| idle + kept).collect()
        };
        let fits_with = |kept: &ResourceVector| request.fits_in(&with(kept));
        if request.fits_in(idle) || kept.get(&node).is_some_and(fits_with) {
            with_kept.push(node);
        } else if free > 0 {
            close.push((Reverse(free), node));
        }
    }
    if close.len() > MAX_CLOSEST {
        close.select_nth_unstable(MAX_CLOSEST);
        close.truncate(MAX_CLOSEST);
    }
    close.sort_unstable();
    let mut search = session.search();
    let closest = close.into_iter().map(|(_, node)| node);
    let closest = closest.into_iter().find(|node| search.lacks_only_amounts(class, *node));
    with_kept.truncate(MAX_CLOSEST);
    with_kept.retain(|node| search.lacks_only_amounts(class, *node));
    let kept = with_kept.first().and_then(|node| {
        let n_more = with_kept.len() as u32 - 1;
        Some(Kept { node: *node, n_more, holder: holder(session, *node)? })
    });
    NodesForClass { closest, kept }
}

/// The job for which a node is kept.
fn holder(session: &Session, node: NodeIdx) -> Option<JobIdx> {
    let is_there = |task: TaskIdx| session.cluster().tasks.placement[task].node == Some(node);
    let mut nominated = session.jobs_with_kept_moves().into_iter();
    let mut reserved = session.reservations().iter();
    nominated
        .find(|job| session.kept_tasks(*job).any(is_there))
        .or_else(|| reserved.find(|own| own.amounts.contains_key(&node)).map(|own| own.job))
}

/// What jobs use of the resources on the closest nodes.
pub(super) fn uses_on(
    session: &Session,
    compared: &BTreeMap<Short, NodesForClass>,
) -> BTreeMap<(NodeIdx, Dim), UseByJob> {
    let cluster = session.cluster();
    let closest = compared.iter().filter_map(|(short, nodes)| Some((nodes.closest?, short.dim)));
    let mut uses: BTreeMap<(NodeIdx, Dim), UseByJob> =
        closest.map(|place| (place, UseByJob::new())).collect();
    if uses.is_empty() {
        return uses;
    }
    for (task, placement) in cluster.tasks.placement.iter() {
        let Some(node) = placement.node.filter(|_| placement.status.is_on_node()) else { continue };
        for ((_, dim), by_job) in
            uses.range_mut((node, Dim::CPU)..).take_while(|(at, _)| at.0 == node)
        {
            let amount = cluster.request(task).get(*dim);
            if amount > 0 {
                *by_job.entry(cluster.tasks.job[task]).or_default() += amount;
            }
        }
    }
    uses
}

pub(super) fn shortage(
    session: &Session,
    job: JobIdx,
    Short { class, dim }: Short,
    nodes: Option<&NodesForClass>,
    uses: &BTreeMap<(NodeIdx, Dim), UseByJob>,
) -> Shortage {
    let cluster = session.cluster();
    let closest = nodes.and_then(|nodes| nodes.closest).map(|node| {
        let by_job = &uses[&(node, dim)];
        let largest = by_job.iter().rev().max_by_key(|(_, used)| **used).map(|(job, _)| *job);
        ClosestNode {
            node: cluster.node_name(node).clone(),
            free: cluster.nodes.available(node, dim, Capacity::Idle),
            used: by_job.values().sum(),
            user: largest.flatten().and_then(|user| session.named_to(job, user)),
            n_more: (by_job.len() as u32).saturating_sub(1),
        }
    });
    Shortage {
        resource: cluster.dimensions.name(dim).clone(),
        requested: cluster.classes.request[class].get(dim),
        closest,
    }
}

/// For whom a node is kept, if that is another job.
pub(super) fn kept_room(session: &Session, job: JobIdx, kept: Kept) -> Option<KeptRoom> {
    let Kept { node, n_more, holder } = kept;
    let holder = Some(holder).filter(|holder| *holder != job)?;
    let node = session.cluster().node_name(node).clone();
    Some(KeptRoom { node, n_more, holder: session.named_to(job, holder)? })
}

/// The nodes that the first class of a job selects which requires labels, if that is a reason of nodes.
pub(super) fn selected_nodes(
    session: &Session,
    job: JobIdx,
    known: &mut BTreeMap<ClassIdx, SelectedNodes>,
) -> Option<SelectedNodes> {
    let cluster = session.cluster();
    let mut refused = session.failure(job)?.fit_report()?.refused().iter();
    refused.find(|nodes| nodes.reason == NodeReason::NodeAffinity)?;
    let waiting = cluster.jobs.tasks[job].iter().filter(|task| cluster.is_waiting(*task));
    let mut classes = waiting.map(|task| cluster.tasks.class[task]);
    let class = classes.find(|class| !required_labels(cluster, *class).is_empty())?;
    let n_values = |required: &Requirement| 1 + required.listed().map_or(0, <[Name]>::len);
    if required_labels(cluster, class).iter().map(n_values).sum::<usize>() > MAX_VALUES {
        return None;
    }
    if !known.contains_key(&class) && known.len() < MAX_COMPARED {
        known.insert(class, count_selected(cluster, class));
    }
    known.get(&class).cloned()
}

/// What a class requires of the labels of nodes, as far as it requires all of it.
fn required_labels(cluster: &Cluster, class: ClassIdx) -> Vec<Requirement> {
    let template = &cluster.classes.template[class];
    let pairs = template.node_selector.iter().cloned();
    let pairs = pairs.map(|(key, value)| Requirement::equals(key, value));
    let terms = template.node_affinity.as_deref().unwrap_or_default();
    let of_term = if let [term] = terms { term.expressions() } else { &[] };
    pairs.chain(of_term.iter().cloned()).collect()
}

fn count_selected(cluster: &Cluster, class: ClassIdx) -> SelectedNodes {
    let required = required_labels(cluster, class);
    let mut is_met = vec![false; required.len()];
    let mut n_nodes = 0;
    for facts in cluster.nodes.facts.values() {
        let mut meets_all = true;
        for (requirement, is_met) in required.iter().zip(&mut is_met) {
            let matches = requirement.matches(&facts.labels);
            *is_met |= matches;
            meets_all &= matches;
        }
        n_nodes += u32::from(meets_all);
    }
    let words = |requirement: &Requirement| Name::from(requirement.to_string());
    let unmet = required.iter().zip(is_met).find(|(_, is_met)| !is_met);
    SelectedNodes {
        requirements: required.iter().take(MAX_NAMED).map(words).collect(),
        unmet: unmet.map(|(requirement, _)| words(requirement)),
        n_nodes,
    }
}
