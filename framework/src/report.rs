//! The result of a cycle, and how it becomes the status of API objects.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use kube_batch_model::{
    cluster::Cluster,
    column::{JobIdx, Ordinal, QueueIdx, TaskIdx},
    decision::{Decision, EvictReason, EvictionCause, PodRef},
    dialect::Transition,
    facts::group::GroupFacts,
    object_status::PodGroupStatus,
    problem::{JobProblem, JobWarning},
    resource::{ResourceVector, Share},
    status::TaskStatus,
    why::{GangEviction, Why, Worded},
};

use crate::{
    active_jobs::AtOpening,
    admission::Admission,
    job_input::{OfOthers, ReportInput},
    last_reports::{LastReports, NextReports, standing},
    memory::Memory,
    moves::Move,
    plugin::QueueShares,
    queue_report::{inactive, oversubscribed, without_effect},
    session::Session,
    similar, stale_gangs, stuck,
    tried::Tried,
};

mod fragile;
mod others;
mod why;

pub(crate) use self::why::never_fits;

pub use kube_batch_model::job_report::{JobReport, Phase};

pub use crate::queue_report::{QueueReport, ReservationReport, next_queue_status};

/// The result of a cycle.
#[derive(Clone, Debug, PartialEq)]
pub struct Cycle {
    /// The decisions, in order.
    pub decisions: Vec<Decision>,
    /// The place in `jobs` of the job of each decision; `None` if its pod belongs to none.
    pub decided_jobs: Vec<Option<usize>>,
    /// Every job, in row order. Reports that did not change are shared with earlier cycles.
    pub jobs: Arc<Vec<Arc<JobReport>>>,
    /// The places in `jobs` of the reports from which a status may follow; `None` if it may from all. Nothing has changed
    /// about the other jobs, and their statuses are written.
    pub unsettled: Option<Vec<usize>>,
    /// Every queue, in row order.
    pub queues: Vec<QueueReport>,
    /// The allocatable resources of all nodes, as Kubernetes quantities.
    pub total: BTreeMap<String, String>,
    /// Number of evaluations of a node for a class of tasks.
    pub work: u64,
    /// When another cycle is due even if nothing changes: an incomplete gang may be stale then, a task may
    /// have run for long enough to be evicted, a job may get a reservation, or jobs had no turn yet.
    pub next_due: Option<Duration>,
}

impl Cycle {
    /// Forgets the reports of the jobs about which nothing has changed, and which job each decision is about.
    pub fn keep_unsettled(&mut self) {
        if let Some(rows) = self.unsettled.take() {
            self.jobs = Arc::new(rows.iter().map(|at| Arc::clone(&self.jobs[*at])).collect());
            self.decided_jobs.clear();
        }
    }

    /// The reports from which a status may follow.
    pub fn unsettled_jobs(&self) -> impl Iterator<Item = &JobReport> + Clone {
        let all = self.unsettled.is_none().then_some(&*self.jobs).into_iter().flatten();
        let some = self.unsettled.iter().flatten().map(|at| &self.jobs[*at]);
        all.chain(some).map(|report| &**report)
    }
}

/// Jobs and queues when a cycle begins.
pub(crate) struct Opening {
    pub(crate) queues: Vec<Option<QueueShares>>,
    /// The active jobs, ascending.
    jobs: Vec<(JobIdx, AtOpening)>,
}

impl Opening {
    pub(crate) fn of(session: &Session) -> Self {
        let cluster = session.cluster();
        let queues = cluster.queues.facts.ids();
        let jobs = session.active_jobs().iter();
        Self {
            queues: queues.map(|queue| session.plugins().queue_shares(queue)).collect(),
            jobs: jobs.map(|job| (*job, session.as_it_is(*job))).collect(),
        }
    }
}

/// Ends a session and returns its result, and what is to be remembered.
pub(crate) fn close(session: &mut Session, opening: Opening) -> (Cycle, Memory) {
    why::mark_never_fitting(session);
    others::find(session);
    similar::find(session);
    let memory = &mut session.turn_log.memory;
    let last = std::mem::take(&mut memory.reports);
    let last = if memory.recalls { last } else { LastReports::default() };
    let admission = Admission::of(session);
    let (reports, unsettled) = reports(session, opening.jobs, &admission, last);
    let jobs = Arc::clone(&reports.reports);
    let mut memory = session.close_turn_log(&jobs);
    let cluster = session.cluster();
    memory.headroom = session.headroom.remember(
        cluster,
        session.now,
        |job| admission.admits_newly(job),
        |job| admission.admits(job),
    );
    if !session.evicted_gangs.is_empty() || !memory.evicted.is_empty() {
        let evicted = jobs.iter().filter_map(|job| Some((job.key.clone(), job.evicted.clone()?)));
        memory.evicted = evicted.collect();
    }
    let mut phases: Vec<BTreeMap<Phase, u32>> = vec![BTreeMap::new(); cluster.queues.facts.len()];
    for (job, phase) in reports.phase.iter() {
        if let Some((queue, phase)) = cluster.jobs.queue[job].zip(*phase) {
            for queue in cluster.queues.tree.path(queue) {
                *phases[queue.at()].entry(phase).or_default() += 1;
            }
        }
    }
    memory.reports = reports;
    let mut evicted = evicted(session);
    let mut oversubscribed = oversubscribed(session);
    let n_named = cluster.queues.n_named();
    let total = cluster.total();
    let fair_shares = session.plugins().fair_shares();
    let fair_share = |queue: QueueIdx| {
        let shares = fair_shares.as_ref().map(|shares| cluster.dimensions.by_name(&shares[queue]));
        shares.unwrap_or_default()
    };
    let queues = cluster
        .queues
        .facts
        .ids()
        .zip(opening.queues)
        .zip(phases)
        .map(|((queue, opening), groups)| QueueReport {
            evicted: evicted.remove(&queue).unwrap_or_default(),
            oversubscribed: oversubscribed.remove(&queue),
            n_children: n_named[queue],
            fair_share: fair_share(queue),
            without_effect: without_effect(cluster, queue, &total),
            ..queue_report(session, queue, opening, groups)
        })
        .collect();
    let total = cluster.dimensions.display(&total);
    let next_due = if session.turn_log.is_cut() || session.has_postponed() {
        Some(Duration::ZERO)
    } else {
        let next_stuck = stuck::next(cluster, session.policy.termination_timeout());
        let next_stuck = next_stuck.filter(|_| session.waiting_jobs().next().is_some());
        let others = session.next_release().into_iter().chain(next_stuck);
        let others = others.chain(session.headroom.next_end(session.now));
        let others = others.chain(session.next_reservation());
        let others = others.chain(session.policy.next_change(cluster));
        let active = session.active_jobs().iter();
        let no_pods = active.filter(|job| cluster.jobs.tasks[**job].is_empty());
        let mut no_pods = no_pods.map(|job| &jobs[job.at()]);
        let announced = no_pods.any(|job| is_announced(job)).then_some(ANNOUNCED_FOR);
        let others = others.chain(announced);
        let put_off = session.turn_log.large.are_put_off().then_some(NEXT_CREDIT);
        stale_gangs::next_due(session).into_iter().chain(others).chain(put_off).min()
    };
    let work = session.work();
    let decisions = std::mem::take(&mut session.decisions);
    let decided_jobs = session.decided_jobs.iter().map(|job| job.map(Ordinal::at)).collect();
    let unsettled = (unsettled.len() < jobs.len()).then_some(unsettled);
    (Cycle { decisions, decided_jobs, jobs, unsettled, queues, total, work, next_due }, memory)
}

/// The reports of all jobs, and which of them are not those of jobs that were settled.
fn reports(
    session: &Session,
    opening: Vec<(JobIdx, AtOpening)>,
    admission: &Admission,
    last: LastReports,
) -> (LastReports, Vec<usize>) {
    let cluster = session.cluster();
    let mut last = last.into_held();
    let mut opening = opening.into_iter().peekable();
    let is_moved = session.are_moved();
    let mut reports = NextReports::with_capacity(cluster.jobs.key.len());
    for job in cluster.jobs.key.ids() {
        let held = last.take(cluster, job);
        if !session.is_active(job) {
            let held = held.expect("the report of a settled job holds");
            debug_assert_eq!(*held.0, job_report(session, job, session.as_it_is(job), admission));
            reports.push_held(held);
            continue;
        }
        let at_opening = opening.next_if(|(row, _)| *row == job).map(|(_, own)| own);
        let at_opening = at_opening.or_else(|| session.late_opening(job));
        let at_opening = at_opening.expect("it is active since the cycle began, or later");
        let made = || job_report(session, job, at_opening, admission);
        let untouched = held.filter(|_| !is_moved[job] && !session.has_record(job));
        if let Some(held) = untouched.filter(|(report, ..)| report.share == at_opening.share) {
            debug_assert_eq!(*held.0, made());
            reports.push_held(held);
            continue;
        }
        let report = if let Some(known) = known_report(session, job, at_opening.share) {
            debug_assert_eq!(**known, made());
            Arc::clone(known)
        } else {
            Arc::new(made())
        };
        let standing = standing(cluster, job, &report, is_written(&report));
        reports.push(report, standing);
    }
    let unsettled = session.active_jobs().iter().map(|job| job.at()).collect();
    (reports.done(session.whole.clone()), unsettled)
}

/// Whether the status of the PodGroup is as it should be.
fn is_written(report: &JobReport) -> bool {
    // The time does not matter if nothing is written.
    next_group_status(report, Transition { cycle_id: "", now: Timestamp::MIN }).is_none()
}

/// When a job that had not started began to wait, if it has started now.
fn waited_since(session: &Session, job: JobIdx) -> Option<Timestamp> {
    if !session.ready(job).have_started() {
        return None;
    }
    let cluster = session.cluster();
    let placed = cluster.jobs.tasks[job]
        .iter()
        .filter(|task| cluster.tasks.placement[*task].status == TaskStatus::Allocated);
    placed.map(|task| cluster.tasks.facts[task].created).min()
}

/// The number of tasks of each queue that the cycle evicted.
fn evicted(session: &Session) -> BTreeMap<QueueIdx, BTreeMap<EvictReason, u32>> {
    let mut evicted: BTreeMap<QueueIdx, BTreeMap<EvictReason, u32>> = BTreeMap::new();
    for (task, reason) in &session.evicted {
        if let Some(queue) = session.cluster().queue_of(*task) {
            *evicted.entry(queue).or_default().entry(*reason).or_default() += 1;
        }
    }
    evicted
}

fn queue_report(
    session: &Session,
    queue: QueueIdx,
    opening: Option<QueueShares>,
    groups: BTreeMap<Phase, u32>,
) -> QueueReport {
    let cluster = session.cluster();
    let closing = session.plugins().queue_shares(queue);
    let by_name = |vector: Option<&ResourceVector>| {
        vector.map(|v| cluster.dimensions.by_name(v)).unwrap_or_default()
    };
    let reservation = session.reservations().iter().find(|own| {
        cluster.jobs.queue[own.job] == Some(queue) && session.waits_for_reservation(own.job)
    });
    QueueReport {
        reserved: by_name(reservation.map(|own| &own.total)),
        reservation: reservation.map(|own| ReservationReport {
            job: cluster.jobs.key[own.job].clone(),
            since: own.since,
            start: own.start,
            nodes: own.amounts.keys().map(|node| cluster.node_name(*node).clone()).collect(),
        }),
        queue: Arc::clone(&cluster.queues.facts[queue]),
        state: cluster.queues.state(queue),
        n_children: 0,
        inactive: inactive(cluster, queue),
        oversubscribed: None,
        without_effect: Vec::new(),
        guaranteed: by_name(closing.as_ref().map(|shares| &shares.guaranteed)),
        fair_share: BTreeMap::new(),
        deserved: by_name(closing.as_ref().map(|shares| &shares.deserved)),
        allocated: by_name(closing.as_ref().map(|shares| &shares.allocated)),
        pending: by_name(closing.as_ref().map(|shares| &shares.pending)),
        evicted: BTreeMap::new(),
        opening,
        closing,
        groups,
    }
}

/// The report of the last try of a job, if it still holds.
fn known_report(session: &Session, job: JobIdx, share: Option<Share>) -> Option<&Arc<JobReport>> {
    let last = session.turn_log.tried[job].as_ref();
    // Whether another job is before it does not follow from its own try.
    let is_strict = session.cluster().jobs.queue[job].is_some_and(|queue| session.is_strict(queue));
    let last = last.filter(|_| session.turn_log.is_remembered(job) && !is_strict)?;
    let Tried { report, found, .. } = &*last.tried;
    let failure = found.as_ref().map(|found| &found.failure);
    let current = report_input(session, job, share);
    (ReportInput::of(report, failure) == current).then_some(report)
}

/// What the report of a job depends on in this cycle. A job that was tried has pods, so it is admitted.
fn report_input(session: &Session, job: JobIdx, share: Option<Share>) -> ReportInput<'_> {
    let jobs = &session.cluster().jobs;
    let failure = session.shared_failure(job);
    ReportInput {
        group: jobs.group[job].as_ref().map(Arc::as_ptr),
        warnings: fragile::warnings(session, job),
        share,
        was_tried: session.was_tried(job),
        n_fitting: n_fitting_of(session, job),
        failure: failure.map(Arc::as_ptr),
        others: session.others.get(&job),
        of_others: OfOthers {
            protected_gang: session.refused_gang(job).is_some(),
            eviction: session.evicted_gangs.contains_key(&job),
            left_out: session.turn_log.is_left_out(job),
            later_shares: failure.is_none() && !session.nothing_is_decided(),
        },
    }
}

/// Number of tasks of a job that have a place, or had one in the best try of this cycle.
fn n_fitting_of(session: &Session, job: JobIdx) -> u32 {
    session.n_fitting(job).max(session.ready(job).n)
}

fn job_report(
    session: &Session,
    job: JobIdx,
    AtOpening { share, had_started }: AtOpening,
    admission: &Admission,
) -> JobReport {
    let cluster = session.cluster();
    let counts = &cluster.jobs.counts[job];
    let n_tasks = cluster.jobs.tasks[job].len() as u32;
    let group = cluster.jobs.group[job].as_ref();
    let completed = group
        .filter(|group| n_tasks == 0 && stays_completed(group) || is_over(session, job, group));
    let stored = |number: i32| u32::try_from(number).unwrap_or_default();
    let (succeeded, failed) = match completed {
        Some(group) => (stored(group.status.succeeded), stored(group.status.failed)),
        None => (counts.of(TaskStatus::Succeeded), counts.of(TaskStatus::Failed)),
    };
    let finished = completed.is_some() || n_tasks > 0 && succeeded + failed == n_tasks;
    let is_admitted = admission.admits(job);
    let warnings = fragile::warnings(session, job);
    let is_news = || {
        group.is_some_and(|group| is_news(group, n_tasks, is_admitted))
            && !warnings.iter().any(JobWarning::explains_missing_pods)
    };
    // Nothing waits any more, and the reason is what users look for.
    let has_failed = || cluster.jobs.batch[job].iter().any(|own| own.state.has_failed());
    let unschedulable = if finished && !has_failed() || is_news() {
        None
    } else {
        let not_admitted = admission.lacking(cluster, job).map(Why::NotAdmitted);
        not_admitted.or_else(|| why::of_job(session, job))
    };
    let ready = session.ready(job);
    let running = counts.of(TaskStatus::Running);
    let min_available = cluster.jobs.min_available[job];
    let phase = if finished {
        Phase::Completed
    } else if running > 0 && unschedulable.is_some() {
        Phase::Unknown
    } else if ready.are_enough() && cluster.is_schedulable(job) {
        Phase::Running
    } else {
        Phase::Pending
    };
    let unplaced = unplaced(session, job);
    let unplaced_because = unplaced_because(session, job, &unplaced, unschedulable.as_ref());
    let n_fitting = n_fitting_of(session, job);
    let n_waiting = counts.of(TaskStatus::Pending);
    JobReport {
        key: cluster.jobs.key[job].clone(),
        group: cluster.jobs.group[job].clone(),
        queue: cluster.jobs.queue[job].map(|queue| cluster.queues.facts[queue].name.clone()),
        phase,
        min_available,
        n_tasks,
        n_fitting,
        n_remaining: n_waiting.saturating_sub(n_fitting - ready.n + 1),
        has_started: ready.have_started(),
        is_admitted,
        ready: ready.n,
        running,
        succeeded,
        failed,
        pending: n_waiting,
        lacking: ready.n_missing(),
        unplaced,
        unplaced_because: unplaced_because.map(Worded::new),
        unschedulable: unschedulable.map(Worded::new),
        first_pod: first_pod(cluster, job, &warnings),
        warnings: warnings.into_owned(),
        evicted: evicted_as_a_whole(session, job, phase),
        tried: session.was_tried(job),
        share,
        waited_since: if had_started { None } else { waited_since(session, job) },
    }
}

/// Time to the next cycle while a large turn is put off: each cycle adds to the credit of its queue.
const NEXT_CREDIT: Duration = Duration::from_secs(1);

/// After so much time it is reported that a PodGroup which was admitted lacks its pods.
const ANNOUNCED_FOR: Duration = Duration::from_secs(1);

/// Whether a PodGroup without pods stays `Completed`: all its pods finished and were deleted. Not if a controller waits for
/// another phase before it creates pods again.
// Parity: see docs/parity.md#e4-phases.
fn stays_completed(group: &GroupFacts) -> bool {
    let statuses = group.version.statuses();
    group.status.phase == Phase::Completed.name() && !statuses.waits_for_admission()
}

/// Whether no pods come for a PodGroup any more: all its Jobs of `batch` have ended, or they and its pods were deleted.
// Parity: see docs/parity.md#e4-phases.
fn is_over(session: &Session, job: JobIdx, group: &GroupFacts) -> bool {
    let cluster = session.cluster();
    let is_terminating =
        |status: TaskStatus| matches!(status, TaskStatus::Releasing | TaskStatus::Stuck);
    let n_terminating = cluster.jobs.counts[job].sum(is_terminating) as usize;
    if n_terminating < cluster.jobs.tasks[job].len()
        || group.version.statuses().waits_for_admission()
    {
        return false;
    }
    let batch = &cluster.jobs.batch[job];
    match batch.is_empty() {
        true => session.turn_log.memory.with_batch.contains(&cluster.jobs.key[job]),
        false => batch.iter().all(|own| own.state.has_ended()),
    }
}

/// Whether it is news that pods of a PodGroup may be created: its controller does not know yet, so that there are
/// none is no problem.
fn is_news(group: &GroupFacts, n_tasks: u32, is_admitted: bool) -> bool {
    let waits = group.version.statuses().waits_for_admission();
    let is_known = group.version.statuses().is_admitted(&group.status);
    n_tasks == 0 && is_admitted && waits && !is_known
}

fn is_announced(report: &JobReport) -> bool {
    let group = report.group.as_ref();
    group.is_some_and(|group| is_news(group, report.n_tasks, report.is_admitted))
}

/// The pod on which the mistakes of a job without a PodGroup are reported.
fn first_pod(cluster: &Cluster, job: JobIdx, warnings: &[JobWarning]) -> Option<PodRef> {
    if warnings.is_empty() || cluster.jobs.group[job].is_some() {
        return None;
    }
    cluster.jobs.tasks[job].iter().next().map(|task| cluster.pod(task))
}

/// Why a gang was evicted as a whole, if it was and has not run since.
fn evicted_as_a_whole(session: &Session, job: JobIdx, phase: Phase) -> Option<GangEviction> {
    let cluster = session.cluster();
    let Some(gang) = session.evicted_gangs.get(&job) else {
        let before = session.turn_log.memory.evicted.get(&cluster.jobs.key[job]);
        return before.filter(|_| phase != Phase::Running).cloned();
    };
    let by = session.named_to(job, gang.by).expect("a scheduled job has a queue");
    Some(GangEviction { cause: EvictionCause::new(gang.reason, by), n_pods: gang.n_tasks })
}

/// The problem of a job that is reported on its pods: without a PodGroup, or with one that has no conditions, all.
fn problem_of_pods(cluster: &Cluster, job: JobIdx) -> Option<&JobProblem> {
    let group = cluster.jobs.group[job].as_ref();
    let has_conditions = group.is_some_and(|group| group.version.statuses().has_conditions());
    let problem = cluster.jobs.problem[job].as_ref();
    problem.filter(|problem| !has_conditions || problem.is_reported_on_pods())
}

/// The waiting pods of a job on which a condition says why they wait.
fn unplaced(session: &Session, job: JobIdx) -> Vec<PodRef> {
    let is_reported = problem_of_pods(session.cluster(), job).is_some()
        || session.was_tried(job)
        || why::waits_for_share(session, job);
    if is_reported { waiting_pods(session, job) } else { Vec::new() }
}

fn unplaced_because(
    session: &Session,
    job: JobIdx,
    unplaced: &[PodRef],
    of_job: Option<&Why>,
) -> Option<Why> {
    if unplaced.is_empty() {
        return None;
    }
    let cluster = session.cluster();
    Some(match problem_of_pods(cluster, job) {
        Some(problem) => why::of_problem(session, job, problem),
        None => why::of_pods(session, job, of_job),
    })
}

/// The pods of a job that are not bound.
fn waiting_pods(session: &Session, job: JobIdx) -> Vec<PodRef> {
    let cluster = session.cluster();
    let kept: BTreeSet<TaskIdx> =
        session.kept.get(&job).into_iter().flatten().map(Move::task).collect();
    let waits = |task: &TaskIdx| match cluster.status(*task) {
        TaskStatus::Pending => cluster.is_waiting(*task),
        TaskStatus::Pipelined => true,
        TaskStatus::Allocated => kept.contains(task),
        TaskStatus::Binding
        | TaskStatus::Bound
        | TaskStatus::Running
        | TaskStatus::Releasing
        | TaskStatus::Stuck
        | TaskStatus::Succeeded
        | TaskStatus::Failed
        | TaskStatus::Unknown => false,
    };
    cluster.jobs.tasks[job].iter().filter(waits).map(|task| cluster.pod(task)).collect()
}

/// The status a PodGroup should have after a cycle, if it differs from the one it has.
pub fn next_group_status(report: &JobReport, at: Transition<'_>) -> Option<PodGroupStatus> {
    let group = report.group.as_ref()?;
    let next = group.version.statuses().next_status(&group.status, report, at);
    (next != group.status).then_some(next)
}
