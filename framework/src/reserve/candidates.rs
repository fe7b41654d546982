//! Which jobs may get a reservation.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::Timestamp;
use kube_batch_model::{
    cluster::Cluster,
    column::{JobIdx, QueueIdx},
    gang::Sense,
    name::{JobKey, Name},
};

use crate::{plugin::ReservationTerms, reservations::later, session::Session};

/// Of each namespace and queue at most this many jobs are looked at that cannot start. Guessed: a user who has more of
/// them hurts no one else.
const MAX_IN_VAIN: usize = 8;

/// The jobs of a queue that may get a reservation; the first that could start does.
#[derive(Debug)]
pub(super) struct Candidate {
    pub(super) queue: QueueIdx,
    /// With the time since which each has waited.
    pub(super) jobs: Vec<(JobIdx, Timestamp)>,
}

impl Session {
    /// Notes which jobs could not be scheduled, and which queues have jobs that started from a reservation above their
    /// share: others of these queues do not wait meanwhile, or a queue with many large jobs would hold more than it
    /// deserves indefinitely.
    pub(super) fn note_what_does_not_wait(&mut self) {
        let now = self.now;
        let jobs = &self.cluster.jobs;
        let mut not_ready = std::mem::take(&mut self.reservations.memory.not_ready);
        if !not_ready.is_empty() {
            let waits = |job: &JobIdx| !self.plugins().job_ready(*job);
            let waiting: BTreeSet<&JobKey> =
                jobs.key.ids().filter(waits).map(|job| &jobs.key[job]).collect();
            not_ready.retain(|key, _| waiting.contains(key));
        }
        let unschedulable = jobs.problem.iter().filter(|(_, problem)| problem.is_some());
        not_ready.extend(unschedulable.map(|(job, _)| (jobs.key[job].clone(), now)));
        let name_of = |queue| self.cluster.queues.facts[queue].name.clone();
        let protected = self.reservations.protected.iter();
        let queues: BTreeSet<QueueIdx> =
            protected.filter_map(|task| self.cluster.queue_of(*task)).collect();
        let queues: Vec<Name> = queues.into_iter().map(name_of).collect();
        let memory = &mut self.reservations.memory;
        memory.above_share.extend(queues.into_iter().map(|queue| (queue, now)));
        let exists = |name: &Name| self.cluster.queues.facts.values().any(|own| own.name == *name);
        memory.above_share.retain(|queue, _| exists(queue));
        memory.not_ready = not_ready;
    }

    /// Since when a job has waited: since as many of its pods exist as start together, it could be scheduled, and no job
    /// of its queue ran that had started from a reservation above the share of the queue.
    pub(super) fn waits_since(&self, job: JobIdx) -> Timestamp {
        let memory = &self.reservations.memory;
        let not_ready = memory.not_ready.get(&self.cluster.jobs.key[job]);
        let queue = self.cluster.jobs.queue[job];
        let queue = queue.map(|queue| &self.cluster.queues.facts[queue].name);
        let above_share = queue.and_then(|queue| memory.above_share.get(queue));
        let others = not_ready.into_iter().chain(above_share).copied();
        others.fold(complete_since(&self.cluster, job), Timestamp::max)
    }

    /// The candidates of all queues, the queue whose first job has waited longest first.
    pub(super) fn reservation_candidates(&mut self, terms: ReservationTerms) -> Vec<Candidate> {
        let queues: Vec<QueueIdx> = self.cluster.queues.facts.ids().collect();
        let mut candidates: Vec<Candidate> =
            queues.into_iter().filter_map(|queue| self.candidate_of(queue, terms)).collect();
        candidates.sort_by(|l, r| {
            let waited = |candidate: &Candidate| candidate.jobs.first().map(|(_, since)| *since);
            waited(l).cmp(&waited(r)).then_with(|| self.plugins().queue_order(l.queue, r.queue))
        });
        candidates
    }

    /// Whether the job has all the places that it needs to start, by nominations, and has not started. Its reservation
    /// goes on, or others would take these places.
    pub(super) fn is_nominated_to_start(&self, job: JobIdx) -> bool {
        let n_kept = self.kept.get(&job).map_or(0, Vec::len) as u32;
        let placed = self.cluster.members(job, Sense::Pipelined);
        n_kept > 0 && self.plugins().job_pipelined(job) && !placed.without(n_kept).have_started()
    }

    /// Has another cycle run at a time.
    pub(super) fn choose_again_at(&mut self, time: Timestamp) {
        let left = Duration::try_from(time.duration_since(self.now)).unwrap_or_default();
        let next = &mut self.reservations.next;
        *next = Some(next.map_or(left, |next| next.min(left)));
    }

    /// The oldest waiting jobs of the highest priority, as far as they have waited long enough.
    fn candidate_of(&mut self, queue: QueueIdx, terms: ReservationTerms) -> Option<Candidate> {
        let waits = |job: &JobIdx| {
            self.has_waiting_tasks(*job) && self.plugins().tasks_missing(*job) > 0
                || self.is_nominated_to_start(*job)
        };
        let mut of_namespaces: BTreeMap<&Name, Vec<JobIdx>> = BTreeMap::new();
        for job in self.cluster.queues.jobs[queue].iter().copied().filter(waits) {
            of_namespaces
                .entry(&self.cluster.jobs.key[job].object().namespace)
                .or_default()
                .push(job);
        }
        // Most queues have thousands of waiting jobs, and only the first few count.
        let first = |job: &JobIdx| (Reverse(self.cluster.jobs.priority[*job]), *job);
        for jobs in of_namespaces.values_mut().filter(|jobs| jobs.len() > MAX_IN_VAIN) {
            jobs.select_nth_unstable_by_key(MAX_IN_VAIN, first);
            jobs.truncate(MAX_IN_VAIN);
        }
        let mut jobs: Vec<JobIdx> = of_namespaces.into_values().flatten().collect();
        jobs.sort_by_key(first);
        let mut candidates = Vec::new();
        for job in jobs {
            if self.cluster.is_in_larger_gang(job) {
                // The jobs of a composite PodGroup start together, which no reservation is for.
                break;
            }
            let since = self.waits_since(job);
            let due = later(since, terms.after);
            if due > self.now {
                self.choose_again_at(due);
                break;
            }
            if self.is_given_up(job, since, terms) {
                continue;
            }
            candidates.push((job, since));
        }
        (!candidates.is_empty()).then_some(Candidate { queue, jobs: candidates })
    }
}

/// Since when as many pods of a job exist as start together.
fn complete_since(cluster: &Cluster, job: JobIdx) -> Timestamp {
    let counts = |task: &_| cluster.status(*task).is_valid() && !cluster.tasks.gated[*task];
    let tasks = cluster.jobs.tasks[job].iter().filter(counts);
    let mut created: Vec<Timestamp> = tasks.map(|task| cluster.tasks.facts[task].created).collect();
    let min = (cluster.jobs.min_available[job].max(1) as usize).min(created.len());
    if min == 0 {
        return cluster.jobs.created[job];
    }
    let (_, last, _) = created.select_nth_unstable(min - 1);
    (*last).max(cluster.jobs.created[job])
}
