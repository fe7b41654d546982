//! Why a job cannot start: the reason and message of its condition.

use kube_batch_model::{
    cluster::Cluster,
    column::{Dim, JobIdx, NodeIdx, QueueIdx},
    name::Name,
    object_status::UNSCHEDULABLE,
    problem::JobProblem,
    reason::{Cause, FitReport, MORE_NODES_WOULD_HELP, REASONS_OF_LOAD},
    resource::{ResourceVector, Unit},
    status::TaskStatus,
};

use crate::{
    admission::kept_for_others,
    candidates::Room,
    failure::{BestDomain, Excess, Failure, NeverFits, NoDomain, NotEnoughGroups, RefusedGang},
    minimum::Minimum,
    moves::Move,
    session::Session,
    topology::JobTopology,
};

/// How many reserved nodes a message names.
const MAX_NODES_NAMED: usize = 3;

/// The number of tasks that count towards the minimum of a job.
pub(super) fn ready(session: &Session, job: JobIdx) -> u32 {
    // Tasks whose moves are only kept do not start.
    let kept = session.kept.get(&job).into_iter().flatten();
    let n_kept = kept.filter(|made| !Move::is_pipeline(made)).count() as u32;
    session.cluster().jobs.counts[job].ready() - n_kept
}

/// The number of tasks missing to the minimum of a job.
pub(super) fn lacking(session: &Session, job: JobIdx) -> u32 {
    session.cluster().jobs.min_available[job].saturating_sub(ready(session, job))
}

/// The reason and message of a job that cannot start.
// Parity: the real reasons, see docs/parity.md#e2.
pub(super) fn unschedulable(session: &Session, job: JobIdx) -> Option<(&'static str, String)> {
    let cluster = session.cluster();
    if let Some(problem) = &cluster.jobs.problem[job] {
        return Some((problem.reason(), of_problem(cluster, job, problem)));
    }
    let missing = lacking(session, job);
    if missing == 0 || !session.policy.settings().reports_unready_jobs {
        return None;
    }
    if session.turn_log.is_left_out(job) && !session.was_tried(job) {
        return Some(not_tried(session, job));
    }
    let why = of_failure(session, job);
    let message = match (session.failure(job), cluster.jobs.tasks[job].len()) {
        (
            Some(
                Failure::Capability(_)
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
        | (None, 1) => why,
        (Some(Failure::Unfit(_)), 1) => format!("the pod fits on no node: {why}"),
        (Some(Failure::Unfit(_)), _) => gang_message(session, job, &why),
        (None, _) => format!("{missing} more pods must be placed: {why}"),
    };
    let refused = session.refused_gang(job).map(|gang| refused_gang(session, gang));
    let message = message + &refused.unwrap_or_default() + &own_reservation(session, job);
    Some((reason_of(session, job), message))
}

/// Which gang could make room, and why it stays.
// Parity: see docs/parity.md#p15.
fn refused_gang(session: &Session, refused: &RefusedGang) -> String {
    let RefusedGang { gang, dim, amount, usable } = *refused;
    let cluster = session.cluster();
    let resource = cluster.dimensions.name(dim);
    let display = |amount: i64| Unit::of(resource).display(amount);
    let max_loss = session.plugins().max_loss().unwrap_or_default();
    let (gang, evicted, usable) = (&cluster.jobs.key[gang], display(amount), display(usable));
    format!(
        "; gang {gang} is protected by gang.maxLoss ({max_loss}): evicting it frees {evicted} {resource}, and this queue can \
         use only {usable}"
    )
}

/// The reason and message of a job that had no turn, because other jobs of its queue were tried in vain or
/// its turn is large: those it has, as far as they are about resources.
// Parity: see docs/parity.md#o5.
fn not_tried(session: &Session, job: JobIdx) -> (&'static str, String) {
    let group = session.cluster().jobs.group[job].iter();
    let text = match session.turn_log.large.is_put_off(job) {
        true => "not tried in every cycle, because its pods have many different templates",
        false => "other jobs of its queue are tried before it, in this cycle or the next",
    };
    let mut conditions = group.flat_map(|group| &group.status.conditions);
    let condition =
        conditions.find(|condition| condition.type_ == UNSCHEDULABLE && condition.status == "True");
    let known = condition.and_then(|condition| {
        let reason = REASONS.into_iter().find(|reason| *reason == condition.reason)?;
        Some((reason, condition.message.clone()))
    });
    known.unwrap_or_else(|| ("NotTried", text.to_owned()))
}

/// The reasons that a job may have which is scheduled and finds no place.
const REASONS: [&str; 9] = [
    "NeverFits",
    "NotEnoughGroups",
    "NotEnoughResources",
    "NotTried",
    "QueueCapability",
    "QueueShare",
    "ResourcesReserved",
    "Unschedulable",
    "VolumeNotReady",
];

/// How much of a gang fits, and why the rest does not.
fn gang_message(session: &Session, job: JobIdx, why: &str) -> String {
    let min = session.cluster().jobs.min_available[job];
    let n_fitting = session.n_fitting(job).min(min);
    match min - n_fitting {
        _ if min <= 1 => format!("none of its pods fits on a node: {why}"),
        0 => format!("{min} of {min} pods fit, but not at the same time: {why}"),
        1 => format!("{n_fitting} of {min} pods fit; 1 finds no node: {why}"),
        n_unfit => format!("{n_fitting} of {min} pods fit; {n_unfit} find no node: {why}"),
    }
}

// Parity: see docs/parity.md#a11.
fn undecided(session: &Session, job: JobIdx) -> String {
    let min = session.cluster().jobs.min_available[job];
    let n_fitting = session.n_fitting(job).min(min);
    format!(
        "{n_fitting} of {min} pods fit in the orders that were tried; the search for another one ended at its bound"
    )
}

/// The reason code of a job that waits.
fn reason_of(session: &Session, job: JobIdx) -> &'static str {
    let failure = session.failure(job);
    let has_cause =
        |cause| failure.and_then(Failure::fit_report).is_some_and(|report| report.has_cause(cause));
    match failure {
        Some(Failure::Capability(_)) => "QueueCapability",
        Some(Failure::Withheld(_)) => "QueueShare",
        Some(Failure::Reserved { .. }) => "ResourcesReserved",
        Some(Failure::Held(by)) if is_of_other_queue(session.cluster(), job, *by) => "QueueShare",
        Some(Failure::NeverFits(NeverFits::Capability(_))) => "QueueCapability",
        Some(Failure::NeverFits(_)) => "NeverFits",
        Some(_) if has_cause(Cause::Resources) => "NotEnoughResources",
        Some(_) if has_cause(Cause::Volumes) => "VolumeNotReady",
        Some(_) if has_cause(Cause::Rules) => "Unschedulable",
        Some(Failure::NoDomain(failure)) if failure.best.is_none() => "Unschedulable",
        None if waits_for_share(session, job) => "QueueShare",
        Some(Failure::NotEnoughGroups(_)) => "NotEnoughGroups",
        Some(
            Failure::Unfit(_) | Failure::Undecided(_) | Failure::NoDomain(_) | Failure::Held(_),
        )
        | None => "NotEnoughResources",
    }
}

/// The reason of the waiting pods of a job: that of the job if it waits for its queue or a reservation.
// Parity: see docs/parity.md#e9.
pub(super) fn reason_of_pods(session: &Session, job: JobIdx) -> &'static str {
    let reason = reason_of(session, job);
    if REASONS_OF_LOAD.contains(&reason) { reason } else { MORE_NODES_WOULD_HELP }
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
    let jobs: Vec<JobIdx> = session.cluster().jobs.key.ids().collect();
    for job in jobs {
        if session.failure(job).is_some()
            && !session.turn_log.is_remembered(job)
            && lacking(session, job) > 0
            && let Some(never) = never_fitting(session, job, &total)
        {
            session.replace_failure(job, Some(Failure::NeverFits(never)));
        }
    }
}

/// Why a job that waits can never start.
fn never_fitting(session: &mut Session, job: JobIdx, total: &ResourceVector) -> Option<NeverFits> {
    let cluster = session.cluster();
    let minimum = Minimum::of(cluster, job);
    let queue = cluster.jobs.queue[job].expect("a job that is scheduled has a queue");
    let capability = cluster.queues.capability[queue].iter().copied();
    if let Some(excess) = minimum.exceeded(cluster, capability) {
        return Some(NeverFits::Capability(excess));
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
        | Failure::Capability(_)) => {
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

pub(super) fn of_problem(cluster: &Cluster, job: JobIdx, problem: &JobProblem) -> String {
    let gated = cluster.jobs.tasks[job].iter().filter(|task| cluster.tasks.gated[*task]).count();
    match problem {
        JobProblem::NotEnoughTasks { .. } | JobProblem::NotEnoughTasksOfRole { .. } => {
            let mut message = problem.to_string();
            if gated > 0 {
                message += &format!(" without scheduling gates ({gated} gated)");
            }
            match cluster.jobs.counts[job].of(TaskStatus::Failed) {
                0 => {}
                1 => message += "; 1 more has failed",
                n_failed => message += &format!("; {n_failed} more have failed"),
            }
            for warning in cluster.jobs.warnings[job].iter().filter(|w| w.explains_missing_pods()) {
                message += &format!("; {warning}");
            }
            message
        }
        JobProblem::NoPodGroup(_)
        | JobProblem::Unreadable(_)
        | JobProblem::NotInGroup { .. }
        | JobProblem::QueueNotFound(_)
        | JobProblem::Inconsistent(_)
        | JobProblem::Scattered(_)
        | JobProblem::Other { .. } => problem.to_string(),
    }
}

/// Why tasks of the job wait.
pub(super) fn of_failure(session: &Session, job: JobIdx) -> String {
    let cluster = session.cluster();
    let queue = cluster.jobs.queue[job].expect("a job that is scheduled has a queue");
    let n_leaving = cluster.jobs.counts[job].of(TaskStatus::Releasing);
    match session.failure(job) {
        Some(Failure::Unfit(report)) => match stuck_pod(session, job) {
            Some(why) => format!("{report}; {why}"),
            None => report.to_string(),
        },
        Some(Failure::Undecided(_)) => undecided(session, job),
        Some(Failure::NoDomain(failure)) => no_domain(failure),
        Some(Failure::NotEnoughGroups(failure)) => not_enough_groups(failure),
        Some(Failure::NeverFits(never)) => never_fits(cluster, queue, job, never),
        Some(Failure::Capability(dim)) => over_capability(session, queue, job, *dim),
        Some(Failure::Withheld(holder)) => withheld_for(cluster, queue, *holder),
        Some(Failure::Held(by)) => held_for(cluster, job, *by),
        Some(Failure::Reserved { node, holder }) => reserved_for(session, *node, *holder),
        None if !session.was_tried(job) && n_leaving > 0 => match n_leaving {
            1 => "1 pod is being terminated".to_owned(),
            n => format!("{n} pods are being terminated"),
        },
        None if waits_for_share(session, job) => {
            format!("queue \"{}\" is at its fair share", name_of(cluster, queue))
        }
        None => FitReport::new(cluster.nodes.facts.len()).to_string(),
    }
}

/// The first pod that does not end although a waiting task of the job would fit on its node without it.
// Parity: see docs/parity.md#p13.
fn stuck_pod(session: &Session, job: JobIdx) -> Option<String> {
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
        !cluster.nodes.fits_idle(node, request) && request.fits_in(&free)
    })?;
    let facts = &cluster.tasks.facts[pod];
    let node = cluster.node_of(pod)?;
    let end = match (facts.terminates_at, cluster.terminating[&pod].left.is_zero()) {
        (None, _) => String::new(),
        (Some(end), false) => format!(" (its grace period ends at {end})"),
        (Some(end), true) => format!(" (its grace period ended at {end})"),
    };
    Some(format!("pod {} on node {node} does not finish terminating{end}", facts.key))
}

/// Why the groups of a composite PodGroup wait.
fn not_enough_groups(failure: &NotEnoughGroups) -> String {
    let NotEnoughGroups { composite, n_fitting, min, domain } = failure;
    let into = domain.as_ref().map(|noun| format!(" into one {noun}")).unwrap_or_default();
    format!("{n_fitting} of the {min} required groups of CompositePodGroup {composite} fit{into}")
}

/// Why no topology domain holds enough tasks.
// Parity: see docs/parity.md#t5.
fn no_domain(failure: &NoDomain) -> String {
    let NoDomain { key, noun, n_tasks, best } = failure;
    let tasks = if *n_tasks == 1 { "1 task".to_owned() } else { format!("{n_tasks} tasks") };
    let are = if best.as_ref().is_some_and(|best| best.n_there == 1) { "is" } else { "are" };
    match best {
        None => format!("no node has the label {key}, which its PodGroup requires"),
        Some(BestDomain { name, n_there: 0, n_fitting, report }) => format!(
            "no {noun} can hold {tasks}: the best has room for {n_fitting} ({name}); there {report}"
        ),
        Some(BestDomain { name, n_there, n_fitting, report }) => format!(
            "{noun} {name}, where {n_there} of its tasks {are}, cannot hold {n_tasks} more: it has room for \
             {n_fitting}; there {report}"
        ),
    }
}

fn name_of(cluster: &Cluster, queue: QueueIdx) -> &Name {
    &cluster.queues.facts[queue].name
}

/// The limit of a queue that a job would exceed, what the queue uses of it, and what the job needs.
fn over_capability(session: &Session, queue: QueueIdx, job: JobIdx, dim: Dim) -> String {
    let cluster = session.cluster();
    let mut limits = cluster.queues.capability[queue].iter();
    let limit = limits.find(|(own, _)| *own == dim).map_or(0, |(_, limit)| *limit);
    let used = cluster.queues.used(queue, dim);
    let missing = (lacking(session, job) as usize).max(1);
    let waiting = session.waiting_tasks(job);
    let needs: i64 = waiting.iter().take(missing).map(|t| cluster.request(*t).get(dim)).sum();
    let resource = cluster.dimensions.name(dim);
    let display = |amount: i64| Unit::of(resource).display(amount);
    let kept = session.headroom.of_queue(queue, dim) - session.headroom.of_job(job, dim);
    let kept = kept_for_others(resource, kept);
    // What the job holds is in what the queue uses.
    let minimum =
        session.headroom.min_of(job).map_or(0, |min| min[dim] - cluster.jobs.held[job][dim]);
    let its = if minimum > needs { " (its minResources)" } else { "" };
    format!(
        "queue \"{}\" is limited to {} {resource}, uses {}{kept}, and this job needs {}{its}",
        name_of(cluster, queue),
        display(limit),
        display(used),
        display(needs.max(minimum)),
    )
}

/// For which queue and job the idle resources are withheld that a task would need.
fn withheld_for(cluster: &Cluster, queue: QueueIdx, holder: Option<JobIdx>) -> String {
    let name = name_of(cluster, queue);
    let of = holder.and_then(|job| Some((cluster.jobs.queue[job]?, &cluster.jobs.key[job])));
    let whom = match of {
        Some((queue, job)) => format!("queue \"{}\" (job {job})", name_of(cluster, queue)),
        None => "queues below their fair share".to_owned(),
    };
    format!("queue \"{name}\" is at its fair share; the idle resources are kept for {whom}")
}

fn is_of_other_queue(cluster: &Cluster, job: JobIdx, other: JobIdx) -> bool {
    cluster.jobs.queue[job] != cluster.jobs.queue[other]
}

// Parity: see docs/parity.md#p14.
fn held_for(cluster: &Cluster, job: JobIdx, by: JobIdx) -> String {
    let name = &cluster.jobs.key[by];
    match cluster.jobs.queue[by].filter(|_| is_of_other_queue(cluster, job, by)) {
        Some(queue) => {
            let queue = name_of(cluster, queue);
            format!(
                "held back: the next cycle would reclaim its place for queue \"{queue}\" (job {name})"
            )
        }
        None => format!("held back: job {name} would preempt it in the next cycle"),
    }
}

/// For whom the room is reserved that a job would need.
// Parity: see docs/parity.md#a12.
fn reserved_for(session: &Session, node: NodeIdx, holder: JobIdx) -> String {
    let cluster = session.cluster();
    let since = session.reservation_of(holder).map_or(session.now, |own| own.since);
    format!(
        "node {} is reserved for job {}, which has waited since {since}",
        cluster.node_name(node),
        cluster.jobs.key[holder]
    )
}

/// What is reserved for a job that waits; empty if nothing is. A job with nominations has its places by them.
// Parity: see docs/parity.md#a12.
fn own_reservation(session: &Session, job: JobIdx) -> String {
    let own = session.reservation_of(job).filter(|own| !own.amounts.is_empty());
    let Some(own) = own else { return String::new() };
    let cluster = session.cluster();
    let names = own.amounts.keys().map(|node| &**cluster.node_name(*node));
    let first: Vec<&str> = names.take(MAX_NODES_NAMED).collect();
    let others = match own.amounts.len() - first.len() {
        0 => String::new(),
        n => format!(" and {n} more"),
    };
    let (noun, are) = if own.amounts.len() == 1 { ("node", "is") } else { ("nodes", "are") };
    let since = own.since;
    format!(
        "; it has waited since {since}, and {noun} {}{others} {are} reserved for it",
        first.join(", ")
    )
}

/// Why a job can never start.
fn never_fits(cluster: &Cluster, queue: QueueIdx, job: JobIdx, never: &NeverFits) -> String {
    let min = cluster.jobs.min_available[job].max(1);
    match never {
        NeverFits::Capability(excess) => {
            let (requested, limit) = in_words(cluster, min, excess);
            let queue = name_of(cluster, queue);
            format!("never fits: {requested}, and queue \"{queue}\" is limited to {limit}")
        }
        NeverFits::Total(Excess { dim: Dim::PODS, limit, .. }) => {
            format!("never fits: {min} pods are required, and all nodes together take {limit} pods")
        }
        NeverFits::Total(excess) => {
            let (requested, limit) = in_words(cluster, min, excess);
            format!("never fits: {requested}, and the whole cluster has {limit}")
        }
        NeverFits::UnknownResource(resource) if min == 1 => {
            format!("never fits: the pod requests {resource}, which no node has")
        }
        NeverFits::UnknownResource(resource) => {
            format!("never fits: the {min} required pods request {resource}, which no node has")
        }
        NeverFits::Nodes { now, .. } if min == 1 => {
            format!("never fits: no node that the pod may use is large enough; now {now}")
        }
        NeverFits::Nodes { n_fitting: 0, now, .. } => format!(
            "never fits: none of the {min} required pods fits, even if the cluster were empty; now \
             {now}"
        ),
        NeverFits::Nodes { n_fitting, domain, now } => {
            let into = domain.as_ref().map(|noun| format!(" into one {noun}")).unwrap_or_default();
            format!(
                "never fits: at most {n_fitting} of the {min} required pods fit{into}, even if the \
                 cluster were empty; now {now}"
            )
        }
    }
}

/// What the required pods request, and the limit that it exceeds.
fn in_words(cluster: &Cluster, min: u32, excess: &Excess) -> (String, String) {
    let resource = cluster.dimensions.name(excess.dim);
    let display = |amount: i64| Unit::of(resource).display(amount);
    let pods = match min {
        1 => "the pod requests".to_owned(),
        n => format!("the {n} required pods request"),
    };
    (format!("{pods} {} {resource}", display(excess.requested)), display(excess.limit))
}
