//! What the result of a try of a job depends on, and so when a remembered try is forgotten. What is the same for all jobs
//! is in [`ClusterInput`].
//!
//! A try in vain is remembered with its [`JobInput`], and recalled instead of another try while the job has an equal
//! input: it would find the same. Its report is reported again if the [`ReportInput`] is equal too.
//!
//! Not everything can be compared. Each exception has a name:
//!
//! - What other jobs are or have done in the cycle: [`TurnsOfJob::follow_from_input`] says whether it matters.
//! - Pods of other jobs that only wait: [`depends_on_waiting_pods`] says whether they matter.
//! - Once a turn has led to something, the cluster is not the one of the inputs any more: nothing is recalled by its input
//!   until the cycle ends. See [`Decided`].
//!
//! If no task of a job fits on any node, its try may also be recalled while that stays so, whatever else has changed in
//! the cluster: see `unfit.rs`.
//!
//! The scheduler cache adds one number, [`ClusterInput::generation`]. It stays the same while only such objects change
//! that concern only their own job, see [`Fact::concerns_only_its_job`]. So what a try reads of them is compared here. The
//! comparisons name each field of these objects: a new field does not compile before it is decided whether a try depends
//! on it.
//!
//! [`Fact::concerns_only_its_job`]: kube_batch_model::facts::fact::Fact::concerns_only_its_job

use std::{borrow::Cow, sync::Arc};

use kube_batch_model::{
    cluster::Cluster,
    column::{ClassIdx, JobIdx, TaskIdx},
    devices::{ClaimDemand, DeviceDemand},
    facts::{group::GroupFacts, pod::TaskFacts, topology::TopologyFacts},
    job_report::JobReport,
    name::Name,
    others::Others,
    problem::JobWarning,
    reason::{FitReport, NodeReason},
    resource::Share,
};

use crate::failure::Failure;

/// What of a job the result of a try depends on. As long as it equals the [`CurrentInput`] of the job, and the
/// [`ClusterInput`] is the same too, another try would have the same result.
///
/// [`ClusterInput`]: crate::cluster_input::ClusterInput
#[derive(Clone, Debug)]
pub(crate) struct JobInput {
    min_available: u32,
    priority: i32,
    queue: Option<Name>,
    topology: Option<Arc<TopologyFacts>>,
    group: Option<Arc<GroupFacts>>,
    tasks: Vec<TaskInput>,
}

/// A task of the job.
#[derive(Clone, Debug)]
struct TaskInput {
    facts: Arc<TaskFacts>,
    devices: Arc<DeviceDemand>,
    priority: i32,
    is_gated: bool,
}

/// The input of a job in a session. It is not read before it is compared: that happens for every waiting job in every
/// cycle, and most are equal because they share the same facts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CurrentInput<'s> {
    pub(crate) cluster: &'s Cluster,
    pub(crate) job: JobIdx,
}

impl From<CurrentInput<'_>> for JobInput {
    fn from(current: CurrentInput<'_>) -> Self {
        let CurrentInput { cluster, job } = current;
        Self {
            min_available: cluster.jobs.min_available[job],
            priority: cluster.jobs.priority[job],
            queue: queue(cluster, job).cloned(),
            topology: cluster.jobs.topology[job].clone(),
            group: cluster.jobs.group[job].clone(),
            tasks: cluster.jobs.tasks[job]
                .iter()
                .map(|task| TaskInput::of(cluster, task))
                .collect(),
        }
    }
}

impl PartialEq<CurrentInput<'_>> for JobInput {
    fn eq(&self, current: &CurrentInput<'_>) -> bool {
        let CurrentInput { cluster, job } = *current;
        let Self { min_available, priority, queue: own_queue, topology, group, tasks } = self;
        let now = cluster.jobs.tasks[job];
        *min_available == cluster.jobs.min_available[job]
            && *priority == cluster.jobs.priority[job]
            && own_queue.as_ref() == queue(cluster, job)
            && *topology == cluster.jobs.topology[job]
            && is_same_group(group.as_ref(), cluster.jobs.group[job].as_ref())
            && tasks.len() == now.len()
            && tasks.iter().zip(now.iter()).all(|(own, task)| own.is_of(cluster, task))
    }
}

impl JobInput {
    /// Lets a report have the PodGroup of the job, if it has an equal one.
    pub(crate) fn share_group(&self, report: &mut JobReport) {
        if report.group == self.group {
            report.group.clone_from(&self.group);
        }
    }

    /// Whether it has the objects of now, and not others that ask for the same: comparing those takes long, because
    /// all of them are read.
    pub(crate) fn has_objects_of(&self, current: CurrentInput<'_>) -> bool {
        let CurrentInput { cluster, job } = current;
        let of_now = |(own, task): (&TaskInput, TaskIdx)| {
            Arc::ptr_eq(&own.facts, &cluster.tasks.facts[task])
        };
        self.group.as_ref().map(Arc::as_ptr) == cluster.jobs.group[job].as_ref().map(Arc::as_ptr)
            && self.tasks.iter().zip(cluster.jobs.tasks[job].iter()).all(of_now)
    }
}

impl TaskInput {
    fn of(cluster: &Cluster, task: TaskIdx) -> Self {
        Self {
            facts: Arc::clone(&cluster.tasks.facts[task]),
            devices: Arc::clone(devices(cluster, task)),
            priority: cluster.tasks.priority[task],
            is_gated: cluster.tasks.gated[task],
        }
    }

    /// Whether this is what decides about a task now.
    fn is_of(&self, cluster: &Cluster, task: TaskIdx) -> bool {
        let Self { facts, devices: own_devices, priority, is_gated } = self;
        let devices = devices(cluster, task);
        *priority == cluster.tasks.priority[task]
            && *is_gated == cluster.tasks.gated[task]
            && is_same_task(facts, &cluster.tasks.facts[task])
            // Equal claims may have been read in different cycles.
            && (Arc::ptr_eq(own_devices, devices) || own_devices == devices)
    }
}

fn queue(cluster: &Cluster, job: JobIdx) -> Option<&Name> {
    cluster.jobs.queue[job].map(|queue| &cluster.queues.facts[queue].name)
}

fn devices(cluster: &Cluster, task: TaskIdx) -> &Arc<DeviceDemand> {
    &cluster.classes.devices[cluster.tasks.class[task]]
}

/// Whether two versions of a PodGroup ask for the same.
fn is_same_group(one: Option<&Arc<GroupFacts>>, other: Option<&Arc<GroupFacts>>) -> bool {
    match (one, other) {
        // Facts are immutable, and mostly the same object.
        (Some(one), Some(other)) => Arc::ptr_eq(one, other) || group_asks(one) == group_asks(other),
        (one, other) => one.is_none() && other.is_none(),
    }
}

/// What a PodGroup asks for.
fn group_asks(group: &GroupFacts) -> impl PartialEq {
    let GroupFacts {
        metadata,
        never_preempts,
        roles,
        parent,
        min_resources,
        // Its key names the job.
        key: _,
        version: _,
        // They only decide which job comes first.
        uid: _,
        created: _,
        // The job has them, as the cluster completes them.
        min_member: _,
        queue: _,
        priority_class: _,
        priority: _,
        topology: _,
        // The tasks have them.
        claims: _,
        // It counts for the tasks that run: see `ClusterInput::protection`.
        leaves_whole: _,
        // The scheduler writes it.
        status: _,
        resource_version: _,
    } = group;
    (metadata, *never_preempts, roles, parent, min_resources)
}

fn is_same_task(one: &Arc<TaskFacts>, other: &Arc<TaskFacts>) -> bool {
    // Facts are immutable, and mostly the same object.
    Arc::ptr_eq(one, other) || task_asks(one) == task_asks(other)
}

/// What a pod that waits asks for.
fn task_asks(facts: &TaskFacts) -> impl PartialEq {
    let TaskFacts {
        uid,
        template,
        labels,
        never_preempts,
        role,
        run_time,
        // The cluster has them.
        priority: _,
        priority_class: _,
        gated: _,
        // These stay the same as long as the uid does.
        key: _,
        created: _,
        scheduler: _,
        controller: _,
        // Decide about the job, and what it is like.
        groups: _,
        annotations: _,
        // Only messages have it.
        hints: _,
        // The generation changes with these.
        status: _,
        ended_in_deletion: _,
        started: _,
        terminates_at: _,
        bound_at: _,
        node: _,
        not_admitted: _,
        bound_queue: _,
        bound_minimum: _,
        protected_until: _,
        index_failures: _,
        // The scheduler writes them; `in_flight` has nominations.
        nominated_node: _,
        nominated_by_other: _,
        unscheduled: _,
        // The devices have them. Only reasons tell claims with equal requests apart, see `TurnsOfJob::names_claims`.
        device_claims: _,
        extended_claim: _,
    } = facts;
    (uid, template, labels, *never_preempts, role, run_time)
}

/// What the turns of a job in a cycle were like, beyond its [`JobInput`].
#[derive(Debug)]
pub(crate) struct TurnsOfJob<'s> {
    /// Whether one of them led to something.
    pub(crate) helped: bool,
    /// Whether the turn of another job had led to something before. That may be undone before the next cycle: a nominated
    /// pod is deleted.
    pub(crate) were_late: bool,
    /// Whether moves of the job are kept, so that its tasks are nominated.
    pub(crate) kept_moves: bool,
    /// Whether its queue held more than it deserves: then it may only use what others leave.
    pub(crate) of_overused_queue: bool,
    /// Whether the job is incomplete: how long it has been counts.
    pub(crate) of_incomplete_job: bool,
    /// Whether the job is a part of a composite PodGroup: the other groups count.
    pub(crate) of_composite: bool,
    /// Whether a gang is protected from the job: what its queue could use depends on its other jobs.
    pub(crate) met_protected_gang: bool,
    /// Whether the job ends before something reserved is used, so that it may use that: later it does not.
    pub(crate) ends_before_reservation: bool,
    /// Whether the reason names claims for devices: it names those of the first pod that needs the same, which may belong
    /// to another job.
    pub(crate) names_claims: bool,
    /// The reason that was recorded.
    pub(crate) failure: Option<&'s Failure>,
}

impl TurnsOfJob<'_> {
    /// Whether the turns were in vain, and would be again with the same [`JobInput`].
    pub(crate) fn follow_from_input(&self) -> bool {
        let Self {
            helped,
            were_late,
            kept_moves,
            of_overused_queue,
            of_incomplete_job,
            of_composite,
            met_protected_gang,
            ends_before_reservation,
            names_claims,
            failure,
        } = self;
        !(*helped
            || *were_late
            || *kept_moves
            || *of_overused_queue
            || *of_incomplete_job
            || *of_composite
            || *met_protected_gang
            || *ends_before_reservation
            || *names_claims)
            && failure.is_none_or(follows_from_input)
    }

    /// Whether the turns were in vain because no task fits anywhere, and the same answers of the search would lead to the
    /// same turns.
    pub(crate) fn follow_from_search(&self) -> bool {
        let Self {
            helped,
            kept_moves,
            of_incomplete_job,
            of_composite,
            met_protected_gang,
            names_claims,
            failure,
            // What the search found is asked again at the same place in the order, whatever was decided before.
            were_late: _,
            // Where nothing fits, it makes no difference how much is lent.
            of_overused_queue: _,
            // Only without reservations.
            ends_before_reservation: _,
        } = self;
        !(*helped
            || *kept_moves
            || *of_incomplete_job
            || *of_composite
            || *met_protected_gang
            || *names_claims)
            && matches!(failure, Some(Failure::Unfit(_)))
    }
}

/// Whether a reason holds as long as the input of the job is the same.
const fn follows_from_input(failure: &Failure) -> bool {
    match failure {
        Failure::Unfit(_)
        | Failure::Undecided(_)
        | Failure::NoDomain(_)
        | Failure::NeverFits(_) => true,
        // Other jobs can end these.
        Failure::QueueLimit(_)
        | Failure::Withheld(_)
        | Failure::Held(_)
        | Failure::Reserved { .. }
        | Failure::NotEnoughGroups(_) => false,
    }
}

/// Whether a reason names claims for devices of a job: it is in words of its own.
pub(crate) fn names_claims(cluster: &Cluster, job: JobIdx, failure: Option<&Failure>) -> bool {
    let has_own_words = |report: &FitReport| {
        let mut refused = report.refused().iter();
        report.for_all().is_some()
            || refused.any(|nodes| matches!(nodes.reason, NodeReason::Other(_)))
    };
    let mut tasks = cluster.jobs.tasks[job].iter();
    failure.and_then(Failure::fit_report).is_some_and(has_own_words)
        && tasks.any(|task| !devices(cluster, task).claims.is_empty())
}

/// Whether pods of other jobs that only wait matter to a job. They are in no input, so the job is neither remembered nor
/// recalled then.
///
/// Pods that wait may come to have rules about the tasks of the job, so that its classes become open to change. Then more
/// of the tasks are tried after one that fits nowhere. A claim for devices that was not made for a task may belong to a
/// pod of another job, and its creation does not change the generation.
pub(crate) fn depends_on_waiting_pods(
    cluster: &Cluster,
    job: JobIdx,
    mut is_open_to_change: impl FnMut(ClassIdx) -> bool,
) -> bool {
    let classes = || cluster.jobs.tasks[job].iter().map(|task| cluster.tasks.class[task]);
    let mut last = None;
    let is_open = classes().any(|class| {
        let is_new = last.replace(class) != Some(class);
        is_new && is_open_to_change(class)
    });
    let claims = |class: ClassIdx| &cluster.classes.devices[class].claims;
    is_open || classes().any(|class| !claims(class).iter().all(ClaimDemand::is_own))
}

/// What the turns of a cycle have led to so far.
///
/// Tries are recalled only while this is what it was when the cycle began. It is in no [`JobInput`], because no try is
/// remembered that had another one: see [`TurnsOfJob::were_late`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Decided {
    pub(crate) n_decisions: usize,
    /// Number of jobs whose turn led to something.
    pub(crate) n_helped: usize,
}

/// Everything on which the report of a job depends besides its [`JobInput`].
#[derive(Debug, PartialEq)]
pub(crate) struct ReportInput<'s> {
    /// Which version of its PodGroup there is: its status counts too.
    pub(crate) group: Option<*const GroupFacts>,
    pub(crate) warnings: Cow<'s, [JobWarning]>,
    /// The share by which it is ordered.
    pub(crate) share: Option<Share>,
    /// Whether it had a turn that counts.
    pub(crate) was_tried: bool,
    /// Number of tasks that have a place, or had one in the best try.
    pub(crate) n_fitting: u32,
    /// Which failure is recorded.
    pub(crate) failure: Option<*const Failure>,
    /// How other jobs and queues keep it waiting.
    pub(crate) others: Option<&'s Arc<Others>>,
    pub(crate) of_others: OfOthers,
}

/// What turns of this cycle add to the report of a job. The report of a remembered try has none of it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct OfOthers {
    /// A gang that is protected from the job. An action in which the job had no turn in the last cycle may find one now.
    pub(crate) protected_gang: bool,
    /// An eviction of the job as a whole.
    pub(crate) eviction: bool,
    /// That the job was left out in some action.
    pub(crate) left_out: bool,
    /// The shares after the cycle, which a report without a failure depends on.
    pub(crate) later_shares: bool,
}

impl<'s> ReportInput<'s> {
    /// That of a remembered report, and of the failure that it tells.
    pub(crate) fn of(report: &'s JobReport, failure: Option<&Arc<Failure>>) -> Self {
        Self {
            group: report.group.as_ref().map(Arc::as_ptr),
            warnings: Cow::Borrowed(&report.warnings),
            share: report.share,
            was_tried: report.tried,
            n_fitting: report.n_fitting,
            failure: failure.map(Arc::as_ptr),
            others: report.others(),
            of_others: OfOthers::default(),
        }
    }
}
