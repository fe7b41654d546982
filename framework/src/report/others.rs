//! How other jobs and queues keep a job waiting: computed at the end of a cycle, for the reports. No decision reads it.
//!
//! What takes long is bounded: nodes are compared for the first classes only, and pods are looked at once for all of them,
//! and once for each resource of which a queue below its share is short.
// Parity: new, see docs/parity.md#e10.

mod claims;
mod nodes;
mod queues;
mod short;

use std::{cmp::Reverse, collections::BTreeMap, sync::Arc};

use kube_batch_model::{
    column::{ClassIdx, Dim, JobIdx, NodeIdx, QueueIdx},
    name::Name,
    others::{Others, QueueUse, SelectedNodes, Shortage},
    reason::{FitReport, NodeReason},
    resource::is_extended_resource,
    status::TaskStatus,
};

use self::{
    claims::{DevicesInUse, wanted_devices, wanted_volume},
    nodes::{NodesForClass, UseByJob, compare_nodes, kept_room, selected_nodes, shortage, uses_on},
    queues::{Borrowers, queue_use},
    short::Short,
};
use crate::session::{Leaving, Session};

/// Finds out how other jobs and queues keep each job waiting.
pub(super) fn find(session: &mut Session) {
    session.leaving = leaving(session);
    let waiting: Vec<(JobIdx, Option<Short>)> =
        session.waiting_jobs().map(|job| (job, what_is_short(session, job))).collect();
    if waiting.is_empty() {
        return;
    }
    let n_before = n_before(session, waiting.iter().map(|(job, _)| *job));
    let nodes = compare_nodes(session, waiting.iter().filter_map(|(_, short)| *short));
    let uses = uses_on(session, &nodes);
    let mut known = Known::default();
    let mut others = BTreeMap::new();
    for (job, short) in waiting {
        let mut own = Others {
            selected: selected_nodes(session, job, &mut known.selected),
            devices: wanted_devices(session, job, &mut known.devices),
            volume: wanted_volume(session, job),
            ..Others::default()
        };
        if let Some(short) = short {
            let of_nodes = nodes.get(&short);
            own.short = Some(known.shortage(session, job, short, of_nodes, &uses));
            own.kept = of_nodes.and_then(|nodes| kept_room(session, job, nodes.kept?));
            own.queue = known.queue_use(session, job, short.dim);
            own.n_before = n_before.get(&job).copied().unwrap_or_default();
        }
        if !own.are_none() {
            others.insert(job, Arc::new(own));
        }
    }
    session.others = others;
}

/// The pods that are being terminated, by node, if jobs wait for some.
fn leaving(session: &Session) -> BTreeMap<NodeIdx, Leaving> {
    let cluster = session.cluster();
    let mut leaving: BTreeMap<NodeIdx, Leaving> = BTreeMap::new();
    if session.kept.is_empty() {
        return leaving;
    }
    // A task that this cycle evicts was not being terminated before.
    let evicted = session.evicted.iter().map(|(task, _)| *task);
    for task in cluster.terminating.keys().copied().chain(evicted) {
        let placement = cluster.tasks.placement[task];
        let Some(node) = placement.node.filter(|_| placement.status == TaskStatus::Releasing)
        else {
            continue;
        };
        let end = cluster.tasks.facts[task].terminates_at;
        let on_node = leaving.entry(node).or_insert(Leaving { n_pods: 0, end });
        on_node.n_pods += 1;
        on_node.end = on_node.end.zip(end).map(|(one, other)| one.max(other));
    }
    leaving
}

/// What several jobs have in common.
#[derive(Default)]
struct Known {
    selected: BTreeMap<ClassIdx, SelectedNodes>,
    devices: DevicesInUse,
    borrowers: BTreeMap<Dim, Borrowers>,
    queues: BTreeMap<(QueueIdx, Dim), Option<Arc<QueueUse>>>,
    /// By the namespace of those who read them.
    shortages: BTreeMap<(Short, Name), Arc<Shortage>>,
}

impl Known {
    fn shortage(
        &mut self,
        session: &Session,
        job: JobIdx,
        short: Short,
        nodes: Option<&NodesForClass>,
        uses: &BTreeMap<(NodeIdx, Dim), UseByJob>,
    ) -> Arc<Shortage> {
        let namespace = session.cluster().jobs.key[job].object().namespace.clone();
        let known = self.shortages.entry((short, namespace));
        Arc::clone(known.or_insert_with(|| Arc::new(shortage(session, job, short, nodes, uses))))
    }

    fn queue_use(&mut self, session: &Session, job: JobIdx, dim: Dim) -> Option<Arc<QueueUse>> {
        let Self { borrowers, queues, .. } = self;
        let queue = session.cluster().jobs.queue[job]?;
        let known = queues.entry((queue, dim)).or_insert_with(|| {
            let borrowers = borrowers.entry(dim).or_insert_with(|| Borrowers::of(session, dim));
            queue_use(session, queue, dim, borrowers).map(Arc::new)
        });
        known.clone()
    }
}

/// The resource of which the pods of a job are short on most nodes, and the first of its classes that requests it.
fn what_is_short(session: &Session, job: JobIdx) -> Option<Short> {
    let cluster = session.cluster();
    let report = session.failure(job)?.fit_report()?;
    let dim = scarcest(report).and_then(|resource| cluster.dimensions.get(resource))?;
    let mut waiting = cluster.jobs.tasks[job].iter().filter(|task| cluster.is_waiting(*task));
    let task = waiting.find(|task| cluster.request(*task).get(dim) > 0)?;
    Some(Short { class: cluster.tasks.class[task], dim })
}

/// The resource that most nodes lack; of several, extended ones count first.
fn scarcest(report: &FitReport) -> Option<&Name> {
    let lacking = report.refused().iter().filter_map(|nodes| {
        let NodeReason::Insufficient(resource) = &nodes.reason else { return None };
        Some((nodes.n_nodes, resource))
    });
    let key = |(n_nodes, resource): &(usize, &Name)| (*n_nodes, is_extended_resource(resource));
    // Of equal ones, the first in name order.
    lacking.rev().max_by_key(key).map(|(_, resource)| resource)
}

/// For each of these jobs, how many of them are before it: of the same queue, with a higher priority, or as high and older.
fn n_before(session: &Session, jobs: impl Iterator<Item = JobIdx>) -> BTreeMap<JobIdx, u32> {
    let cluster = session.cluster();
    let mut of_queues: BTreeMap<QueueIdx, Vec<(Reverse<i32>, JobIdx)>> = BTreeMap::new();
    for job in jobs.filter(|job| session.ready(*job).n_missing() > 0) {
        if let Some(queue) = cluster.jobs.queue[job] {
            of_queues.entry(queue).or_default().push((Reverse(cluster.jobs.priority[job]), job));
        }
    }
    of_queues.values_mut().for_each(|jobs| jobs.sort_unstable());
    let ranked = of_queues.values().flat_map(|jobs| (0_u32..).zip(jobs));
    ranked.map(|(n_before, (_, job))| (*job, n_before)).collect()
}
