//! Which jobs get a turn, by what the scheduler remembers of earlier cycles, and what it remembers of this
//! one: see [`crate::memory`].

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash, Hasher},
};

use kube_batch_api::{
    cluster::Cluster,
    column::{ClassIdx, JobIdx, Ordinal as _, QueueIdx},
    name::JobKey,
    status::TaskStatus,
};

use crate::{
    failure::Failure,
    memory::{Found, Hopeless, Memory, Seen, Tried},
    plugin::QueueShares,
    session::Session,
};

/// A turn that has begun.
#[derive(Debug)]
pub(crate) struct Begun {
    job: JobIdx,
    work: u64,
    n_decisions: usize,
    n_kept: Option<usize>,
}

impl Session {
    /// Compares the state with that of the last cycle. Called when the nominations are renewed.
    pub(crate) fn open_turn_log(&mut self, shares: Vec<Option<QueueShares>>) {
        let with_jobs = |queue: &QueueIdx| {
            let jobs = &self.cluster.queues.jobs[*queue];
            jobs.iter().any(|job| self.has_waiting_tasks(*job))
        };
        let n_queues = self.cluster.queues.facts.ids().filter(with_jobs).count() as u64;
        let generation = self.turn_log.memory.generation.take();
        let seen = generation.map(|generation| Seen {
            generation,
            shares,
            protection: protection(&self.cluster),
            protected_until: self.next_end_of_protection(),
            in_flight: in_flight(&self.cluster),
        });
        let n_decisions = self.decisions.len();
        let turn_log = &mut self.turn_log;
        // The renewal is the same in the same state, and no part of an action.
        turn_log.had_turn.clear();
        turn_log.helped.clear();
        turn_log.part = turn_log.memory.budget / n_queues.max(1);
        turn_log.n_decisions = n_decisions;
        let before = turn_log.memory.hopeless.as_ref().map(|hopeless| &hopeless.seen);
        turn_log.is_same = seen.is_some() && before == seen.as_ref();
        turn_log.seen = seen;
    }

    /// Begins a turn of a job; `None` if it gets none.
    pub(crate) fn begin_turn(&mut self, job: JobIdx) -> Option<Begun> {
        if self.recall(job) {
            return None;
        }
        self.turn_log.remembered.remove(&job);
        let queue = self.cluster.jobs.queue[job]?;
        let action = self.action();
        let name = &self.cluster.queues.facts[queue].name;
        let is_spent =
            self.turn_log.spent.get(&queue).is_some_and(|spent| *spent >= self.turn_log.part);
        if is_spent {
            self.turn_log.cut.insert((action, queue));
        }
        if is_spent || self.turn_log.had_turn_in_round(action, name, &self.cluster.jobs.key[job]) {
            self.turn_log.left_out.insert(job);
            return None;
        }
        let n_kept = self.kept.get(&job).map(Vec::len);
        Some(Begun { job, work: self.work(), n_decisions: self.decisions.len(), n_kept })
    }

    /// Ends a turn.
    pub(crate) fn end_turn(&mut self, begun: &Begun) {
        let Begun { job, work, n_decisions, n_kept } = *begun;
        let is_in_vain =
            self.decisions.len() == n_decisions && self.kept.get(&job).map(Vec::len) == n_kept;
        let work = (self.work() - work).max(1);
        let Some(queue) = self.cluster.jobs.queue[job] else { return };
        let action = self.action();
        if is_in_vain {
            *self.turn_log.spent.entry(queue).or_default() += work;
            self.turn_log.had_turn.entry((action, queue)).or_default().insert(job);
        } else {
            self.turn_log.helped.insert(job);
        }
    }

    /// Reports the last try of a job again, if its result is still the same.
    fn recall(&mut self, job: JobIdx) -> bool {
        let turn_log = &self.turn_log;
        let is_unchanged = turn_log.is_same
            && turn_log.helped.is_empty()
            && self.decisions.len() == turn_log.n_decisions;
        if !is_unchanged {
            return false;
        }
        let key = &self.cluster.jobs.key[job];
        let Some(tried) = turn_log.hopeless_in_same_state(key) else { return false };
        if !turn_log.remembered.contains(&job) && tried.own != own(&self.cluster, job) {
            return false;
        }
        if !tried.actions.contains(&self.action()) {
            return false;
        }
        // As a turn would do.
        let (found, tried_in) = (tried.found.clone(), tried.tried_in);
        if tried_in == Some(self.action()) {
            self.record_turn(job);
        }
        if let Some(Found { action, failure, n_fitting }) = found
            && action == self.action()
        {
            self.record_fitting(job, n_fitting);
            self.record_failure(job, |_| failure);
        }
        self.turn_log.remembered.insert(job);
        true
    }

    /// What to remember of this cycle.
    pub(crate) fn close_turn_log(&mut self) -> Memory {
        let hopeless = self.hopeless();
        let turn_log = &self.turn_log;
        let mut rounds = BTreeMap::new();
        for (action, queue) in &turn_log.cut {
            let place = (*action, self.cluster.queues.facts[*queue].name.clone());
            let mut jobs = turn_log.memory.rounds.get(&place).cloned().unwrap_or_default();
            let now = turn_log.had_turn.get(&(*action, *queue)).into_iter().flatten();
            jobs.extend(now.map(|job| self.cluster.jobs.key[*job].clone()));
            rounds.insert(place, jobs);
        }
        let evicted = turn_log.memory.evicted.clone();
        let Memory { budget, recalls, .. } = turn_log.memory;
        Memory { budget, recalls, generation: None, rounds, hopeless, evicted }
    }

    /// The jobs that would find no place in the same state.
    fn hopeless(&mut self) -> Option<Hopeless> {
        let seen = self.turn_log.seen.clone()?;
        let jobs: Vec<JobIdx> = self.cluster.jobs.key.ids().collect();
        let mut hopeless = BTreeMap::new();
        for job in jobs {
            if let Some(tried) = self.tried_in_vain(job, &seen.shares) {
                hopeless.insert(self.cluster.jobs.key[job].clone(), tried);
            }
        }
        Some(Hopeless { seen, jobs: hopeless })
    }

    /// The turns of a job that would be in vain again in the same state.
    fn tried_in_vain(&mut self, job: JobIdx, shares: &[Option<QueueShares>]) -> Option<Tried> {
        let queue = self.cluster.jobs.queue[job]?;
        let is_overused = shares[queue.at()].as_ref().is_some_and(|shares| shares.overused);
        let is_in_vain = self.has_waiting_tasks(job)
            && !is_overused
            && !self.turn_log.helped.contains(&job)
            && !self.kept.contains_key(&job)
            && self.cluster.jobs.incomplete_for[job].is_none();
        if !is_in_vain || self.is_any_class_open_to_change(job) {
            return None;
        }
        let own = own(&self.cluster, job);
        let before = self.turn_log.hopeless_in_same_state(&self.cluster.jobs.key[job]);
        let mut tried = match before.filter(|before| before.own == own) {
            Some(before) => before.clone(),
            None => Tried { own, actions: BTreeSet::new(), tried_in: None, found: None },
        };
        let places = self.turn_log.had_turn.iter().filter(|(_, jobs)| jobs.contains(&job));
        tried.actions.extend(places.map(|((action, _), _)| *action));
        tried.tried_in = self.tried_in(job).or(tried.tried_in);
        let n_fitting = self.recorded_fitting(job);
        match self.failure(job) {
            None => {}
            Some(failure @ (Failure::Unfit(_) | Failure::NeverFits(_))) => {
                let (action, failure) = (self.failed_in(job), failure.clone());
                tried.found = Some(Found { action, failure, n_fitting });
            }
            Some(Failure::Capability(_) | Failure::Reserved(_)) => return None,
        }
        (!tried.actions.is_empty()).then_some(tried)
    }

    /// Whether placements of others can help tasks of the job.
    fn is_any_class_open_to_change(&mut self, job: JobIdx) -> bool {
        let class_of = &self.cluster.tasks.class;
        let mut classes: Vec<ClassIdx> =
            self.cluster.jobs.tasks[job].iter().map(|task| class_of[task]).collect();
        classes.sort_unstable();
        classes.dedup();
        classes.into_iter().any(|class| self.is_open_to_change(class))
    }
}

/// A hash of the tasks that decisions of earlier cycles have moved, and of their nodes.
fn in_flight(cluster: &Cluster) -> u64 {
    let mut hasher = DefaultHasher::new();
    // Only tasks that wait are nominated.
    let may_be_moved = |status| {
        matches!(status, TaskStatus::Binding | TaskStatus::Releasing | TaskStatus::Pending)
    };
    for task in cluster.tasks_in(may_be_moved) {
        let (placement, nominated) = (cluster.tasks.placement[task], cluster.tasks.nominated[task]);
        if placement.status != TaskStatus::Pending || nominated.is_some() {
            let node = placement.node.or(nominated);
            let node = node.map(|node| cluster.node_name(node));
            (&cluster.tasks.facts[task].uid, placement.status as u8, node).hash(&mut hasher);
        }
    }
    hasher.finish()
}

/// A hash of what decides which running tasks may be evicted: the minimum, priority and queue of their
/// jobs. A single pod without a PodGroup is left out: these change only with the pod itself.
fn protection(cluster: &Cluster) -> u64 {
    let mut hasher = DefaultHasher::new();
    for job in cluster.jobs.key.ids() {
        let is_group = matches!(cluster.jobs.key[job], JobKey::Group(_));
        let may_change = is_group || cluster.jobs.tasks[job].len() > 1;
        if may_change && cluster.jobs.counts[job].ready() > 0 {
            let queue = cluster.jobs.queue[job].map(|queue| &cluster.queues.facts[queue].name);
            (&cluster.jobs.key[job], queue).hash(&mut hasher);
            (cluster.jobs.min_available[job], cluster.jobs.priority[job]).hash(&mut hasher);
        }
    }
    hasher.finish()
}

/// A hash of what is a job's own: its PodGroup and its waiting tasks.
fn own(cluster: &Cluster, job: JobIdx) -> u64 {
    let mut hasher = DefaultHasher::new();
    let queue = cluster.jobs.queue[job].map(|queue| &cluster.queues.facts[queue].name);
    (cluster.jobs.min_available[job], cluster.jobs.priority[job], queue).hash(&mut hasher);
    cluster.jobs.group[job].as_ref().map(|group| &*group.metadata).hash(&mut hasher);
    for task in cluster.jobs.tasks[job].iter() {
        let facts = &cluster.tasks.facts[task];
        (&facts.uid, facts.template.id(), facts.labels.id()).hash(&mut hasher);
        (cluster.tasks.priority[task], cluster.tasks.gated[task], facts.never_preempts)
            .hash(&mut hasher);
    }
    hasher.finish()
}
