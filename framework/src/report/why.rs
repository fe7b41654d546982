//! Why a job cannot start, and why its pods wait, with the names and amounts that only the session knows.

use std::{collections::BTreeSet, sync::Arc};

use kube_batch_model::{
    cluster::{Capacity, Cluster},
    column::{Dim, JobIdx, NodeIdx, QueueIdx, TaskIdx},
    decision::JobInQueue,
    facts::batch_job::BatchJobState,
    name::{JobKey, Name},
    object_status::{PREEMPTED, PodGroupCondition, RECLAIMED, UNSCHEDULABLE},
    others::Others,
    problem::JobProblem,
    reason::{Cause, FitReport, Reason},
    resource::{ResourceVector, is_extended_resource},
    status::TaskStatus,
    why::{
        IdleJob, Invalid, Lacking, LastEviction, LimitUse, MissingPods, NeverFits, NoPlace,
        NotTried, Obstacle, OverCapability, OwnPlaces, OwnReservation, ProtectedGang, QueueAtShare,
        ShareInUse, StuckPod, Why,
    },
};

use crate::{
    candidates::Room,
    failure::{Failure, QueueLimit, RefusedGang},
    guarantees::KeptFree,
    minimum::Minimum,
    session::Session,
    similar,
    topology::JobTopology,
};

/// How many reserved nodes a message names.
const MAX_NODES_NAMED: usize = 3;

/// How many Jobs that create no pods a message names.
const MAX_JOBS_NAMED: usize = 2;

/// Why a job cannot start.
// Parity: the real reasons, see docs/parity.md#e2.
pub(super) fn of_job(session: &Session, job: JobIdx) -> Option<Why> {
    let cluster = session.cluster();
    if let Some(problem) = &cluster.jobs.problem[job] {
        return Some(of_problem(session, job, problem));
    }
    let missing = session.ready(job).n_missing();
    if missing == 0 || !session.policy.settings().reports_unready_jobs {
        return None;
    }
    if session.turn_log.is_left_out(job) && !session.was_tried(job) {
        return Some(Why::NotTried(not_tried(session, job)));
    }
    let obstacle = obstacle(session, job);
    let lacking = match (session.failure(job), cluster.jobs.tasks[job].len()) {
        _ if matches!(obstacle, Obstacle::Nominated(_)) => Lacking::Implied,
        (Some(Failure::Unfit(_)), 1) => Lacking::OnlyPod,
        (Some(Failure::Unfit(_)), _) if is_no_gang(cluster, job) => Lacking::NoGang,
        (Some(Failure::Unfit(_)), _) => {
            let min = cluster.jobs.min_available[job];
            Lacking::OfGang { min, n_fitting: session.n_fitting(job).min(min) }
        }
        (
            Some(
                Failure::QueueLimit(_)
                | Failure::Withheld(_)
                | Failure::Held(_)
                | Failure::Reserved { .. }
                | Failure::Undecided(_)
                | Failure::NeverFits(_)
                | Failure::NoDomain(_)
                | Failure::NotEnoughGroups(_),
            ),
            _,
        )
        | (None, 1) => Lacking::Implied,
        (None, _) => Lacking::Pods(missing),
    };
    let refused = session.refused_gang(job);
    Some(Why::NoPlace(Box::new(NoPlace {
        lacking,
        obstacle: Arc::new(obstacle),
        protected: refused.and_then(|refused| protected_gang(session, job, refused).map(Box::new)),
        reservation: own_reservation(session, job).map(Box::new),
        others: others(session, job),
    })))
}

/// Why the waiting pods of a job that is scheduled wait.
pub(super) fn of_pods(session: &Session, job: JobIdx, of_job: Option<&Why>) -> Why {
    let obstacle = match of_job {
        Some(Why::NoPlace(why)) => Arc::clone(&why.obstacle),
        Some(Why::Invalid(_) | Why::NotAdmitted(_) | Why::NotTried(_)) | None => {
            Arc::new(obstacle(session, job))
        }
    };
    let is_unfit = matches!(*obstacle, Obstacle::Unfit { .. });
    let lacking = match is_unfit && is_no_gang(session.cluster(), job) {
        true => Lacking::NoGang,
        false => Lacking::Implied,
    };
    Why::NoPlace(Box::new(NoPlace {
        lacking,
        obstacle,
        protected: None,
        reservation: None,
        others: others(session, job),
    }))
}

/// Whether a job is several pods of one controller that are no gang: their owner may have forgotten to say so.
fn is_no_gang(cluster: &Cluster, job: JobIdx) -> bool {
    matches!(cluster.jobs.key[job], JobKey::Shadow { .. })
        && cluster.jobs.min_available[job] <= 1
        && cluster.jobs.tasks[job].len() > 1
}

/// How other jobs and queues keep a job waiting.
fn others(session: &Session, job: JobIdx) -> Option<Arc<Others>> {
    session.others.get(&job).map(Arc::clone)
}

/// Which gang could make room, and why it stays.
fn protected_gang(session: &Session, job: JobIdx, refused: &RefusedGang) -> Option<ProtectedGang> {
    let RefusedGang { gang, dim, amount, usable } = *refused;
    let cluster = session.cluster();
    Some(ProtectedGang {
        gang: session.named_to(job, gang)?,
        max_loss: session.plugins().max_loss().unwrap_or_default(),
        resource: cluster.dimensions.name(dim).clone(),
        freed: amount,
        usable,
    })
}

/// Why a job had no turn, because other jobs of its queue were tried in vain or its turn is large. What the status of
/// its PodGroup says of an earlier try stays, as far as that is about places.
// Parity: see docs/parity.md#o5.
fn not_tried(session: &Session, job: JobIdx) -> NotTried {
    let group = session.cluster().jobs.group[job].iter();
    let mut conditions = group.flat_map(|group| &group.status.conditions);
    let condition =
        conditions.find(|condition| condition.type_ == UNSCHEDULABLE && condition.status == "True");
    let known = condition.and_then(|condition| {
        let reason = Reason::from(Name::from(&*condition.reason));
        let message = Name::from(&*condition.message);
        reason.is_of_tried().then_some(NotTried::AsBefore { reason, message })
    });
    known.unwrap_or(match session.turn_log.large.is_put_off(job) {
        true => NotTried::ManyTemplates,
        false => NotTried::OthersFirst,
    })
}

/// Whether the job had no turn because its queue is at its fair share.
pub(super) fn waits_for_share(session: &Session, job: JobIdx) -> bool {
    let queue = session.cluster().jobs.queue[job];
    let n_leaving = session.cluster().jobs.counts[job].of(TaskStatus::Releasing);
    let is_overused = queue.is_some_and(|queue| session.plugins().overused(queue));
    !session.was_tried(job) && n_leaving == 0 && is_overused
}

/// Marks the jobs that can never start on the nodes there are, or in their queue.
pub(super) fn mark_never_fitting(session: &mut Session) {
    let total = session.cluster().total();
    for job in session.active_jobs().to_vec() {
        if session.failure(job).is_some()
            && !session.turn_log.is_remembered_with_input(job)
            && !session.ready(job).are_enough()
            && let Some(never) = never_fitting(session, job, &total)
        {
            session.replace_failure(job, Some(Failure::NeverFits(never)));
        }
    }
}

/// Whether a job that waits can never start.
pub(crate) fn never_fits(session: &mut Session, job: JobIdx) -> bool {
    let total = session.cluster().total();
    session.failure(job).is_some() && never_fitting(session, job, &total).is_some()
}

/// Why a job that waits can never start.
fn never_fitting(session: &mut Session, job: JobIdx, total: &ResourceVector) -> Option<NeverFits> {
    let cluster = session.cluster();
    let minimum = Minimum::of(cluster, job);
    let queue = cluster.jobs.queue[job].expect("a job that is scheduled has a queue");
    for queue in cluster.queues.tree.path(queue) {
        let capability = cluster.queues.capability[queue].iter().copied();
        if let Some(excess) = minimum.exceeded(cluster, capability) {
            return Some(NeverFits::Capability { queue: name_of(cluster, queue), excess });
        }
    }
    let now = match session.failure(job)? {
        // The nodes have room for the first of its tasks.
        Failure::NotEnoughGroups(_) => return None,
        Failure::Withheld(_) | Failure::Held(_) | Failure::Reserved { .. } => {
            FitReport::new(cluster.nodes.facts.len())
        }
        failure @ (Failure::Unfit(_)
        | Failure::Undecided(_)
        | Failure::NoDomain(_)
        | Failure::NeverFits(_)
        | Failure::QueueLimit(_)) => {
            let report = failure.fit_report();
            report.filter(|report| report.has_cause(Cause::Resources))?.clone()
        }
    };
    let totals = cluster.dimensions.ids().map(|dim| (dim, total[dim]));
    if let Some(excess) = minimum.exceeded(cluster, totals) {
        return Some(NeverFits::Total(excess));
    }
    if let Some(resource) = minimum.unknown_resource(cluster) {
        return Some(NeverFits::UnknownResource(resource.clone()));
    }
    let required = session.plugins().topology(job).and_then(JobTopology::required_level);
    if required.is_some_and(|required| !required.n_tasks().is_empty() || required.is_limited()) {
        // Once its tasks are gone, it may use other domains.
        return None;
    }
    let n_fitting = minimum.count_placeable(session, Room::Ever);
    let topology = session.plugins().topology(job).and_then(JobTopology::required_level);
    let domain = topology.map(|topology| Name::from(topology.level.noun()));
    (n_fitting < minimum.n_tasks()).then_some(NeverFits::Nodes { n_fitting, domain, now })
}

pub(super) fn of_problem(session: &Session, job: JobIdx, problem: &JobProblem) -> Why {
    let lacks_pods = matches!(
        problem,
        JobProblem::NotEnoughTasks { .. } | JobProblem::NotEnoughTasksOfRole { .. }
    );
    let missing = lacks_pods.then(|| missing_pods(session, job));
    let similar = similar::of(session, job);
    Why::Invalid(Box::new(Invalid { problem: problem.clone(), missing, similar }))
}

fn missing_pods(session: &Session, job: JobIdx) -> MissingPods {
    let cluster = session.cluster();
    let tasks = cluster.jobs.tasks[job].iter();
    let mistakes = cluster.jobs.warnings[job].iter();
    let idle = cluster.jobs.batch[job].iter().filter(|own| is_idle(&own.state));
    let n_idle = idle.clone().count();
    let idle = idle.take(MAX_JOBS_NAMED);
    let idle_jobs: Vec<IdleJob> =
        idle.map(|own| IdleJob { name: own.key.name.clone(), state: own.state.clone() }).collect();
    MissingPods {
        n_gated: tasks.filter(|task| cluster.tasks.gated[*task]).count() as u32,
        n_failed: cluster.jobs.counts[job].of(TaskStatus::Failed),
        mistakes: mistakes.filter(|w| w.explains_missing_pods()).cloned().collect(),
        n_more_idle: n_idle - idle_jobs.len(),
        idle_jobs,
        evicted: last_eviction(session, job),
    }
}

/// Whether a Job creates no pods now, or only after a pause.
const fn is_idle(state: &BatchJobState) -> bool {
    match state {
        BatchJobState::Active { n_failed } => *n_failed > 0,
        BatchJobState::Suspended | BatchJobState::Complete | BatchJobState::Failed { .. } => true,
    }
}

/// Why the pods of a gang were evicted together, and when, as the status of its PodGroup says.
fn last_eviction(session: &Session, job: JobIdx) -> Option<LastEviction> {
    let cluster = session.cluster();
    let gang = session.turn_log.memory.evicted.get(&cluster.jobs.key[job])?;
    let mut conditions = cluster.jobs.group[job].iter().flat_map(|group| &group.status.conditions);
    let is_eviction = |condition: &&PodGroupCondition| {
        [PREEMPTED, RECLAIMED].contains(&&*condition.type_) && condition.status == "True"
    };
    let condition = conditions.find(is_eviction);
    let at = condition.and_then(|condition| condition.last_transition_time);
    Some(LastEviction { cause: gang.cause.clone(), at })
}

/// What keeps tasks of the job from a place.
fn obstacle(session: &Session, job: JobIdx) -> Obstacle {
    let cluster = session.cluster();
    let queue = cluster.jobs.queue[job].expect("a job that is scheduled has a queue");
    let n_leaving = cluster.jobs.counts[job].of(TaskStatus::Releasing);
    if let Some(places) = own_places(session, job) {
        return Obstacle::Nominated(Box::new(places));
    }
    match session.failure(job) {
        Some(Failure::Unfit(report)) => {
            Obstacle::Unfit { report: report.clone(), stuck: stuck_pod(session, job).map(Box::new) }
        }
        Some(Failure::Undecided(report)) => {
            let min = cluster.jobs.min_available[job];
            let n_fitting = session.n_fitting(job).min(min);
            Obstacle::Undecided { report: report.clone(), min, n_fitting }
        }
        Some(Failure::NoDomain(failure)) => Obstacle::NoDomain(failure.clone()),
        Some(Failure::NotEnoughGroups(failure)) => Obstacle::NotEnoughGroups(failure.clone()),
        Some(Failure::NeverFits(never)) => Obstacle::NeverFits {
            min: cluster.jobs.min_available[job].max(1),
            because: never.clone(),
        },
        Some(Failure::QueueLimit(limit)) => over_limit(session, job, *limit),
        Some(Failure::Withheld(holder)) => Obstacle::Withheld {
            queue: at_share(session, job, queue),
            holder: holder.and_then(|holder| session.named_to(job, holder)),
        },
        Some(Failure::Held(by)) => held_for(session, job, *by),
        Some(Failure::Reserved { node, holder }) => reserved_for(session, job, (*node, *holder)),
        None if !session.was_tried(job) && n_leaving > 0 => {
            Obstacle::Terminating { n_pods: n_leaving }
        }
        None if let Some(first) = session.held_up_by(job) => {
            Obstacle::Order { first: known(session.named_to(job, first)) }
        }
        None if waits_for_share(session, job) => {
            Obstacle::QueueShare { queue: at_share(session, job, queue) }
        }
        None => Obstacle::NotCompared { n_nodes: cluster.nodes.facts.len() },
    }
}

/// The first pod that does not end although a waiting task of the job would fit on its node without it.
// Parity: see docs/parity.md#p13.
fn stuck_pod(session: &Session, job: JobIdx) -> Option<StuckPod> {
    let cluster = session.cluster();
    let stuck = cluster.terminating.keys().copied();
    let mut stuck = stuck.filter(|task| cluster.status(*task) == TaskStatus::Stuck).peekable();
    stuck.peek()?;
    let first = cluster.jobs.tasks[job].iter().find(|task| cluster.is_waiting(*task))?;
    let request = cluster.request(first);
    let pod = stuck.find(|task| {
        let Some(node) = cluster.tasks.placement[*task].node else { return false };
        let mut free = cluster.nodes.idle[node].to_vec();
        cluster.request(*task).charge(&mut free, 1);
        !cluster.nodes.fits(node, request, Capacity::Idle) && request.fits_in(&free)
    })?;
    let facts = &cluster.tasks.facts[pod];
    Some(StuckPod {
        pod: session.pod_named_to(job, pod),
        node: cluster.node_of(pod)?.clone(),
        grace_period_end: facts.terminates_at,
        has_passed: cluster.terminating[&pod].left.is_zero(),
    })
}

fn name_of(cluster: &Cluster, queue: QueueIdx) -> Name {
    cluster.queues.facts[queue].name.clone()
}

/// A job that is scheduled.
fn known(job: Option<JobInQueue>) -> JobInQueue {
    job.expect("a job that is scheduled has a queue")
}

/// The queue of a path that is at its fair share.
fn at_share(session: &Session, job: JobIdx, queue: QueueIdx) -> QueueAtShare {
    let name = |queue| name_of(session.cluster(), queue);
    let overused = session.plugins().overused_on_path(queue).unwrap_or(queue);
    QueueAtShare {
        queue: name(overused),
        above: (overused != queue).then(|| name(queue)),
        held: held(session, job, overused),
    }
}

/// What a queue uses of a resource that a job waits for and of which it uses all that it deserves; an extended one if there
/// is one.
fn held(session: &Session, job: JobIdx, queue: QueueIdx) -> Option<ShareInUse> {
    let cluster = session.cluster();
    let over = cluster.dimensions.shared().filter_map(|dim| {
        let spare = session.plugins().spare(queue, dim)?;
        (cluster.jobs.waiting[job][dim] > 0 && spare >= 0).then_some((dim, spare))
    });
    let is_plain = |dim: Dim| !is_extended_resource(cluster.dimensions.name(dim));
    let (dim, spare) = over.min_by_key(|(dim, _)| (is_plain(*dim), *dim))?;
    let used = cluster.queues.held[queue][dim];
    let resource = cluster.dimensions.name(dim).clone();
    Some(ShareInUse { resource, used, deserved: used - spare })
}

/// The places of a job whose minimum has some, if pods still have to terminate there.
fn own_places(session: &Session, job: JobIdx) -> Option<OwnPlaces> {
    if !session.keeps_moves(job) || !session.plugins().job_pipelined(job) {
        return None;
    }
    let cluster = session.cluster();
    let placement = |task: TaskIdx| cluster.tasks.placement[task];
    let nodes: BTreeSet<NodeIdx> =
        session.kept_tasks(job).filter_map(|task| placement(task).node).collect();
    let leaving = nodes.iter().filter_map(|node| session.leaving.get(node));
    let n_leaving = leaving.clone().map(|leaving| leaving.n_pods).sum();
    let end = leaving.map(|leaving| leaving.end).collect::<Option<Vec<_>>>();
    if n_leaving == 0 {
        return None;
    }
    let names = nodes.iter().map(|node| cluster.node_name(*node).clone());
    let names: Vec<Name> = names.take(MAX_NODES_NAMED).collect();
    Some(OwnPlaces {
        n_pods: session.kept_tasks(job).count() as u32,
        n_more: nodes.len() - names.len(),
        nodes: names,
        n_leaving,
        end: end.and_then(|ends| ends.into_iter().max()),
    })
}

fn over_limit(session: &Session, job: JobIdx, limit: QueueLimit) -> Obstacle {
    let cluster = session.cluster();
    match limit {
        QueueLimit::Capability { queue, dim } => {
            Obstacle::Capability(Box::new(over_capability(session, job, queue, dim)))
        }
        QueueLimit::Jobs { queue, most } => Obstacle::Jobs { queue: name_of(cluster, queue), most },
        QueueLimit::Guarantee(KeptFree { dim, queue, amount }) => Obstacle::Guaranteed {
            queue: name_of(cluster, queue),
            resource: cluster.dimensions.name(dim).clone(),
            amount,
        },
    }
}

/// The limit of a queue that a job would exceed, what the queue uses of it, and what the job needs.
fn over_capability(session: &Session, job: JobIdx, queue: QueueIdx, dim: Dim) -> OverCapability {
    let cluster = session.cluster();
    let mut limits = cluster.queues.capability[queue].iter();
    let limit = limits.find(|(own, _)| *own == dim).map_or(0, |(_, limit)| *limit);
    let missing = (session.ready(job).n_missing() as usize).max(1);
    let waiting = session.waiting_tasks(job);
    let needs: i64 = waiting.iter().take(missing).map(|t| cluster.request(*t).get(dim)).sum();
    let kept = session.headroom.of_queue(queue, dim) - session.headroom.of_job(job, dim);
    // What the job holds is in what the queue uses.
    let minimum =
        session.headroom.min_of(job).map_or(0, |min| min[dim] - cluster.jobs.held[job][dim]);
    OverCapability {
        queue: name_of(cluster, queue),
        resource: cluster.dimensions.name(dim).clone(),
        limit,
        in_use: LimitUse { used: cluster.queues.used(queue, dim), kept },
        needed: needs.max(minimum),
        is_min_resources: minimum > needs,
    }
}

// Parity: see docs/parity.md#p14.
fn held_for(session: &Session, job: JobIdx, by: JobIdx) -> Obstacle {
    let queues = &session.cluster().jobs.queue;
    let is_of_other_queue = queues[job] != queues[by];
    let by = known(session.named_to(job, by));
    match is_of_other_queue {
        true => Obstacle::WouldBeReclaimed { by },
        false => Obstacle::WouldBePreempted { by },
    }
}

/// For whom the room is reserved that a job would need.
// Parity: see docs/parity.md#a12.
fn reserved_for(session: &Session, job: JobIdx, (node, holder): (NodeIdx, JobIdx)) -> Obstacle {
    Obstacle::Reserved {
        node: session.cluster().node_name(node).clone(),
        holder: known(session.named_to(job, holder)),
        since: session.reservation_of(holder).map_or(session.now, |own| own.since),
    }
}

/// What is reserved for a job that waits. A job with nominations has its places by them.
// Parity: see docs/parity.md#a12.
fn own_reservation(session: &Session, job: JobIdx) -> Option<OwnReservation> {
    let own = session.reservation_of(job).filter(|own| !own.amounts.is_empty())?;
    let cluster = session.cluster();
    let names = own.amounts.keys().map(|node| cluster.node_name(*node).clone());
    let nodes: Vec<Name> = names.take(MAX_NODES_NAMED).collect();
    Some(OwnReservation { since: own.since, n_more: own.amounts.len() - nodes.len(), nodes })
}
