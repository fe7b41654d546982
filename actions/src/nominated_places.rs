//! Nominated places are not locks: a job that would get them from running pods gets them from nominated ones.
//!
//! Nothing is lost when a nomination is dropped, so the minimum of a gang does not protect it. In its own queue, a job
//! takes places from jobs of lower priority, and from younger jobs of its own priority as long as it lacks its minimum:
//! drf shares out what is above the minimum, and a job that took one such place after the other would end that. Of
//! another queue, a job takes it if the nominations bring their queue above what it deserves, and the place does not
//! bring the queue of the job above that. As few nominations are dropped as possible, those of low priority and young
//! jobs first, and a job loses all of them or none. Jobs of composite PodGroups neither take places nor lose them.
//!
//! Upstream: none; a pipelined task is forgotten when the cycle ends.
// Parity: differs, see docs/parity.md#p1-nominations.

use std::{
    cmp::{Ordering, Reverse},
    collections::BTreeSet,
};

use kube_batch_framework::{failure::Failure, plugin::Capacity, session::Session};
use kube_batch_model::{
    cluster::Cluster,
    column::{JobIdx, NodeIdx, TaskIdx},
    resource::ResourceVector,
    status::{Placement, TaskStatus},
};

/// Which nominations may be dropped, and on what terms the job gets a place then.
#[derive(Clone, Debug)]
pub(crate) enum Terms {
    /// Those of its queue.
    Any,
    /// Also those of other queues: its queue then holds no more than it deserves of what the job requests.
    WithinDeserved,
    /// Those of its queue, which is overused: the queue then holds no more than before, and the job is on the nodes of
    /// what is dropped. On other nodes, lending refuses the job whether or not they are dropped.
    Instead {
        /// What the queue holds.
        before: ResourceVector,
        nodes: BTreeSet<NodeIdx>,
    },
}

impl Terms {
    /// Whether they are met once the job is placed. `placed` has the placements of this turn.
    pub(crate) fn are_met(
        &self,
        session: &Session,
        job: JobIdx,
        placed: &[(TaskIdx, Placement)],
    ) -> bool {
        let Some(queue) = session.cluster().jobs.queue[job] else { return false };
        match self {
            Self::Any => true,
            Self::WithinDeserved => !session.plugins().exceeds_deserved(queue, job, None),
            Self::Instead { before, nodes } => {
                let held = session.cluster().queues.held[queue].iter();
                held.zip(before.iter()).all(|(now, before)| now <= before)
                    && placed.iter().all(|(_, at)| at.node.is_some_and(|at| nodes.contains(&at)))
            }
        }
    }
}

/// A job and the places of its tasks.
type Dropped = (JobIdx, Vec<(TaskIdx, Placement)>);

/// Whether some other job has places that this one might take.
pub(crate) fn has_some(session: &Session, job: JobIdx) -> bool {
    !session.cluster().is_in_larger_gang(job)
        && session.jobs_with_kept_moves().iter().any(|other| *other != job)
}

/// Drops nominations of other jobs until `place` finds a place for the job on the terms that it gets. Returns whether
/// it does; otherwise everything is as before.
pub(crate) fn take(
    session: &mut Session,
    job: JobIdx,
    is_lent: bool,
    place: &mut dyn FnMut(&mut Session, &Terms) -> bool,
) -> bool {
    let Some(first) = session.waiting_tasks(job).first().copied() else { return false };
    let Some(queue) = session.cluster().jobs.queue[job] else { return false };
    let mut dropped: Vec<Dropped> = Vec::new();
    let mut terms = Terms::Any;
    if is_lent {
        let held = session.cluster().queues.held[queue].iter().copied();
        terms = Terms::Instead { before: held.collect(), nodes: BTreeSet::new() };
    }
    for other in candidates(session, job, first) {
        let is_of_own_queue = session.cluster().jobs.queue[other] == Some(queue);
        // What was dropped before may have brought its queue down to what it deserves.
        if is_lent && !is_of_own_queue || !may_take(session, job, first, other) {
            continue;
        }
        if !is_of_own_queue {
            terms = Terms::WithinDeserved;
        }
        let mut statement = session.statement(other);
        let places = statement.take_back_kept();
        statement.keep();
        if let Terms::Instead { nodes, .. } = &mut terms {
            nodes.extend(places.iter().filter_map(|(_, at)| at.node));
        }
        dropped.push((other, places));
        if place(session, &terms) {
            // The last one is needed: without its places the job found none.
            dropped.pop();
            while let Some(unneeded) = dropped.pop() {
                give_back_if_free(session, unneeded);
            }
            return true;
        }
    }
    for (other, places) in dropped.into_iter().rev() {
        let mut statement = session.statement(other);
        statement.put_back_kept(places);
        statement.keep();
    }
    false
}

/// The jobs whose nominations the job may take and that could help it, in the order in which they are dropped.
fn candidates(session: &mut Session, job: JobIdx, first: TaskIdx) -> Vec<JobIdx> {
    let mut jobs = session.jobs_with_kept_moves();
    jobs.retain(|other| may_take(session, job, first, *other));
    let is_capped = matches!(session.failure(job), Some(Failure::QueueLimit(_)));
    let class = session.cluster().tasks.class[first];
    if !is_capped && !session.search().is_open_to_change(class) {
        jobs.retain(|other| makes_room(session, first, *other));
    }
    let priority = &session.cluster().jobs.priority;
    jobs.sort_by_key(|other| (priority[*other], Reverse(*other)));
    jobs
}

/// Whether the nominations of another job may be dropped for a task of this one.
fn may_take(session: &Session, job: JobIdx, task: TaskIdx, other: JobIdx) -> bool {
    let jobs = &session.cluster().jobs;
    if other == job
        || session.cluster().is_in_larger_gang(other)
        // Parity: see docs/parity.md#a12.
        || !session.may_take_reserved(job, other)
        // What was evicted for it would have been evicted in vain.
        || session.is_preemptor(other)
        || !session.kept_tasks(other).any(|task| session.cluster().tasks.nominated[task].is_some())
    {
        return false;
    }
    if jobs.queue[other] == jobs.queue[job] {
        return match jobs.priority[job].cmp(&jobs.priority[other]) {
            Ordering::Greater => true,
            Ordering::Equal => job < other && !session.plugins().job_pipelined(job),
            Ordering::Less => false,
        };
    }
    let Some(queue) = jobs.queue[other] else { return false };
    let wanted = session.cluster().request(task);
    let mut places = session.kept_tasks(other);
    places.any(|nominated| {
        session.cluster().request(nominated).shared().any(|(dim, amount)| {
            let spare = session.plugins().spare(queue, dim);
            amount > 0 && wanted.get(dim) > 0 && spare.is_some_and(|spare| spare > 0)
        })
    })
}

/// Whether the task would fit on a node of the other job's places, by what is free there without them.
fn makes_room(session: &Session, task: TaskIdx, other: JobIdx) -> bool {
    let cluster = session.cluster();
    let mut places = session.kept_tasks(other);
    places.any(|place| fits_without(cluster, session, task, place, other))
}

fn fits_without(
    cluster: &Cluster,
    session: &Session,
    task: TaskIdx,
    place: TaskIdx,
    other: JobIdx,
) -> bool {
    let Some(node) = cluster.tasks.placement[place].node else { return false };
    let here = |nominated: &TaskIdx| cluster.tasks.placement[*nominated].node == Some(node);
    let nominated: Vec<TaskIdx> = session.kept_tasks(other).filter(here).collect();
    cluster.request(task).amounts().iter().all(|(dim, amount)| {
        let given: i64 = nominated.iter().map(|task| cluster.request(*task).get(*dim)).sum();
        *amount <= cluster.nodes.future_idle(node, *dim) + given
    })
}

/// Gives a job its places again if all of them are still free.
fn give_back_if_free(session: &mut Session, (job, places): Dropped) {
    let mut statement = session.statement(job);
    for (task, at) in places {
        let node = at.node.expect("a kept task has a node");
        let waits = at.status == TaskStatus::Pipelined;
        let capacity = if waits { Capacity::FutureIdle } else { Capacity::Idle };
        let session = statement.session_mut();
        let class = session.cluster().tasks.class[task];
        let is_free = session.within_limits(task, &[], capacity).is_ok()
            && session.search().fits(class, node, capacity);
        if !is_free {
            return;
        }
        let moved =
            if waits { statement.pipeline(task, node) } else { statement.allocate(task, node) };
        moved.expect("the task waits");
    }
    statement.keep();
}
