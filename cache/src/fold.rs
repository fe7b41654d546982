//! From facts to the picture of one cycle: a pure fold, made anew each time.
//!
//! Names become rows here and nowhere else. Rows stand in a documented order, so that the lowest
//! row is the answer to every tie. Objects that cannot take part (a job without its queue, the
//! second of two PodGroups of one name) are sorted out here, each with a recorded reason.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::Arc,
};

use jiff::Timestamp;
use kube_batch_api::{
    cluster::{
        Classes, Cluster, Jobs, Matchers, Nodes, Queues, StatusCounts, Storage, TaskRange, Tasks,
    },
    column::{
        ClassIdx, Column, ConstraintClassIdx, JobIdx, MatcherIdx, NodeIdx, Ordinal, QueueIdx,
    },
    crd::ApiVersion,
    decision::ClaimChoice,
    facts::{
        class::{PodMatcher, PodTemplate},
        group::GroupFacts,
        pod::TaskFacts,
        policy::BudgetFacts,
        queue::QueueFacts,
    },
    name::{JobKey, Name, ObjectKey},
    reason::JobProblem,
    resource::{Dimensions, Ledger},
    selector::{LabelSelector, Labels, Requirement},
    status::{Placement, TaskStatus},
};

use crate::{
    assumed::{Assumed, InFlight},
    store::{Store, Table},
};

/// What the fold needs to know besides facts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotOptions {
    /// Pods that name this scheduler are ours.
    pub scheduler_name: Name,
    /// Queue of groups that name none, and of pods without a group.
    pub default_queue: Name,
    /// Whether PriorityClasses rank jobs; otherwise all have priority 0.
    pub priority_class: bool,
}

impl Default for SnapshotOptions {
    /// Scheduler name `kube-batch`, queue `default`, priority classes used.
    fn default() -> Self {
        Self {
            scheduler_name: Name::from("kube-batch"),
            default_queue: Name::from("default"),
            priority_class: true,
        }
    }
}

/// The picture of one cycle, and what was noticed while it was made.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The picture.
    pub cluster: Cluster,
    /// Objects that are ignored, and why.
    pub ignored: Vec<Ignored>,
}

/// An object that takes no part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ignored {
    /// A PodGroup whose name the newer API group has too.
    DuplicateGroup(ObjectKey),
    /// A queue whose name the newer API group has too.
    DuplicateQueue(Name),
}

impl fmt::Display for Ignored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, name) = match self {
            Self::DuplicateGroup(key) => ("PodGroup", key.to_string()),
            Self::DuplicateQueue(name) => ("Queue", name.to_string()),
        };
        let [older, newer] = ApiVersion::ALL;
        write!(f, "{kind} {name} of {older} is ignored: {newer} has one of that name")
    }
}

/// Makes the picture of one cycle.
pub fn snapshot(store: &Store, assumed: &Assumed, options: &SnapshotOptions) -> Snapshot {
    let mut ignored = Vec::new();
    let groups = newest(&store.groups, |key| ignored.push(Ignored::DuplicateGroup(key.clone())));
    let queues = newest(&store.queues, |name| ignored.push(Ignored::DuplicateQueue(name.clone())));

    let members = sort_into_jobs(store, &groups, options);
    let dimensions = dimensions(store, &members);
    let nodes = fold_nodes(store, &dimensions);
    let queues = fold_queues(queues, &dimensions);
    let Draft { classifier, tasks, jobs, queues, .. } =
        Draft::of(store, members, &dimensions, &nodes, queues, assumed, options);
    let mut cluster = Cluster {
        classes: classifier.classes,
        matchers: classifier.matchers,
        dimensions,
        nodes,
        queues,
        jobs,
        tasks,
        storage: Arc::new(fold_storage(store, assumed)),
    };
    charge(&mut cluster);
    Snapshot { cluster, ignored }
}

/// Charges every task to what its placement says.
fn charge(cluster: &mut Cluster) {
    for task in cluster.tasks.placement.ids() {
        cluster.book(task);
        let Placement { status, node } = cluster.tasks.placement[task];
        if let Some(node) = node.filter(|_| status.is_on_node()) {
            cluster.nodes.tasks[node].push(task);
        }
    }
}

/// One object for each name, in order of the names: the newer API group wins.
// Parity: differs, see docs/parity.md#j2.
fn newest<K: Ord, F>(
    table: &Table<(K, ApiVersion), F>,
    mut duplicate: impl FnMut(&K),
) -> Vec<(&K, &Arc<F>)> {
    let mut newest: Vec<(&K, &Arc<F>)> = Vec::with_capacity(table.len());
    for ((key, _), facts) in table.iter() {
        // Keys are in order of version, so the newer one comes second.
        match newest.last_mut() {
            Some((last, older)) if *last == key => {
                *older = facts;
                duplicate(key);
            }
            _ => newest.push((key, facts)),
        }
    }
    newest
}

/// The tasks of the picture, sorted into jobs.
struct Members<'a> {
    /// In row order.
    jobs: Vec<(JobKey, Job<'a>)>,
    jobless: Vec<&'a Arc<TaskFacts>>,
}

struct Job<'a> {
    group: Option<Arc<GroupFacts>>,
    created: Timestamp,
    queue: Name,
    min_available: u32,
    priority: i32,
    problem: Option<JobProblem>,
    tasks: Vec<&'a Arc<TaskFacts>>,
}

impl Members<'_> {
    fn tasks(&self) -> impl Iterator<Item = &Arc<TaskFacts>> {
        self.jobs.iter().flat_map(|(_, job)| &job.tasks).chain(&self.jobless).copied()
    }
}

/// Whose job a pod is.
enum Membership {
    /// A pod that is no concern of ours: it waits for another scheduler.
    Absent,
    /// It only occupies its node.
    NodeOnly,
    Job(JobKey),
}

fn membership(facts: &TaskFacts, groups: &Groups<'_>, options: &SnapshotOptions) -> Membership {
    let ours = facts.scheduler == options.scheduler_name;
    if !ours && facts.node.is_none() {
        return Membership::Absent;
    }
    match &facts.group {
        Some(group) => {
            let key = ObjectKey { namespace: facts.key.namespace.clone(), name: group.clone() };
            if ours || groups.contains_key(&key) {
                Membership::Job(JobKey::Group(key))
            } else {
                Membership::NodeOnly
            }
        }
        None if !ours => Membership::NodeOnly,
        None => {
            let namespace = facts.key.namespace.clone();
            Membership::Job(match &facts.controller {
                Some(controller) => JobKey::Shadow {
                    owner: ObjectKey { namespace, name: controller.name.clone() },
                    uid: controller.uid.clone(),
                },
                None => JobKey::Shadow { owner: facts.key.clone(), uid: facts.uid.clone() },
            })
        }
    }
}

type Groups<'a> = HashMap<&'a ObjectKey, &'a Arc<GroupFacts>>;

fn sort_into_jobs<'a>(
    store: &'a Store,
    groups: &[(&ObjectKey, &Arc<GroupFacts>)],
    options: &SnapshotOptions,
) -> Members<'a> {
    let mut by_key: Vec<(JobKey, Vec<&Arc<TaskFacts>>)> =
        groups.iter().map(|(key, _)| (JobKey::Group((*key).clone()), Vec::new())).collect();
    let mut place: HashMap<JobKey, usize> =
        by_key.iter().enumerate().map(|(at, (key, _))| (key.clone(), at)).collect();
    let groups: Groups<'_> = groups.iter().copied().collect();
    let mut jobless = Vec::new();
    for facts in store.pods.values() {
        match membership(facts, &groups, options) {
            Membership::Absent => {}
            Membership::NodeOnly => jobless.push(facts),
            Membership::Job(key) => {
                let at = *place.entry(key).or_insert_with_key(|key| {
                    by_key.push((key.clone(), Vec::new()));
                    by_key.len() - 1
                });
                by_key[at].1.push(facts);
            }
        }
    }
    let priorities = Priorities::new(store, options);
    let budgets = legacy_gangs(store);
    let mut jobs: Vec<(JobKey, Job<'a>)> = by_key
        .into_iter()
        .map(|(key, mut tasks)| {
            // They come in order of namespace and name, and the sort is stable.
            tasks.sort_by_key(|facts| facts.created);
            let job = match &key {
                JobKey::Group(group) => {
                    group_job(group, groups.get(group).copied(), tasks, &priorities, options)
                }
                JobKey::Shadow { uid, .. } => shadow_job(tasks, budgets.get(uid).copied(), options),
            };
            (key, job)
        })
        .collect();
    jobs.sort_by(|(l, left), (r, right)| {
        (left.created, l.object(), l).cmp(&(right.created, r.object(), r))
    });
    Members { jobs, jobless }
}

fn group_job<'a>(
    key: &ObjectKey,
    group: Option<&Arc<GroupFacts>>,
    tasks: Vec<&'a Arc<TaskFacts>>,
    priorities: &Priorities<'_>,
    options: &SnapshotOptions,
) -> Job<'a> {
    let oldest = tasks.first().map_or(Timestamp::UNIX_EPOCH, |facts| facts.created);
    let queue = group.and_then(|group| group.queue.clone());
    Job {
        group: group.cloned(),
        created: group.map_or(oldest, |group| group.created),
        queue: queue.unwrap_or_else(|| options.default_queue.clone()),
        min_available: group.map_or(0, |group| group.min_member),
        priority: priorities.of(group.and_then(|group| group.priority_class.as_ref())),
        problem: group.is_none().then(|| JobProblem::NoPodGroup(key.clone())),
        tasks,
    }
}

/// A job of pods without a group: as old as its oldest pod, as important as its most important.
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
        tasks,
    }
}

/// PodDisruptionBudgets by the uid of their controller; the oldest wins.
// Parity: kept, see docs/parity.md#j5.
fn legacy_gangs(store: &Store) -> BTreeMap<&Name, &BudgetFacts> {
    let mut budgets: Vec<&BudgetFacts> = store.budgets.values().map(|facts| &**facts).collect();
    budgets.sort_by(|l, r| (r.created, &r.key).cmp(&(l.created, &l.key)));
    budgets
        .into_iter()
        .filter_map(|budget| Some((&budget.controller.as_ref()?.uid, budget)))
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

    fn of(&self, class: Option<&Name>) -> i32 {
        if !self.enabled {
            return 0;
        }
        let found = class.and_then(|class| self.store.priority_classes.get(class));
        found.map_or(self.default, |class| class.value)
    }
}

/// Every resource that a node advertises, a pod asks for or a queue limits.
fn dimensions(store: &Store, members: &Members<'_>) -> Dimensions {
    let mut names: Vec<Name> = Vec::new();
    let mut add = |list: &kube_batch_api::resource::ResourceList| {
        for (name, _) in list.iter() {
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
    };
    for facts in store.nodes.values() {
        add(&facts.allocatable);
    }
    for facts in store.queues.values() {
        add(&facts.capability);
    }
    let mut last: *const PodTemplate = std::ptr::null();
    for facts in members.tasks() {
        // Neighbours mostly share their template.
        if !std::ptr::eq(last, &*facts.template) {
            last = &*facts.template;
            add(&facts.template.request);
        }
    }
    Dimensions::new(names)
}

fn fold_nodes(store: &Store, dimensions: &Dimensions) -> Nodes {
    let n_nodes = store.nodes.len();
    let mut allocatable = Ledger::zero(dimensions.len(), n_nodes);
    for (row, facts) in allocatable.ids().zip(store.nodes.values()) {
        allocatable[row].copy_from_slice(&dimensions.vector(&facts.allocatable));
    }
    let zero = Ledger::zero(dimensions.len(), n_nodes);
    Nodes {
        facts: store.nodes.values().cloned().collect(),
        idle: allocatable.clone(),
        allocatable,
        releasing: zero.clone(),
        pipelined: zero.clone(),
        used: zero,
        tasks: Column::filled(Vec::new(), n_nodes),
    }
}

fn fold_queues(queues: Vec<(&Name, &Arc<QueueFacts>)>, dimensions: &Dimensions) -> Queues {
    let mut facts: Vec<_> = queues.into_iter().map(|(_, facts)| Arc::clone(facts)).collect();
    facts.sort_by(|l, r| (l.created, &l.name).cmp(&(r.created, &r.name)));
    let limits = |facts: &Arc<QueueFacts>| {
        let limits = facts.capability.iter();
        limits.filter_map(|(name, limit)| Some((dimensions.get(name)?, limit))).collect()
    };
    Queues {
        capability: facts.iter().map(limits).collect(),
        jobs: Column::filled(Vec::new(), facts.len()),
        facts: facts.into_iter().collect(),
    }
}

fn fold_storage(store: &Store, assumed: &Assumed) -> Storage {
    let mut storage = Storage {
        volumes: store.volumes.iter().map(|(k, v)| (k.clone(), Arc::clone(v))).collect(),
        claims: store.claims.iter().map(|(k, v)| (k.clone(), Arc::clone(v))).collect(),
        classes: store.storage_classes.iter().map(|(k, v)| (k.clone(), Arc::clone(v))).collect(),
        csi_nodes: store.csi_nodes.iter().map(|(k, v)| (k.clone(), Arc::clone(v))).collect(),
    };
    for (_, in_flight, _) in assumed.iter() {
        if let InFlight::Bind { node, claims } = in_flight {
            for choice in claims {
                settle_claim(&mut storage, choice, node);
            }
        }
    }
    storage
}

/// Shows a claim as it will be once its choice has arrived: bound to its volume, or waiting for one
/// on the node.
fn settle_claim(storage: &mut Storage, choice: &ClaimChoice, node: &Name) {
    let claim = storage.claims.get_mut(&choice.claim).filter(|claim| claim.volume.is_none());
    let Some(claim) = claim.map(Arc::make_mut) else { return };
    let Some(volume) = &choice.volume else {
        claim.selected_node = Some(node.clone());
        return;
    };
    claim.volume = Some(volume.clone());
    claim.bind_completed = true;
    if let Some(volume) = storage.volumes.get_mut(volume).map(Arc::make_mut) {
        volume.claim = Some((claim.key.clone(), Some(claim.uid.clone())));
    }
}

/// Jobs and tasks while they get their rows.
struct Draft<'a> {
    classifier: Classifier<'a>,
    node_rows: HashMap<&'a Name, NodeIdx>,
    assumed: &'a Assumed,
    options: &'a SnapshotOptions,
    tasks: Tasks,
    jobs: Jobs,
    queues: Queues,
}

impl<'a> Draft<'a> {
    fn of(
        store: &'a Store,
        members: Members<'_>,
        dimensions: &'a Dimensions,
        nodes: &'a Nodes,
        queues: Queues,
        assumed: &'a Assumed,
        options: &'a SnapshotOptions,
    ) -> Self {
        let queue_rows: HashMap<Name, QueueIdx> =
            queues.facts.iter().map(|(row, facts)| (facts.name.clone(), row)).collect();
        let mut draft = Self {
            classifier: Classifier::new(store, &members, dimensions),
            node_rows: nodes.facts.iter().map(|(row, facts)| (&facts.name, row)).collect(),
            assumed,
            options,
            tasks: Tasks::default(),
            jobs: Jobs::default(),
            queues,
        };
        for (key, job) in members.jobs {
            let queue = queue_rows.get(&job.queue).copied();
            draft.push_job(key, job, queue);
        }
        for facts in members.jobless {
            draft.push_task(facts, None);
        }
        draft
    }

    fn push_job(&mut self, key: JobKey, job: Job<'_>, queue: Option<QueueIdx>) {
        let start = self.tasks.facts.len();
        let row = self.jobs.key.push(key);
        for facts in job.tasks {
            self.push_task(facts, Some(row));
        }
        let problem = job
            .problem
            .or_else(|| queue.is_none().then(|| JobProblem::QueueNotFound(job.queue.clone())));
        let queue = queue.filter(|_| problem.is_none());
        if let Some(queue) = queue {
            self.queues.jobs[queue].push(row);
        }
        self.jobs.group.push(job.group);
        self.jobs.created.push(job.created);
        self.jobs.queue.push(queue);
        self.jobs.min_available.push(job.min_available);
        self.jobs.priority.push(job.priority);
        self.jobs.tasks.push(TaskRange::new(start..self.tasks.facts.len()));
        self.jobs.problem.push(problem);
        self.jobs.counts.push(StatusCounts::default());
    }

    /// Decisions in flight are laid over the facts.
    fn push_task(&mut self, facts: &Arc<TaskFacts>, job: Option<JobIdx>) {
        let in_flight = self.assumed.get(&facts.uid);
        let (status, node) = match in_flight {
            Some(InFlight::Bind { node, .. }) if facts.status == TaskStatus::Pending => {
                (TaskStatus::Binding, Some(node))
            }
            Some(InFlight::Evict) if facts.status == TaskStatus::Running => {
                (TaskStatus::Releasing, facts.node.as_ref())
            }
            Some(_) | None => (facts.status, facts.node.as_ref()),
        };
        let nominated = match in_flight {
            Some(InFlight::Nominate { node }) => Some(node),
            Some(InFlight::Bind { .. } | InFlight::Evict) | None => facts.nominated_node.as_ref(),
        };
        let row = |node: &Name| self.node_rows.get(node).copied();
        let waits = status == TaskStatus::Pending;
        let tasks = &mut self.tasks;
        tasks.job.push(job);
        tasks.class.push(self.classifier.class_of(facts));
        tasks.priority.push(facts.priority);
        tasks.ours.push(facts.scheduler == self.options.scheduler_name);
        tasks.gated.push(facts.gated && waits);
        tasks.placement.push(Placement { status, node: node.and_then(row) });
        tasks.nominated.push(nominated.filter(|_| waits).and_then(row));
        tasks.facts.push(Arc::clone(facts));
    }
}

/// Sorts tasks into classes: same template, and matched by the same selectors of other pods.
struct Classifier<'a> {
    store: &'a Store,
    dimensions: &'a Dimensions,
    matchers: Matchers,
    /// Selectors that ask for a label pair, by the pairs they ask for.
    by_pair: HashMap<(Name, Name), Vec<MatcherIdx>>,
    /// Selectors that may match whatever the labels.
    unselective: Vec<MatcherIdx>,
    /// What matches pods of a namespace with given labels.
    matched: HashMap<(Name, *const Labels), Arc<[MatcherIdx]>>,
    by_content: HashMap<(*const PodTemplate, Arc<[MatcherIdx]>), ClassIdx>,
    constraint_classes: HashMap<(PodTemplate, Arc<[MatcherIdx]>), ConstraintClassIdx>,
    classes: Classes,
}

impl<'a> Classifier<'a> {
    fn new(store: &'a Store, members: &Members<'_>, dimensions: &'a Dimensions) -> Self {
        let mut matchers = Matchers::default();
        let mut last: *const PodTemplate = std::ptr::null();
        for facts in members.tasks() {
            if !std::ptr::eq(last, &*facts.template) {
                last = &*facts.template;
                for matcher in matchers_of(&facts.template) {
                    matchers.intern(matcher);
                }
            }
        }
        let mut by_pair: HashMap<(Name, Name), Vec<MatcherIdx>> = HashMap::new();
        let mut unselective = Vec::new();
        for (row, matcher) in matchers.iter() {
            let requirements = matcher.selector.iter().flat_map(LabelSelector::requirements);
            match requirements.into_iter().find_map(Requirement::wanted_pairs) {
                Some(pairs) => {
                    for (key, value) in pairs {
                        by_pair.entry((key.clone(), value.clone())).or_default().push(row);
                    }
                }
                None => unselective.push(row),
            }
        }
        Self {
            store,
            dimensions,
            matchers,
            by_pair,
            unselective,
            matched: HashMap::new(),
            by_content: HashMap::new(),
            constraint_classes: HashMap::new(),
            classes: Classes::default(),
        }
    }

    fn class_of(&mut self, facts: &Arc<TaskFacts>) -> ClassIdx {
        let matched = self.matched_by(facts);
        let content = (Arc::as_ptr(&facts.template), matched);
        if let Some(class) = self.by_content.get(&content) {
            return *class;
        }
        let class = self.classes.template.push(Arc::clone(&facts.template));
        self.classes.request.push(self.dimensions.request(&facts.template.request));
        self.classes.matched_by.push(content.1.to_vec());
        let constraints = (facts.template.without_request(), Arc::clone(&content.1));
        let next = ConstraintClassIdx::new(self.constraint_classes.len());
        let row = *self.constraint_classes.entry(constraints).or_insert(next);
        self.classes.constraint_class.push(row);
        self.by_content.insert(content, class);
        class
    }

    fn matched_by(&mut self, facts: &TaskFacts) -> Arc<[MatcherIdx]> {
        if self.matchers.is_empty() {
            return Arc::default();
        }
        let key = (facts.key.namespace.clone(), Arc::as_ptr(&facts.labels));
        if let Some(matched) = self.matched.get(&key) {
            return Arc::clone(matched);
        }
        let no_labels = Labels::default();
        let namespace = self.store.namespaces.get(&facts.key.namespace);
        let namespace_labels = namespace.map_or(&no_labels, |namespace| &namespace.labels);
        let by_pair = facts
            .labels
            .iter()
            .filter_map(|(label, value)| self.by_pair.get(&(label.clone(), value.clone())));
        let mut candidates: Vec<MatcherIdx> =
            by_pair.flatten().chain(&self.unselective).copied().collect();
        candidates.sort_unstable();
        candidates.dedup();
        candidates.retain(|row| {
            self.matchers[*row].matches(&facts.key.namespace, namespace_labels, &facts.labels)
        });
        let matched: Arc<[MatcherIdx]> = candidates.into();
        self.matched.insert(key, Arc::clone(&matched));
        matched
    }
}

fn matchers_of(template: &PodTemplate) -> impl Iterator<Item = &PodMatcher> {
    let terms = template.pod_terms.iter().map(|term| &term.matcher);
    terms.chain(template.spread.iter().map(|constraint| &constraint.matcher))
}
