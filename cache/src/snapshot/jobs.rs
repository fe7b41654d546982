//! Which tasks are in the snapshot, and which job each belongs to.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use jiff::Timestamp;
use kube_batch_model::{
    facts::{
        batch_job::BatchJobFacts,
        class::PodTemplate,
        composite::CompositeFacts,
        gang_annotations::{CombinedAnnotations, MIN_AVAILABLE},
        group::GroupFacts,
        pod::TaskFacts,
        policy::{BudgetFacts, HIGHEST_USER_PRIORITY},
        run_time::RUN_TIME,
        topology::TopologyFacts,
    },
    group_version::{GroupVersion, Join},
    intern::Interned,
    name::{JobKey, Name, ObjectKey, natural_order},
    problem::{Contradiction, JobProblem, JobWarning},
    status::TaskStatus,
};

use super::{
    hints::{Hints, named_group},
    options::{SchedulerNames, SnapshotOptions},
};
use crate::store::Store;

/// The tasks of the snapshot, sorted into jobs.
pub(crate) struct JobMembers<'a> {
    /// In row order.
    pub(crate) jobs: Vec<(JobKey, Job<'a>)>,
    pub(crate) jobless: Vec<&'a Arc<TaskFacts>>,
    pub(crate) hints: Hints,
}

/// The composite PodGroups above a PodGroup, its parent first.
type Above = Arc<[Arc<CompositeFacts>]>;

/// At most this many composite PodGroups may be above a PodGroup; the limit of Kubernetes.
const MAX_COMPOSITES: usize = 4;

pub(crate) struct Job<'a> {
    pub(crate) group: Option<Arc<GroupFacts>>,
    pub(crate) created: Timestamp,
    pub(crate) queue: Name,
    pub(crate) min_available: u32,
    pub(crate) topology: Option<Arc<TopologyFacts>>,
    pub(crate) composites: Option<Above>,
    pub(crate) priority: JobPriority,
    pub(crate) problem: Option<JobProblem>,
    pub(crate) warnings: Vec<JobWarning>,
    pub(crate) batch: Vec<Arc<BatchJobFacts>>,
    pub(crate) tasks: Vec<&'a Arc<TaskFacts>>,
}

impl JobMembers<'_> {
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

/// The priority of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobPriority {
    /// Its PodGroup or the configuration says so.
    Given(i32),
    /// The highest of its pods.
    OfPods(i32),
}

/// The value, and whether it is the highest of its pods.
impl From<JobPriority> for (i32, bool) {
    fn from(priority: JobPriority) -> Self {
        match priority {
            JobPriority::Given(value) => (value, false),
            JobPriority::OfPods(value) => (value, true),
        }
    }
}

/// Who schedules a pod.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Membership {
    /// It ended while it was being deleted: it is not in the snapshot, and no job misses it.
    Gone,
    /// Another scheduler: the pod is pending and not in the snapshot.
    Absent,
    /// Another scheduler, or no kubelet has admitted it: the pod only occupies its node.
    NodeOnly,
    Job(JobKey),
}

pub(crate) fn membership(
    facts: &TaskFacts,
    store: &Store,
    options: &SnapshotOptions,
) -> Membership {
    if facts.ended_in_deletion {
        return Membership::Gone;
    }
    let ours = options.scheduler_names.contains(&facts.scheduler);
    if !ours && facts.node.is_none() {
        return Membership::Absent;
    }
    // Parity: see docs/parity.md#d7.
    if facts.not_admitted {
        return Membership::NodeOnly;
    }
    match facts.job_key(store.served()) {
        JobKey::Group(join, key) if !ours && store.group(join, &key).is_none() => {
            Membership::NodeOnly
        }
        JobKey::Shadow { .. } | JobKey::Pod { .. } if !ours => Membership::NodeOnly,
        key => Membership::Job(key),
    }
}

pub(crate) fn sort_into_jobs<'a>(
    store: &'a Store,
    groups: &[(Join, &ObjectKey, &Arc<GroupFacts>)],
    options: &SnapshotOptions,
) -> JobMembers<'a> {
    // Those with a PodGroup come first, in the order of these.
    let mut by_key: Vec<(JobKey, Vec<&Arc<TaskFacts>>)> = groups
        .iter()
        .map(|(join, key, _)| (JobKey::Group(*join, (*key).clone()), Vec::new()))
        .collect();
    let mut place: HashMap<JobKey, usize> =
        by_key.iter().enumerate().map(|(at, (key, _))| (key.clone(), at)).collect();
    let mut jobless = Vec::new();
    let mut hints = Hints::default();
    for job in store.batch_jobs.values() {
        hints.batch_job(job, store);
    }
    for facts in store.pods.values() {
        match membership(facts, store, options) {
            Membership::Gone => {}
            Membership::Absent => hints.other_scheduler(named_group(facts, store), facts),
            Membership::NodeOnly => jobless.push(facts),
            Membership::Job(key) => {
                if !matches!(key, JobKey::Group(..)) {
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
            let group = groups.get(at).map(|(_, _, facts)| *facts);
            let job = maker.job(&key, group, in_order(tasks), &hints);
            (key, job)
        })
        .collect();
    jobs.sort_by(|(l, left), (r, right)| rank(left.created, l).cmp(&rank(right.created, r)));
    JobMembers { jobs, jobless, hints }
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
    store: &'a Store,
    options: &'a SnapshotOptions,
}

impl<'a> JobMaker<'a> {
    pub(crate) fn new(store: &'a Store, options: &'a SnapshotOptions) -> Self {
        let priorities = Priorities::new(store, options);
        Self { priorities, budgets: legacy_gangs(store), store, options }
    }

    /// A job with its PodGroup, if it has one, and its tasks, in order.
    pub(crate) fn job<'t>(
        &self,
        key: &JobKey,
        facts: Option<&Arc<GroupFacts>>,
        tasks: Vec<&'t Arc<TaskFacts>>,
        hints: &Hints,
    ) -> Job<'t> {
        let batch = self.batch_jobs(key, &tasks, hints);
        let job = match key {
            JobKey::Group(join, group) => {
                let warnings = hints.warnings(&(*join, group.clone()), &tasks).collect();
                self.group_job((*join, group), facts, tasks, warnings)
            }
            JobKey::Shadow { owner, uid } => {
                let budget = self.budgets.get(&(&owner.namespace, uid));
                self.shadow_job(&owner.namespace, tasks, budget.copied())
            }
            JobKey::Pod { pod, .. } => self.shadow_job(&pod.namespace, tasks, None),
        };
        Job { batch, ..job }
    }

    /// The Jobs that control tasks, or whose pods name the PodGroup, by name.
    fn batch_jobs(
        &self,
        key: &JobKey,
        tasks: &[&Arc<TaskFacts>],
        hints: &Hints,
    ) -> Vec<Arc<BatchJobFacts>> {
        if self.store.batch_jobs.is_empty() {
            return Vec::new();
        }
        let mut last = None;
        let mut jobs: Vec<&Arc<BatchJobFacts>> = Vec::new();
        for facts in tasks {
            let Some(controller) = &facts.controller else { continue };
            // Most pods of a job have the controller of the one before.
            if last.replace(&controller.uid) != Some(&controller.uid) && &*controller.kind == "Job"
            {
                let namespace = facts.key.namespace.clone();
                let key = ObjectKey { namespace, name: controller.name.clone() };
                let job = self.store.batch_jobs.get(&key);
                jobs.extend(job.filter(|job| job.uid == controller.uid));
            }
        }
        if let JobKey::Group(join, group) = key {
            let named = (*join, group.clone());
            jobs.extend(hints.batch_jobs(&named).filter_map(|key| self.store.batch_jobs.get(key)));
        }
        jobs.sort_by(|l, r| l.key.cmp(&r.key));
        jobs.dedup_by(|l, r| l.key == r.key);
        jobs.into_iter().cloned().collect()
    }

    /// The queue of the jobs of a namespace that name none.
    // Parity: see docs/parity.md#k4.
    fn default_queue(&self, namespace: &Name) -> Name {
        let facts = self.store.namespaces.get(namespace);
        let of_namespace = facts.and_then(|facts| facts.queue.as_ref());
        of_namespace.unwrap_or(&self.options.default_queue).clone()
    }

    /// A job of pods without a group, with the age of its oldest pod and its highest priority.
    // Parity: differs, see docs/parity.md#j4 and docs/parity.md#k5.
    fn shadow_job<'t>(
        &self,
        namespace: &Name,
        tasks: Vec<&'t Arc<TaskFacts>>,
        budget: Option<&BudgetFacts>,
    ) -> Job<'t> {
        let annotations = tasks.iter().filter_map(|facts| facts.annotations.as_deref());
        let annotated = CombinedAnnotations::of(annotations);
        let of_budget = budget.and_then(|budget| budget.min_available);
        let of_budget = of_budget.map(|min| min.of(tasks.len()));
        let queue = annotated.queue.clone();
        let min_available = annotated.min_available.or(of_budget).unwrap_or(1);
        let mut warnings = annotation_warnings(&tasks, &annotated);
        warnings.extend(exclusive_topology(min_available, None, &tasks));
        Job {
            group: None,
            created: tasks.first().map_or(Timestamp::UNIX_EPOCH, |facts| facts.created),
            queue: queue.unwrap_or_else(|| self.default_queue(namespace)),
            min_available,
            topology: annotated.topology.map(Arc::new),
            composites: None,
            priority: self.priorities.of_pods(&tasks),
            problem: None,
            warnings,
            batch: Vec::new(),
            tasks,
        }
    }

    fn group_job<'t>(
        &self,
        (join, key): (Join, &ObjectKey),
        group: Option<&Arc<GroupFacts>>,
        tasks: Vec<&'t Arc<TaskFacts>>,
        mut warnings: Vec<JobWarning>,
    ) -> Job<'t> {
        let oldest = tasks.first().map_or(Timestamp::UNIX_EPOCH, |facts| facts.created);
        let (composites, no_composite) = match group.map(|group| self.above(group)) {
            None => (None, None),
            Some(Ok(above)) => (above, None),
            Some(Err(problem)) => (None, Some(problem)),
        };
        let root = composites.as_ref().and_then(|above| above.last());
        let of_root = root.map(|root| self.queue_of_root(root));
        let own_queue = group.and_then(|group| group.queue.clone());
        let other_queue = of_root.as_ref().zip(root).and_then(|(queue, root)| {
            own_queue.as_ref().and_then(|own| other_queue(own, queue, &root.key))
        });
        let queue = of_root.or(own_queue);
        let (priority, warning) = self.priorities.of(group.map(|group| &**group), root, &tasks);
        warnings.extend(warning);
        let min_available = group.map_or(0, |group| group.min_member);
        warnings.extend(exclusive_topology(min_available, group, &tasks));
        warnings.sort_unstable();
        let counts_of_root = root.map(|root| (root.priority, root.never_preempts));
        let contradiction = |group: &GroupFacts| {
            let own = (group.priority.unwrap_or(0), group.never_preempts);
            contradiction(
                group,
                counts_of_root.unwrap_or(own),
                &tasks,
                &self.options.scheduler_names,
            )
        };
        let unreadable = self.store.unreadable_api(join, group.map(|group| &**group));
        Job {
            group: group.cloned(),
            created: group.map_or(oldest, |group| group.created),
            queue: queue.unwrap_or_else(|| self.default_queue(&key.namespace)),
            min_available,
            topology: group.and_then(|group| group.topology.clone()),
            priority,
            problem: match group {
                _ if unreadable.is_some() => unreadable.map(JobProblem::Unreadable),
                None => Some(JobProblem::NoPodGroup(key.clone())),
                Some(_) if no_composite.is_some() => no_composite,
                Some(group) => contradiction(group).map(JobProblem::Inconsistent).or(other_queue),
            },
            composites,
            warnings,
            batch: Vec::new(),
            tasks,
        }
    }

    /// The composite PodGroups above a PodGroup; `None` if it is not part of one.
    ///
    /// # Errors
    ///
    /// The problem of the job if one of them does not exist, or there are too many.
    // Parity: see docs/parity.md#k8.
    fn above(&self, group: &GroupFacts) -> Result<Option<Above>, JobProblem> {
        let mut above: Vec<Arc<CompositeFacts>> = Vec::new();
        let mut parent = group.parent.as_ref();
        while let Some(name) = parent {
            let key = ObjectKey { namespace: group.key.namespace.clone(), name: name.clone() };
            let Some(facts) = self.store.composites.get(&key) else {
                return Err(JobProblem::NoComposite(key));
            };
            if above.len() == MAX_COMPOSITES {
                return Err(JobProblem::TooManyComposites { most: MAX_COMPOSITES, next: key });
            }
            above.push(Arc::clone(facts));
            parent = facts.parent.as_ref();
        }
        Ok((!above.is_empty()).then(|| above.into()))
    }

    /// The queue of all PodGroups below a composite one that is part of no other.
    fn queue_of_root(&self, root: &CompositeFacts) -> Name {
        root.queue.clone().unwrap_or_else(|| self.default_queue(&root.key.namespace))
    }
}

/// The problem of a PodGroup that names another queue than the outermost composite one.
fn other_queue(own: &Name, of_root: &Name, root: &ObjectKey) -> Option<JobProblem> {
    let problem = || JobProblem::QueueDiffers {
        own: own.clone(),
        root: root.clone(),
        of_root: of_root.clone(),
    };
    (own != of_root).then(problem)
}

/// The tasks of a job in their order.
pub(crate) fn in_order<'a>(tasks: Vec<&'a Arc<TaskFacts>>) -> Vec<&'a Arc<TaskFacts>> {
    // What is compared is next to each other in memory.
    let mut keyed: Vec<(Timestamp, &'a str, &'a Arc<TaskFacts>)> =
        tasks.into_iter().map(|facts| (facts.created, facts.key.name.as_str(), facts)).collect();
    keyed.sort_by(|(l, l_name, _), (r, r_name, _)| task_order((*l, l_name), (*r, r_name)));
    keyed.into_iter().map(|(_, _, facts)| facts).collect()
}

/// Contradictions between the pods of one of Kubernetes' own PodGroups and what counts for it, with the messages
/// of kube-scheduler. Without this check, a group could give its pods a priority that they are not allowed to
/// have.
// Parity: see docs/parity.md#k1.
fn contradiction(
    group: &GroupFacts,
    (priority, never_preempts): (i32, Option<bool>),
    tasks: &[&Arc<TaskFacts>],
    schedulers: &SchedulerNames,
) -> Option<Contradiction> {
    if group.version.join() != Join::SchedulingGroup {
        return None;
    }
    let mut members = tasks
        .iter()
        .filter(|facts| !matches!(facts.status, TaskStatus::Succeeded | TaskStatus::Failed));
    members.find_map(|facts| {
        let of_group = never_preempts.filter(|never| *never != facts.never_preempts);
        if facts.priority != priority {
            Some(Contradiction::Priority { pod: facts.priority, group: priority })
        } else if !schedulers.contains(&facts.scheduler) {
            let (pod, ours) = (facts.scheduler.clone(), schedulers.first().clone());
            Some(Contradiction::Scheduler { pod, ours })
        } else {
            of_group.map(|never| Contradiction::PreemptionPolicy { pod_never: !never })
        }
    })
}

/// What is wrong with the annotations of the pods of a job.
fn annotation_warnings(
    tasks: &[&Arc<TaskFacts>],
    CombinedAnnotations { different, .. }: &CombinedAnnotations,
) -> Vec<JobWarning> {
    let unreadable = tasks.iter().find_map(|facts| {
        let value = facts.annotations.as_ref()?.unreadable.clone()?;
        let (pod, key) = (facts.key.clone(), Name::from(MIN_AVAILABLE));
        Some(JobWarning::UnreadableAnnotation { pod, key, value })
    });
    let of_run_time = tasks.iter().find_map(|facts| {
        let value = facts.run_time.as_ref()?.unreadable.clone()?;
        let (pod, key) = (facts.key.clone(), Name::from(RUN_TIME));
        Some(JobWarning::UnreadableAnnotation { pod, key, value })
    });
    let unreadable = unreadable.into_iter().chain(of_run_time);
    let different = different.iter().cloned();
    let different = different
        .map(|(key, counts)| JobWarning::DifferentAnnotations { key: Name::from(key), counts });
    unreadable.chain(different).collect()
}

/// A pod of a gang that lacks pods, because its annotation keeps them from being created before it has a node.
// Parity: see docs/parity.md#e7.
fn exclusive_topology(
    min_available: u32,
    group: Option<&Arc<GroupFacts>>,
    tasks: &[&Arc<TaskFacts>],
) -> Option<JobWarning> {
    let may_count = |facts: &&&Arc<TaskFacts>| {
        !facts.gated && !matches!(facts.status, TaskStatus::Releasing | TaskStatus::Failed)
    };
    if tasks.iter().filter(may_count).count() >= min_available as usize {
        return None;
    }
    let mut waiting = tasks.iter().filter(|facts| facts.node.is_none());
    let (pod, annotation) = waiting.find_map(|facts| {
        let annotation = facts.hints.as_ref()?.exclusive_topology.clone()?;
        Some((facts.key.clone(), annotation))
    })?;
    let instead = match group.map(|group| group.version) {
        None => "their annotation scheduling.sigs.dev/topology-required",
        Some(GroupVersion::V1Alpha1 | GroupVersion::V1Alpha2) => {
            "the annotation scheduling.sigs.dev/topology-required of its PodGroup"
        }
        Some(GroupVersion::Kubernetes) => "schedulingConstraints.topology of its PodGroup",
        Some(GroupVersion::Volcano) => "networkTopology of its PodGroup",
        Some(GroupVersion::Coscheduling) => {
            "required pod affinity to each other, as its PodGroup has no field for that"
        }
    };
    Some(JobWarning::ExclusiveTopology { pod, annotation, instead: Name::from(instead) })
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

    /// The highest priority of the pods of a job that are neither gated nor finished.
    fn of_pods(&self, tasks: &[&Arc<TaskFacts>]) -> JobPriority {
        if !self.enabled {
            return JobPriority::Given(0);
        }
        let is_over =
            |facts: &TaskFacts| matches!(facts.status, TaskStatus::Succeeded | TaskStatus::Failed);
        let is_gated = |facts: &TaskFacts| facts.gated && facts.status == TaskStatus::Pending;
        let active = tasks.iter().filter(|facts| !is_over(facts) && !is_gated(facts));
        let highest = active.map(|facts| facts.priority).max();
        JobPriority::OfPods(highest.unwrap_or(self.default))
    }

    /// The priority of a job with this PodGroup, and what is wrong with the class that it names.
    // Parity: differs, see docs/parity.md#j12.
    fn of(
        &self,
        group: Option<&GroupFacts>,
        root: Option<&Arc<CompositeFacts>>,
        tasks: &[&Arc<TaskFacts>],
    ) -> (JobPriority, Option<JobWarning>) {
        if !self.enabled {
            return (JobPriority::Given(0), None);
        }
        if let Some(root) = root {
            return (JobPriority::Given(root.priority), None);
        }
        if let Some(priority) = group.and_then(|group| group.priority) {
            return (JobPriority::Given(priority), None);
        }
        // PodGroups of scheduler-plugins have no field for it.
        let class = group.and_then(|group| group.priority_class.as_ref());
        let Some(name) = class else { return (self.of_pods(tasks), None) };
        let (class, priority) = (name.clone(), self.default);
        let (priority, warning) =
            match self.store.priority_classes.get(name).map(|class| class.value) {
                None => (priority, Some(JobWarning::PriorityClassNotFound { class, priority })),
                Some(value)
                    if value > HIGHEST_USER_PRIORITY
                        && tasks.iter().all(|facts| facts.priority < value) =>
                {
                    (priority, Some(JobWarning::SystemPriorityClass { class, priority }))
                }
                Some(value) => (value, None),
            };
        (JobPriority::Given(priority), warning)
    }
}
