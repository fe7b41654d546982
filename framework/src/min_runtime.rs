//! The least time that a queue lets its tasks run before they may be evicted.
// Parity: new, see docs/parity.md#p12.

use std::time::Duration;

use jiff::Timestamp;
use kube_batch_model::{
    cluster::Cluster,
    column::TaskIdx,
    facts::{policy::HIGHEST_USER_PRIORITY, queue::QueueFacts},
};

use crate::{reservations::later, session::Session};

impl Session {
    /// Whether these tasks, which would be evicted together, have run for as long as their queue lets
    /// them: the time counts from the start of the first of them, or from its binding if it does not run.
    pub fn have_run_enough(&self, preemptor: TaskIdx, victims: &[TaskIdx]) -> bool {
        if is_of_system_class(&self.cluster, preemptor) {
            return true;
        }
        // Parity: see docs/parity.md#a12.
        if victims.iter().any(|victim| self.is_protected_from(*victim, preemptor)) {
            return false;
        }
        let Some(min) = victims.first().and_then(|victim| min_runtime(&self.cluster, *victim))
        else {
            return true;
        };
        let started = victims.iter().filter_map(|victim| started(&self.cluster, *victim)).min();
        started.is_some_and(|started| later(started, min) <= self.now)
    }

    /// Whether a task may not be reclaimed for another one, because its job started from a reservation.
    fn is_protected_from(&self, victim: TaskIdx, preemptor: TaskIdx) -> bool {
        self.cluster.queue_of(victim) != self.cluster.queue_of(preemptor)
            && self.protected_until(victim).is_some_and(|end| end > self.now)
    }

    /// Whether a task that starts now could be evicted at once, as far as its queue lets tasks run.
    pub(crate) fn may_be_evicted_at_once(&self, preemptor: TaskIdx, victim: TaskIdx) -> bool {
        min_runtime(&self.cluster, victim).is_none() && !self.is_protected_from(victim, preemptor)
            || is_of_system_class(&self.cluster, preemptor)
    }

    /// When the first of the tasks that are protected now no longer is.
    pub(crate) fn next_end_of_protection(&self) -> Option<Timestamp> {
        let cluster = &self.cluster;
        let of_reservations = self.ends_of_protection();
        let has_none = |queue: &QueueFacts| queue.min_runtime.unwrap_or_default().is_zero();
        let has_minimum = !cluster.queues.facts.values().all(|queue| has_none(queue));
        // A job may have tasks that were bound from another queue.
        let tasks =
            cluster.jobs.tasks.values().filter(|_| has_minimum).flat_map(|tasks| tasks.iter());
        let of_queues = tasks
            .filter_map(|task| Some(later(started(cluster, task)?, min_runtime(cluster, task)?)));
        let ends = of_queues.chain(of_reservations);
        ends.filter(|end| *end > self.now).min()
    }

    /// After which time another task may be evicted, if tasks wait that could need its place.
    pub(crate) fn next_release(&self) -> Option<Duration> {
        let end = self.next_end_of_protection()?;
        let waits = self.waiting_jobs().next().is_some();
        waits.then(|| Duration::try_from(end.duration_since(self.now)).unwrap_or_default())
    }
}

fn min_runtime(cluster: &Cluster, task: TaskIdx) -> Option<Duration> {
    let queue = cluster.queue_of(task)?;
    Some(cluster.queues.min_runtime(queue)).filter(|min| !min.is_zero())
}

fn started(cluster: &Cluster, task: TaskIdx) -> Option<Timestamp> {
    cluster.status(task).may_be_evicted().then(|| cluster.tasks.start[task])
}

fn is_of_system_class(cluster: &Cluster, task: TaskIdx) -> bool {
    let of_job = cluster.tasks.job[task].map_or(0, |job| cluster.jobs.priority[job]);
    of_job.max(cluster.tasks.facts[task].priority) > HIGHEST_USER_PRIORITY
}
