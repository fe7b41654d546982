//! What a cycle decided, as lines of the log.

use std::collections::BTreeMap;

use kube_batch_framework::report::{Cycle, JobReport};
use kube_batch_model::{
    decision::{Decision, JobInQueue},
    facts::group::GroupFacts,
    name::{JobKey, Name},
    object_status::{PodGroupStatus, UNSCHEDULABLE},
};
use tracing::{Level, debug, enabled, info, trace};

/// A decision, and the job and queue that it is about.
pub(crate) struct Decided<'c> {
    pub(crate) decision: &'c Decision,
    pub(crate) report: Option<&'c JobReport>,
    /// `None` if the pod belongs to no job.
    pub(crate) job: Option<&'c JobKey>,
    pub(crate) queue: Option<&'c Name>,
}

/// The decisions of a cycle in order, each with its job.
pub(crate) fn decided(cycle: &Cycle) -> Vec<Decided<'_>> {
    let decided = cycle.decisions.iter().zip(&cycle.decided_jobs).map(|(decision, job)| {
        let report = job.map(|at| &*cycle.jobs[at]);
        let (job, queue) =
            (report.map(|report| &report.key), report.and_then(|r| r.queue.as_ref()));
        Decided { decision, report, job, queue }
    });
    decided.collect()
}

/// Logs each gang that starts and each eviction; at debug every decision, and at trace why each job
/// waits.
pub(crate) fn log_cycle(cycle: &Cycle, decided: &[Decided<'_>]) {
    log_started(decided);
    for Decided { decision, job, queue, .. } in decided {
        let (job, queue) = (job.map(tracing::field::display), queue.map(|queue| &**queue));
        match decision {
            Decision::Bind { pod, node, .. } => {
                debug!(pod = %pod.key, %node, job, queue, "binding a pod");
            }
            Decision::Evict { pod, node, cause } => {
                let JobInQueue { job: for_job, queue: for_queue, .. } = cause.job();
                let reason = cause.reason();
                info!(pod = %pod.key, %node, job, queue, %reason, %for_job, %for_queue, "evicting a pod");
            }
            Decision::Nominate { pod, node, .. } => {
                debug!(pod = %pod.key, %node, job, queue, "nominating a pod for a node");
            }
            Decision::Deallocate { pod, claim } => {
                info!(pod = %pod.key, %claim, job, queue, "deallocating a claim for devices");
            }
            Decision::Withdraw { pod } => {
                debug!(pod = %pod.key, job, queue, "withdrawing a nomination");
            }
        }
    }
    if enabled!(Level::TRACE) {
        for report in cycle.jobs.iter() {
            if let Some((reason, words)) = report.unschedulable_in_words() {
                trace!(job = %report.key, %reason, why = words, "a job waits");
            }
        }
    }
}

/// Logs the jobs that reach their minimum with the bindings of this cycle.
fn log_started(decided: &[Decided<'_>]) {
    let mut bound = BTreeMap::<&JobKey, (&JobReport, u32)>::new();
    for Decided { decision, report, .. } in decided {
        if let (Decision::Bind { .. }, Some(report)) = (decision, report) {
            bound.entry(&report.key).or_insert((report, 0)).1 += 1;
        }
    }
    for (report, n_bound) in bound.into_values() {
        let JobReport { key, queue, min_available, ready, .. } = report;
        let queue = queue.as_deref();
        let is_gang = *min_available > 1;
        if *ready < *min_available || ready.saturating_sub(n_bound) >= (*min_available).max(1) {
            debug!(job = %key, queue, pods = n_bound, "binding more pods of a job");
        } else if is_gang {
            info!(job = %key, queue, min = min_available, pods = n_bound, "starting a gang");
        } else {
            debug!(job = %key, queue, pods = n_bound, "starting a job");
        }
    }
}

/// Logs that a PodGroup becomes unschedulable, or for another reason than before.
pub(crate) fn log_group(group: &GroupFacts, next: &PodGroupStatus) {
    let reason_in = |status: &PodGroupStatus| {
        let mut conditions = status.conditions.iter();
        let condition = conditions.find(|c| c.type_ == UNSCHEDULABLE && c.status == "True");
        condition.map(|condition| (condition.reason.clone(), condition.message.clone()))
    };
    let Some((reason, message)) = reason_in(next) else { return };
    let before = reason_in(&group.status);
    let queue = group.queue.as_deref();
    if before.as_ref().is_none_or(|(before, _)| *before != reason) {
        info!(job = %group.key, queue, reason, why = message, "a job is unschedulable");
    } else if before.is_some_and(|(_, before)| before != message) {
        debug!(job = %group.key, queue, reason, why = message, "a job is still unschedulable");
    }
}

/// How many queues a line names.
const N_QUEUES: usize = 20;

/// Logs the queues when they differ from those of the last cycle.
#[derive(Debug, Default)]
pub(crate) struct QueueLog {
    last: Vec<(Name, u32)>,
}

impl QueueLog {
    pub(crate) fn log(&mut self, cycle: &Cycle) {
        let queues = cycle.queues.iter().map(|report| &report.queue);
        if queues
            .clone()
            .map(|queue| (&queue.name, queue.weight))
            .eq(self.last.iter().map(|(name, weight)| (name, *weight)))
        {
            return;
        }
        self.last = queues.map(|queue| (queue.name.clone(), queue.weight)).collect();
        let shown = self.last.iter().take(N_QUEUES);
        let mut queues: Vec<String> =
            shown.map(|(name, weight)| format!("{name} (weight {weight})")).collect();
        if let Some(more) = self.last.len().checked_sub(N_QUEUES).filter(|more| *more > 0) {
            queues.push(format!("and {more} more"));
        }
        info!(queues = queues.join(", "), "the queues");
    }
}
