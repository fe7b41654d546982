//! Which tasks are in the snapshot, and which job each belongs to.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use jiff::Timestamp;
use kube_batch_api::{
    facts::{
        class::PodTemplate,
        group::GroupFacts,
        pod::TaskFacts,
        policy::{BudgetFacts, HIGHEST_USER_PRIORITY},
    },
    intern::Interned,
    name::{JobKey, Name, ObjectKey, natural_order},
    reason::{JobProblem, JobWarning},
};

use super::{hints::Hints, options::SnapshotOptions};
use crate::store::Store;

/// The tasks of the snapshot, sorted into jobs.
pub(crate) struct Members<'a> {
    /// In row order.
    pub(crate) jobs: Vec<(JobKey, Job<'a>)>,
    pub(crate) jobless: Vec<&'a Arc<TaskFacts>>,
    pub(crate) hints: Hints,
}

pub(crate) struct Job<'a> {
    pub(crate) group: Option<Arc<GroupFacts>>,
    pub(crate) created: Timestamp,
    pub(crate) queue: Name,
    pub(crate) min_available: u32,
    pub(crate) priority: i32,
    pub(crate) problem: Option<JobProblem>,
    pub(crate) warnings: Vec<JobWarning>,
    pub(crate) tasks: Vec<&'a Arc<TaskFacts>>,
}

impl Members<'_> {
    pub(crate) fn tasks(&self) -> impl Iterator<Item = &Arc<TaskFacts>> {
        self.jobs.iter().flat_map(|(_, job)| &job.tasks).chain(&self.jobless).copied()
    }

    /// The templates of the tasks in row order; consecutive equal ones are merged.
    pub(crate) fn templates(&self) -> impl Iterator<Item = &Interned<PodTemplate>> {
        let mut last = None;
        self.tasks().map(|facts| &facts.template).filter(move |template| {
            let is_new = last != Some(template.id());
            last = Some(template.id());
            is_new
        })
    }
}

/// Who schedules a pod.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Membership {
    /// Another scheduler: the pod is pending and not in the snapshot.
    Absent,
    /// Another scheduler: the pod only occupies its node.
    NodeOnly,
    Job(JobKey),
}

pub(crate) fn membership(
    facts: &TaskFacts,
    is_group: impl Fn(&ObjectKey) -> bool,
    options: &SnapshotOptions,
) -> Membership {
    let ours = options.scheduler_names.contains(&facts.scheduler);
    if !ours && facts.node.is_none() {
        return Membership::Absent;
    }
    match facts.job_key() {
        JobKey::Group(key) if !ours && !is_group(&key) => Membership::NodeOnly,
        JobKey::Shadow { .. } if !ours => Membership::NodeOnly,
        key => Membership::Job(key),
    }
}

pub(crate) fn sort_into_jobs<'a>(
    store: &'a Store,
    groups: &[(&ObjectKey, &Arc<GroupFacts>)],
    options: &SnapshotOptions,
) -> Members<'a> {
    // Those with a PodGroup come first, in the order of these.
    let mut by_key: Vec<(JobKey, Vec<&Arc<TaskFacts>>)> =
        groups.iter().map(|(key, _)| (JobKey::Group((*key).clone()), Vec::new())).collect();
    let mut place: HashMap<JobKey, usize> =
        by_key.iter().enumerate().map(|(at, (key, _))| (key.clone(), at)).collect();
    let mut jobless = Vec::new();
    let mut hints = Hints::default();
    for facts in store.pods.values() {
        match membership(facts, |key| store.group(key).is_some(), options) {
            Membership::Absent => hints.other_scheduler(facts),
            Membership::NodeOnly => jobless.push(facts),
            Membership::Job(key) => {
                if let JobKey::Shadow { .. } = key {
                    hints.not_annotated(facts);
                }
                let at = *place.entry(key).or_insert_with_key(|key| {
                    by_key.push((key.clone(), Vec::new()));
                    by_key.len() - 1
                });
                by_key[at].1.push(facts);
            }
        }
    }
    let maker = JobMaker::new(store, options);
    let mut jobs: Vec<(JobKey, Job<'a>)> = by_key
        .into_iter()
        .enumerate()
        .map(|(at, (key, tasks))| {
            let group = groups.get(at).map(|(_, facts)| *facts);
            let job = maker.job(&key, group, in_order(tasks), &hints);
            (key, job)
        })
        .collect();
    jobs.sort_by(|(l, left), (r, right)| rank(left.created, l).cmp(&rank(right.created, r)));
    Members { jobs, jobless, hints }
}

/// The order of jobs.
pub(crate) fn rank(created: Timestamp, key: &JobKey) -> (Timestamp, &ObjectKey, &JobKey) {
    (created, key.object(), key)
}

/// The order of the tasks of a job, which are in one namespace.
// Parity: differs, see docs/parity.md#o2.
pub(crate) fn task_order(
    (l, l_name): (Timestamp, &str),
    (r, r_name): (Timestamp, &str),
) -> Ordering {
    l.cmp(&r).then_with(|| natural_order(l_name, r_name))
}

/// What jobs depend on besides their own objects.
pub(crate) struct JobMaker<'a> {
    priorities: Priorities<'a>,
    budgets: BTreeMap<(&'a Name, &'a Name), &'a BudgetFacts>,
    options: &'a SnapshotOptions,
}

impl<'a> JobMaker<'a> {
    pub(crate) fn new(store: &'a Store, options: &'a SnapshotOptions) -> Self {
        let priorities = Priorities::new(store, options);
        Self { priorities, budgets: legacy_gangs(store), options }
    }

    /// A job with its PodGroup, if it has one, and its tasks, in order.
    pub(crate) fn job<'t>(
        &self,
        key: &JobKey,
        facts: Option<&Arc<GroupFacts>>,
        tasks: Vec<&'t Arc<TaskFacts>>,
        hints: &Hints,
    ) -> Job<'t> {
        match key {
            JobKey::Group(group) => {
                let warnings = hints.warnings(group, &tasks).collect();
                group_job(group, facts, tasks, &self.priorities, warnings, self.options)
            }
            JobKey::Shadow { owner, uid } => {
                let budget = self.budgets.get(&(&owner.namespace, uid));
                shadow_job(tasks, budget.copied(), self.options)
            }
        }
    }
}

/// The tasks of a job in their order.
pub(crate) fn in_order<'a>(tasks: Vec<&'a Arc<TaskFacts>>) -> Vec<&'a Arc<TaskFacts>> {
    // What is compared is next to each other in memory.
    let mut keyed: Vec<(Timestamp, &'a str, &'a Arc<TaskFacts>)> =
        tasks.into_iter().map(|facts| (facts.created, facts.key.name.as_str(), facts)).collect();
    keyed.sort_by(|(l, l_name, _), (r, r_name, _)| task_order((*l, l_name), (*r, r_name)));
    keyed.into_iter().map(|(_, _, facts)| facts).collect()
}

fn group_job<'a>(
    key: &ObjectKey,
    group: Option<&Arc<GroupFacts>>,
    tasks: Vec<&'a Arc<TaskFacts>>,
    priorities: &Priorities<'_>,
    mut warnings: Vec<JobWarning>,
    options: &SnapshotOptions,
) -> Job<'a> {
    let oldest = tasks.first().map_or(Timestamp::UNIX_EPOCH, |facts| facts.created);
    let queue = group.and_then(|group| group.queue.clone());
    let class = group.and_then(|group| group.priority_class.as_ref());
    let (priority, warning) = priorities.of(class, &tasks);
    warnings.extend(warning);
    warnings.sort_unstable();
    Job {
        group: group.cloned(),
        created: group.map_or(oldest, |group| group.created),
        queue: queue.unwrap_or_else(|| options.default_queue.clone()),
        min_available: group.map_or(0, |group| group.min_member),
        priority,
        problem: group.is_none().then(|| JobProblem::NoPodGroup(key.clone())),
        warnings,
        tasks,
    }
}

/// A job of pods without a group, with the age of its oldest pod and its highest priority.
// Parity: differs, see docs/parity.md#j4.
fn shadow_job<'a>(
    tasks: Vec<&'a Arc<TaskFacts>>,
    budget: Option<&BudgetFacts>,
    options: &SnapshotOptions,
) -> Job<'a> {
    let highest = tasks.iter().map(|facts| facts.priority).max().unwrap_or(0);
    let min_available = budget.and_then(|budget| budget.min_available);
    Job {
        group: None,
        created: tasks.first().map_or(Timestamp::UNIX_EPOCH, |facts| facts.created),
        queue: options.default_queue.clone(),
        min_available: min_available.map_or(1, |min| min.of(tasks.len())),
        priority: if options.priority_class { highest } else { 0 },
        problem: None,
        warnings: Vec::new(),
        tasks,
    }
}

/// PodDisruptionBudgets by the uid of their controller; the oldest wins.
// Parity: kept, see docs/parity.md#j5.
fn legacy_gangs(store: &Store) -> BTreeMap<(&Name, &Name), &BudgetFacts> {
    let mut budgets: Vec<&BudgetFacts> = store.budgets.values().map(|facts| &**facts).collect();
    budgets.sort_by(|l, r| (r.created, &r.key).cmp(&(l.created, &l.key)));
    budgets
        .into_iter()
        .filter_map(|budget| {
            Some(((&budget.key.namespace, &budget.controller.as_ref()?.uid), budget))
        })
        .collect()
}

/// Job priorities by PriorityClass.
struct Priorities<'a> {
    store: &'a Store,
    enabled: bool,
    default: i32,
}

impl<'a> Priorities<'a> {
    fn new(store: &'a Store, options: &SnapshotOptions) -> Self {
        // Of several global defaults Kubernetes takes the lowest.
        let defaults = store.priority_classes.values().filter(|class| class.global_default);
        let default = defaults.map(|class| class.value).min().unwrap_or(0);
        Self { store, enabled: options.priority_class, default }
    }

    /// The priority of a job whose PodGroup names a class, and what is wrong with that.
    // Parity: differs, see docs/parity.md#j12.
    fn of(&self, class: Option<&Name>, tasks: &[&Arc<TaskFacts>]) -> (i32, Option<JobWarning>) {
        if !self.enabled {
            return (0, None);
        }
        let Some(name) = class else { return (self.default, None) };
        let (class, priority) = (name.clone(), self.default);
        match self.store.priority_classes.get(name).map(|class| class.value) {
            None => (priority, Some(JobWarning::PriorityClassNotFound { class, priority })),
            Some(value)
                if value > HIGHEST_USER_PRIORITY
                    && tasks.iter().all(|facts| facts.priority < value) =>
            {
                (priority, Some(JobWarning::SystemPriorityClass { class, priority }))
            }
            Some(value) => (value, None),
        }
    }
}
