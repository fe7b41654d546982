//! Gang: a job starts with its minimum of tasks or not at all, and evictions keep the minimum.
//!
//! A job is valid if enough of its tasks could count toward the minimum, ready if enough do, and
//! pipelined if enough will once the resources of pipelined tasks are released. Jobs that are not
//! ready go before those that are, and of those the jobs go first some of whose tasks run. If such a
//! job is not completed within a time, what runs of it is evicted. Of a job, at most the tasks above its
//! minimum are evicted, or all together if `gang.evictWholeGangs` is set; a minimum of 0 or 1 protects
//! nothing.
//!
//! Upstream: `plugins/gang/gang.go`, which considers each victim by itself.
// Parity: differs, see docs/parity.md#p3 and docs/parity.md#j6.

use std::{cmp::Ordering, sync::Arc, time::Duration};

use kube_batch_framework::{
    arguments::{ArgumentKind, ArgumentSpec, Arguments, ListItems},
    plugin::{
        Capacity, Dependencies, JobProposal, OrderScope, Plugin, Proposal, Settings,
        VictimQuestion, VictimScope, Vote, WholeJobs,
    },
    policy::TERMINATION_TIMEOUT,
    session_cache::SessionCache,
    spec::PluginSpec,
};
use kube_batch_model::{
    cluster::Cluster,
    column::{ClassIdx, JobIdx, TaskIdx},
    gang::{Members, Sense, evicted::Evicted, tree::GangTree},
    name::{JobKey, Name},
    problem::JobProblem,
    status::TaskStatus,
};

/// The plugin `gang`.
#[derive(Debug)]
pub struct GangPlugin {
    settings: Settings,
    /// The scheduler names whose pods wait until they are in a PodGroup.
    wait_for_group: Vec<Name>,
    gangs: Arc<GangTree>,
}

/// The default of the argument `gang.stalenessGracePeriod`.
const STALENESS_GRACE_PERIOD: Duration = Duration::from_secs(300);

const GRACE_PERIOD: ArgumentSpec = ArgumentSpec {
    key: "gang.stalenessGracePeriod",
    kind: ArgumentKind::Duration { default: STALENESS_GRACE_PERIOD },
    about: "how long a gang may run with fewer than its minimum before its pods are evicted; 0 for any time",
};

const TERMINATION: ArgumentSpec = ArgumentSpec {
    key: "gang.terminationTimeout",
    kind: ArgumentKind::Duration { default: TERMINATION_TIMEOUT },
    about: "how long after its grace period a terminating pod is waited for before other victims are chosen; 0 until it is gone",
};

const EVICT_WHOLE_GANGS: ArgumentSpec = ArgumentSpec::switch(
    "gang.evictWholeGangs",
    "evict a gang that has no more than its minimum as a whole; otherwise it is never evicted",
);

const MAX_LOSS: ArgumentSpec = ArgumentSpec {
    key: "gang.maxLoss",
    kind: ArgumentKind::Integer { default: 0, range: (0, 1_000_000) },
    about: "largest ratio of what evicting a gang frees to what the waiting jobs of the queue can use; 0 for no limit; in preempt only a preference",
};

const SHOW_OTHER_NAMESPACES: ArgumentSpec = ArgumentSpec::switch(
    "gang.showOtherNamespaces",
    "name jobs and pods of other namespaces in conditions and events; otherwise they say only the queue and amounts",
);

const STRICT_ENQUEUE: ArgumentSpec = ArgumentSpec::switch(
    "gang.strictEnqueue",
    "admit a PodGroup without pods only while its minResources fit also into what is idle or being released",
);

const WAIT_FOR_GROUP: ArgumentSpec = ArgumentSpec {
    key: "gang.waitForPodGroup",
    kind: ArgumentKind::List { default: &[], items: ListItems::Texts },
    about: "scheduler names whose pods wait until they are in a PodGroup, which a controller creates for them",
};

/// How a configuration names the plugin.
pub const SPEC: PluginSpec = PluginSpec {
    name: "gang",
    about: "a job starts with its minimum or not at all, and is not evicted below its minimum",
    arguments: &[
        EVICT_WHOLE_GANGS,
        GRACE_PERIOD,
        MAX_LOSS,
        SHOW_OTHER_NAMESPACES,
        STRICT_ENQUEUE,
        TERMINATION,
        WAIT_FOR_GROUP,
    ],
    metadata_prefixes: &[],
    new: |arguments| Box::new(GangPlugin::new(arguments)),
};

impl GangPlugin {
    fn new(arguments: &Arguments) -> Self {
        let period = arguments.duration(&GRACE_PERIOD);
        let timeout = arguments.duration(&TERMINATION);
        let max_loss = arguments.integer(&MAX_LOSS);
        let settings = Settings {
            termination_timeout: Some(if timeout.is_zero() { Duration::MAX } else { timeout }),
            staleness_grace_period: (!period.is_zero()).then_some(period),
            whole_jobs: match arguments.bool(&EVICT_WHOLE_GANGS) {
                true => WholeJobs::All,
                false => WholeJobs::Marked,
            },
            max_loss: u32::try_from(max_loss).ok().filter(|ratio| *ratio > 0),
            enqueues_strictly: arguments.bool(&STRICT_ENQUEUE),
            reports_unready_jobs: true,
            shows_other_namespaces: arguments.bool(&SHOW_OTHER_NAMESPACES),
            ..Settings::default()
        };
        Self {
            settings,
            wait_for_group: arguments.list(&WAIT_FOR_GROUP).into_iter().map(Name::from).collect(),
            gangs: Arc::default(),
        }
    }
}

impl Plugin for GangPlugin {
    fn name(&self) -> &'static str {
        "gang"
    }

    fn settings(&self) -> Settings {
        self.settings.clone()
    }

    fn on_session_open(&mut self, _: &Cluster, cache: &mut SessionCache<'_>) {
        self.gangs = cache.get();
    }

    fn job_order(&self, cluster: &Cluster, l: JobIdx, r: JobIdx) -> Ordering {
        let rank = |job| match self.tasks_missing(cluster, job, Capacity::Idle) == 0 {
            // Its running tasks do no work until it is completed.
            false if cluster.jobs.is_torn[job] => Rank::Torn,
            false => Rank::Unready,
            true => Rank::Ready,
        };
        rank(l).cmp(&rank(r))
    }

    fn order_scope(&self) -> OrderScope {
        OrderScope::Own
    }

    fn job_valid(&self, cluster: &Cluster, job: JobIdx) -> Result<(), JobProblem> {
        if let Some(scheduler) = self.waits_for_group(cluster, job) {
            return Err(JobProblem::NotInGroup { scheduler });
        }
        let tasks = cluster.members(job, Sense::Valid);
        if !tasks.are_enough() {
            return Err(JobProblem::NotEnoughTasks { valid: tasks.n, min: tasks.min });
        }
        let mut roles = cluster.roles(job, Sense::Valid);
        match roles.find(|(_, members)| !members.are_enough()) {
            Some((role, Members { n: valid, min })) => {
                Err(JobProblem::NotEnoughTasksOfRole { role: role.name.clone(), valid, min })
            }
            None => Ok(()),
        }
    }

    fn tasks_missing(&self, cluster: &Cluster, job: JobIdx, capacity: Capacity) -> u32 {
        match capacity {
            Capacity::Idle => cluster.n_missing(job, Sense::Ready),
            Capacity::FutureIdle => cluster.n_missing(job, Sense::Pipelined),
        }
    }

    fn dependencies(&self, _: &Cluster, _: ClassIdx) -> Dependencies {
        Dependencies::NONE
    }

    fn vote(&self, cluster: &Cluster, proposal: &Proposal<'_>, _: VictimQuestion) -> Vote {
        self.can_lose(cluster, proposal)
    }

    fn vote_on_job(
        &self,
        cluster: &Cluster,
        proposal: &JobProposal<'_>,
        _: VictimQuestion,
    ) -> Vote {
        let leaves_whole = cluster.jobs.leaves_whole[proposal.job];
        // A job with a minimum of 0 or 1 loses single tasks, unless other jobs leave with it.
        let job_of = |task: &TaskIdx| cluster.tasks.job[*task];
        let first = proposal.victims.first().and_then(job_of);
        let is_gang = cluster.jobs.min_available[proposal.job] > 1
            || proposal.victims.iter().any(|task| job_of(task) != first);
        let may_leave = leaves_whole || self.settings.whole_jobs == WholeJobs::All && is_gang;
        if may_leave && self.stay_complete(cluster, proposal.job, &[], proposal.victims) {
            Vote::Permit
        } else {
            Vote::Reject
        }
    }

    fn victim_scope(&self, cluster: &Cluster, victim: TaskIdx, _: VictimQuestion) -> VictimScope {
        // Without a minimum above 1 nothing is protected, whatever runs.
        let is_gang = cluster.tasks.job[victim].is_some_and(|job| cluster.is_gang(job));
        let is_part = cluster.tasks.job[victim].is_some_and(|job| cluster.is_in_larger_gang(job));
        if is_part {
            VictimScope::ANYTHING
        } else if is_gang {
            VictimScope::JOB
        } else {
            VictimScope::FACTS
        }
    }
}

impl GangPlugin {
    /// The scheduler name because of which a job without a PodGroup waits for one.
    // Parity: see docs/parity.md#k9.
    fn waits_for_group(&self, cluster: &Cluster, job: JobIdx) -> Option<Name> {
        let is_alone = match &cluster.jobs.key[job] {
            JobKey::Group(..) => false,
            JobKey::Shadow { .. } | JobKey::Pod { .. } => true,
        };
        if self.wait_for_group.is_empty() || !is_alone {
            return None;
        }
        let mut tasks = cluster.jobs.tasks[job].iter();
        let waiting = tasks.find(|task| {
            let scheduler = &cluster.tasks.facts[*task].scheduler;
            cluster.status(*task) == TaskStatus::Pending && self.wait_for_group.contains(scheduler)
        });
        waiting.map(|task| cluster.tasks.facts[task].scheduler.clone())
    }

    /// Whether the victim may be evicted, with those that are evicted already.
    fn can_lose(&self, cluster: &Cluster, proposal: &Proposal<'_>) -> Vote {
        let Some(job) = cluster.tasks.job[proposal.victim] else { return Vote::Reject };
        let (evicted, victim) = (proposal.evicted, [proposal.victim]);
        match can_spare(cluster, proposal) {
            Vote::Permit if !self.stay_complete(cluster, job, evicted, &victim) => Vote::Reject,
            vote => vote,
        }
    }

    /// Whether each composite PodGroup above a job that is complete without the evicted tasks is so without the
    /// victims too, or loses all its jobs.
    // Parity: see docs/parity.md#k8.
    fn stay_complete(
        &self,
        cluster: &Cluster,
        job: JobIdx,
        evicted: &[TaskIdx],
        victims: &[TaskIdx],
    ) -> bool {
        if !cluster.is_in_larger_gang(job) {
            return true;
        }
        let mut before = Evicted::default();
        before.add(cluster, evicted.iter().copied());
        let mut after = before.clone();
        after.add(cluster, victims.iter().copied());
        let is_ready_before = |job| cluster.is_complete(job, Sense::Without(&before));
        let is_ready_after = |job| cluster.is_complete(job, Sense::Without(&after));
        self.gangs.stay_complete(job, &is_ready_before, &is_ready_after)
    }
}

/// The order of jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Torn,
    Unready,
    Ready,
}

/// Whether the victim's job can lose one more task than it has lost already. A minimum protects only a
/// job that meets it: otherwise a user could protect a running job by raising its minimum.
// Parity: differs, see docs/parity.md#p3.
fn can_spare(cluster: &Cluster, proposal: &Proposal<'_>) -> Vote {
    let job_of = |task: TaskIdx| cluster.tasks.job[task];
    let Some(job) = job_of(proposal.victim) else { return Vote::Reject };
    if cluster.jobs.leaves_whole[job] {
        return Vote::Reject;
    }
    let evicted = || proposal.evicted.iter().filter(|task| job_of(**task) == Some(job));
    let is_met = cluster.members(job, Sense::Pipelined).are_enough();
    if cluster.jobs.min_available[job] <= 1 || !is_met {
        return Vote::Permit;
    }
    let n_spare = cluster.members(job, Sense::Ready).n_spare() as usize;
    let job_spares = n_spare > evicted().count();
    let role_spares =
        cluster.members_of_role(proposal.victim, Sense::Ready).is_none_or(|members| {
            let of_role = cluster.tasks.role[proposal.victim];
            let is_of_role = |task: &&TaskIdx| cluster.tasks.role[**task] == of_role;
            members.n_spare() as usize > evicted().filter(is_of_role).count()
        });
    if job_spares && role_spares { Vote::Permit } else { Vote::Reject }
}
