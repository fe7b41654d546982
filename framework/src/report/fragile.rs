//! Jobs of `batch` that fail for good if their pods are evicted.
// Parity: see docs/parity.md#p16.

use std::borrow::Cow;

use kube_batch_model::{
    cluster::Cluster,
    column::{JobIdx, TaskIdx},
    facts::batch_job::{BatchJobFacts, OnEviction},
    problem::JobWarning,
    status::TaskStatus,
};

use crate::session::Session;

/// Mistakes in the objects of a job, with what follows from where it runs.
pub(super) fn warnings(session: &Session, job: JobIdx) -> Cow<'_, [JobWarning]> {
    let jobs = &session.cluster().jobs;
    let known = &jobs.warnings[job];
    let queue = jobs.queue[job].filter(|_| !jobs.batch[job].is_empty());
    if !queue.is_some_and(|queue| session.takes_from(queue)) {
        return Cow::Borrowed(known);
    }
    match fails_when_evicted(session.cluster(), job) {
        Some(warning) => known.iter().cloned().chain([warning]).collect(),
        None => Cow::Borrowed(known),
    }
}

/// The Jobs that fail if all their pods on nodes are evicted.
fn fails_when_evicted(cluster: &Cluster, job: JobIdx) -> Option<JobWarning> {
    let mut failing = cluster.jobs.batch[job].iter().filter(|own| fails(cluster, job, own));
    let first = failing.next()?;
    let left = match first.on_eviction {
        OnEviction::Counts { left } => Some(left),
        OnEviction::CountsForIndex { .. } | OnEviction::Survives => None,
    };
    let first = first.key.name.clone();
    Some(JobWarning::FailsWhenEvicted { first, n_more: failing.count(), left })
}

fn fails(cluster: &Cluster, job: JobIdx, own: &BatchJobFacts) -> bool {
    if own.on_eviction == OnEviction::Survives {
        return false;
    }
    let is_placed = |task: &TaskIdx| {
        let status = cluster.status(*task);
        status.may_be_evicted() || matches!(status, TaskStatus::Allocated | TaskStatus::Binding)
    };
    let facts = cluster.jobs.tasks[job].iter().filter(is_placed);
    let facts = facts.map(|task| &cluster.tasks.facts[task]);
    let mut facts =
        facts.filter(|facts| facts.controller.as_ref().is_some_and(|c| c.uid == own.uid));
    match own.on_eviction {
        OnEviction::Survives => false,
        OnEviction::Counts { left } => facts.nth(left as usize).is_some(),
        OnEviction::CountsForIndex { limit } => facts.any(|facts| facts.index_failures >= limit),
    }
}
