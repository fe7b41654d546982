//! Which jobs get a turn, by what the scheduler remembers of earlier cycles, and what it remembers of this
//! one: see [`crate::memory`].

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use kube_batch_model::{
    cluster::Cluster,
    column::{Column, JobIdx, Ordinal as _, QueueIdx},
    facts::pod::TaskFacts,
    job_report::JobReport,
    name::JobKey,
    status::TaskStatus,
};

use crate::{
    cluster_input::{ClusterInput, in_flight, protection, without_demand},
    job_input::{CurrentInput, Decided, TurnsOfJob, depends_on_waiting_pods, names_claims},
    large_turns::LargeTurn,
    last_reports::LastReports,
    memory::Memory,
    plugin::QueueShares,
    reservations::later,
    session::Session,
    tried::{Found, LastTry, Tried, TryValidity},
};

/// How many jobs that are gone are remembered to have had Jobs of `batch`, beside as many as twice those that are there.
const MAX_GONE: usize = 1_000;

/// A turn that has begun.
#[derive(Debug)]
pub(crate) struct Begun {
    job: JobIdx,
    work: u64,
    n_decisions: usize,
    n_kept: Option<usize>,
    /// Whether the credit of its queue pays for it.
    is_given: bool,
}

impl Session {
    /// Compares the state with that of the last cycle. Called when the nominations are renewed.
    pub(crate) fn open_turn_log(&mut self, shares: Vec<Option<QueueShares>>) {
        let queues: BTreeSet<QueueIdx> =
            self.waiting_jobs().filter_map(|job| self.cluster.jobs.queue[job]).collect();
        let n_queues = queues.len() as u64;
        // If nothing waits, there are no tries.
        let has_tries = n_queues > 0 || !self.kept.is_empty();
        let state = if has_tries { self.cluster_input(shares) } else { None };
        let n_decisions = self.decisions.len();
        let turn_log = &mut self.turn_log;
        // The renewal of nominations, which came before, is the same in the same state and with the same orders.
        turn_log.begin();
        turn_log.part = turn_log.memory.budget / n_queues.max(1);
        turn_log.at_start = Decided { n_decisions, n_helped: 0 };
        if let Some(state) = state {
            self.compare_inputs(&state);
            self.turn_log.state = Some(state);
        }
    }

    /// What the tries of all jobs depend on; `None` if no generation is known.
    fn cluster_input(&mut self, shares: Vec<Option<QueueShares>>) -> Option<ClusterInput> {
        Some(ClusterInput {
            generation: self.turn_log.memory.generation.take()?,
            shares: without_demand(shares),
            protection: if self.evicts() { protection(&self.cluster) } else { 0 },
            protected_until: self.next_end_of_protection(),
            answers_until: self
                .policy
                .next_change(&self.cluster)
                .map(|after| later(self.now, after)),
            in_flight: in_flight(&self.cluster, self.active_jobs()),
            reserved: self.hash_of_reservations(),
            headroom: self.headroom.hash(&self.cluster),
        })
    }

    /// Finds the tries of earlier cycles that may hold.
    fn compare_inputs(&mut self, state: &ClusterInput) {
        let memory = &self.turn_log.memory;
        let is_same = memory.input.as_ref() == Some(state);
        let now = |holds: TryValidity| TryValidity {
            with_cluster_input: holds.with_cluster_input && is_same,
            ..holds
        };
        let mut tried = Column::filled(None, self.cluster.jobs.key.len());
        for (job, last) in still_same(&self.cluster, self.active_jobs(), &memory.tries, now) {
            tried[job] = Some(last);
        }
        self.turn_log.tried = tried;
        self.forget_dependent();
    }

    /// Forgets the tries of jobs to which pods of others that wait have come to matter.
    fn forget_dependent(&mut self) {
        for job in self.active_jobs().to_vec() {
            if self.turn_log.tried[job].is_some() && self.depends_on_waiting_pods(job) {
                self.turn_log.tried[job] = None;
            }
        }
    }

    /// Begins a turn of a job; `None` if it gets none.
    pub(crate) fn begin_turn(&mut self, job: JobIdx) -> Option<Begun> {
        if self.recall(job) {
            return None;
        }
        self.turn_log.remembered[job] = false;
        self.turn_log.tried_again[job] = true;
        let queue = self.cluster.jobs.queue[job]?;
        let action = self.action();
        let large = self.large_turn(job, queue);
        let is_given = large == LargeTurn::Given;
        let is_spent = large == LargeTurn::No && self.turn_log.is_spent(action, queue, job);
        if is_spent {
            self.turn_log.cut.insert((action, queue));
        }
        let name = &self.cluster.queues.facts[queue].name;
        let key = &self.cluster.jobs.key[job];
        let is_left_out = !is_given && self.turn_log.had_turn_in_round(action, name, key);
        if is_spent || is_left_out || large == LargeTurn::PutOff {
            self.turn_log.left_out.insert(job);
            return None;
        }
        self.turn_log.tried_late[job] |= !self.nothing_is_decided();
        let n_kept = self.kept.get(&job).map(Vec::len);
        let n_decisions = self.decisions.len();
        Some(Begun { job, work: self.work(), n_decisions, n_kept, is_given })
    }

    /// Ends a turn.
    pub(crate) fn end_turn(&mut self, begun: &Begun) {
        let Begun { job, work, n_decisions, n_kept, is_given } = *begun;
        let is_in_vain =
            self.decisions.len() == n_decisions && self.kept.get(&job).map(Vec::len) == n_kept;
        let work = if is_given { 0 } else { (self.work() - work).max(1) };
        let Some(queue) = self.cluster.jobs.queue[job] else { return };
        let action = self.action();
        match is_in_vain {
            true => self.turn_log.count_in_vain(action, queue, job, work),
            false => self.turn_log.count_useful(job, work),
        }
    }

    /// Whether the last try of a job holds whatever is asked before its turn, and was in this action.
    pub(crate) fn would_recall(&self, job: JobIdx) -> bool {
        self.nothing_is_decided()
            && self.try_in_action(job).is_some_and(|last| last.holds.with_cluster_input)
    }

    /// The last try of a job, if it may hold, and was in this action.
    pub(crate) fn try_in_action(&self, job: JobIdx) -> Option<&LastTry> {
        let last = self.turn_log.tried[job].as_ref();
        last.filter(|last| last.tried.actions.contains(&self.action()))
    }

    /// Whether no turn has led to anything yet.
    pub(crate) fn nothing_is_decided(&self) -> bool {
        let n_helped = self.turn_log.helped.len();
        Decided { n_decisions: self.decisions.len(), n_helped } == self.turn_log.at_start
    }

    /// Reports the last try of a job again, if it holds.
    pub(crate) fn recall(&mut self, job: JobIdx) -> bool {
        if !self.would_recall(job) && !self.is_still_unfit(job) {
            return false;
        }
        // As a turn would do.
        let Some(LastTry { tried, .. }) = self.turn_log.tried[job].clone() else { return false };
        if tried.tried_in == Some(self.action()) {
            self.record_turn(job);
        }
        if let Some(n_fitting) = tried.fitting.get(self.action()) {
            self.record_fitting(job, *n_fitting);
        }
        if let Some(Found { action, failure }) = &tried.found
            && *action == self.action()
        {
            self.recall_failure(job, failure);
        }
        self.turn_log.remembered[job] = true;
        self.turn_log.tried_late[job] |= !self.nothing_is_decided();
        true
    }

    /// What to remember of this cycle.
    pub(crate) fn close_turn_log(&mut self, reports: &[Arc<JobReport>]) -> Memory {
        let input = self.turn_log.state.take().filter(|_| !self.has_postponed());
        let tries = input.as_ref().map(|input| self.tries_in_vain(input, reports));
        let tries = tries.unwrap_or_default();
        let turn_log = &self.turn_log;
        let mut rounds = BTreeMap::new();
        for (action, queue) in &turn_log.cut {
            let place = (*action, self.cluster.queues.facts[*queue].name.clone());
            let mut jobs = turn_log.memory.rounds.get(&place).cloned().unwrap_or_default();
            let now = turn_log.in_vain(action, *queue);
            jobs.extend(now.map(|job| self.cluster.jobs.key[job].clone()));
            rounds.insert(place, jobs);
        }
        let evicted = turn_log.memory.evicted.clone();
        let with_batch = self.remember_batch_jobs();
        let turn_log = &self.turn_log;
        let Memory { budget, recalls, .. } = turn_log.memory;
        let headroom = turn_log.memory.headroom.clone();
        let credits = self.credits();
        let reservations = self.remember_reservations();
        Memory {
            budget,
            recalls,
            generation: None,
            rounds,
            input,
            tries,
            evicted,
            with_batch,
            headroom,
            reservations,
            credits,
            reports: LastReports::default(),
        }
    }

    /// The jobs that have Jobs of `batch`, and those that had some and no other pods since.
    fn remember_batch_jobs(&mut self) -> BTreeSet<JobKey> {
        let mut with_batch = std::mem::take(&mut self.turn_log.memory.with_batch);
        let jobs = &self.cluster.jobs;
        for job in self.active_jobs() {
            let key = &jobs.key[*job];
            if jobs.batch[*job].is_empty() {
                // The pods of a Job that was deleted are deleted after it.
                let mut tasks = jobs.tasks[*job].iter().map(|task| &self.cluster.tasks.facts[task]);
                let is_of_job = |facts: &Arc<TaskFacts>| {
                    facts.controller.as_ref().is_some_and(|controller| &*controller.kind == "Job")
                };
                if with_batch.contains(key) && !tasks.all(is_of_job) {
                    with_batch.remove(key);
                }
            } else if jobs.group[*job].is_some() && !with_batch.contains(key) {
                with_batch.insert(key.clone());
            }
        }
        if with_batch.len() > 2 * jobs.key.len() + MAX_GONE {
            let known: BTreeSet<&JobKey> = jobs.key.values().collect();
            with_batch.retain(|key| known.contains(key));
        }
        with_batch
    }

    /// The tries that would be in vain again.
    fn tries_in_vain(&mut self, state: &ClusterInput, reports: &[Arc<JobReport>]) -> Vec<LastTry> {
        let jobs = self.active_jobs().to_vec().into_iter();
        let tries = jobs.filter_map(|job| {
            let holds = self.how_long_it_holds(job, state);
            let tried = if holds.ever() { self.tried(job, &reports[job.at()]) } else { None };
            tried.map(|tried| LastTry { tried, holds })
        });
        tries.collect()
    }

    /// How long the turns of a job would be in vain again with the same input.
    fn how_long_it_holds(&mut self, job: JobIdx, state: &ClusterInput) -> TryValidity {
        let Some(turns) = self.turns_of(job, state) else { return TryValidity::default() };
        let holds = TryValidity {
            // A try that was recalled by another rule may have been in more actions than now.
            with_cluster_input: turns.follow_from_input() && !self.is_recalled_as_unfit(job),
            while_unfit: turns.follow_from_search() && self.class_searched_for(job).is_some(),
        };
        if holds.ever() && !self.depends_on_waiting_pods(job) {
            holds
        } else {
            TryValidity::default()
        }
    }

    /// Whether the last try of a job was recalled although the input of the cluster differs.
    fn is_recalled_as_unfit(&self, job: JobIdx) -> bool {
        let last = self.turn_log.tried[job].as_ref();
        !self.turn_log.tried_again[job] && last.is_some_and(|last| !last.holds.with_cluster_input)
    }

    /// What the turns of a job were like; `None` if none of its tasks wait.
    fn turns_of(&self, job: JobIdx, state: &ClusterInput) -> Option<TurnsOfJob<'_>> {
        let queue = self.cluster.jobs.queue[job].filter(|_| self.has_waiting_tasks(job))?;
        let shares = state.shares[queue.at()].as_ref();
        Some(TurnsOfJob {
            helped: self.turn_log.helped.contains(&job),
            were_late: self.turn_log.tried_late[job],
            kept_moves: self.kept.contains_key(&job),
            of_overused_queue: shares.is_some_and(|shares| shares.overused),
            of_incomplete_job: self.cluster.jobs.incomplete_for[job].is_some(),
            of_composite: self.cluster.is_in_larger_gang(job),
            met_protected_gang: self.refused_gang(job).is_some(),
            ends_before_reservation: self.ends_before_reservation(job),
            names_claims: names_claims(&self.cluster, job, self.failure(job)),
            failure: self.failure(job),
        })
    }

    /// The results of the turns of a job, to be remembered; `None` if it had none.
    fn tried(&self, job: JobIdx, report: &Arc<JobReport>) -> Option<Arc<Tried>> {
        let is_tried_again = self.turn_log.tried_again[job];
        let last = self.turn_log.tried[job].as_ref();
        // What an earlier turn found in an action in which the job had none now need not hold any more.
        let last = last.filter(|last| last.holds.with_cluster_input || !is_tried_again);
        let before = last.map(|last| &last.tried);
        if let Some(before) = before
            && !is_tried_again
            && Arc::ptr_eq(&before.report, report)
        {
            return Some(Arc::clone(before));
        }
        let mut tried = match before {
            Some(before) => Tried { report: Arc::clone(report), ..Tried::clone(before) },
            None => Tried {
                key: report.key.clone(),
                input: CurrentInput { cluster: &self.cluster, job }.into(),
                actions: BTreeSet::new(),
                tried_in: None,
                found: None,
                fitting: BTreeMap::new(),
                report: Arc::clone(report),
            },
        };
        let places = self.turn_log.had_turn.iter().filter(|(_, jobs)| jobs.contains(&job));
        tried.actions.extend(places.map(|((action, _), _)| *action));
        tried.tried_in = self.tried_in(job).or(tried.tried_in);
        tried.fitting.extend(self.fitting(job).iter().copied());
        if let Some(failure) = self.shared_failure(job) {
            let (action, failure) = (self.failed_in(job), Arc::clone(failure));
            tried.found = Some(Found { action, failure });
        }
        (!tried.actions.is_empty()).then(|| Arc::new(tried))
    }

    fn depends_on_waiting_pods(&mut self, job: JobIdx) -> bool {
        let mut search = self.search();
        let cluster = search.cluster();
        depends_on_waiting_pods(cluster, job, |class| search.is_open_to_change(class))
    }
}

/// The earlier tries of the active jobs that have the same input and may hold; `now` says how long. They are in the order
/// of their rows then, which is mostly that of now; a try that is not found is forgotten.
fn still_same(
    cluster: &Cluster,
    active: &[JobIdx],
    before: &[LastTry],
    now: impl Fn(TryValidity) -> TryValidity,
) -> Vec<(JobIdx, LastTry)> {
    let mut by_key: BTreeMap<&JobKey, usize> = BTreeMap::new();
    let mut next = 0;
    let find = |job: &JobIdx| {
        let key = &cluster.jobs.key[*job];
        if cluster.jobs.counts[*job].of(TaskStatus::Pending) == 0 {
            return None;
        }
        if before.get(next)?.tried.key != *key {
            if by_key.is_empty() {
                by_key.extend(before.iter().enumerate().map(|(at, last)| (&last.tried.key, at)));
            }
            next = *by_key.get(key)?;
        }
        next += 1;
        let LastTry { tried, holds } = &before[next - 1];
        let (holds, current) = (now(*holds), CurrentInput { cluster, job: *job });
        let is_same = holds.ever() && tried.input == current;
        is_same.then(|| (*job, LastTry { tried: with_objects_of(tried, current), holds }))
    };
    active.iter().filter_map(find).collect()
}

/// The try with the objects of now, which ask for the same: the next comparison takes less time.
fn with_objects_of(tried: &Arc<Tried>, current: CurrentInput<'_>) -> Arc<Tried> {
    match tried.input.has_objects_of(current) {
        true => Arc::clone(tried),
        false => Arc::new(Tried { input: current.into(), ..Tried::clone(tried) }),
    }
}
