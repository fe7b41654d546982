//! A gang whose tasks are not alike: whether another order than that of its tasks finds places for its minimum.
//!
//! Where only free amounts and rules about single nodes decide, a search tells whether there is an assignment. Then,
//! and where the search cannot tell, the tasks are tried again, those first that fit on the fewest nodes, then those
//! first that take most of a node: scores choose the nodes. Last, the assignment is taken that the search has found.
// Parity: new, see docs/parity.md#a11.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, VecDeque},
};

use kube_batch_framework::{
    candidates::Choice, plugin::Capacity, session::Session, statement::Statement,
};
use kube_batch_model::{
    column::{ClassIdx, Dim, JobIdx, NodeIdx, TaskIdx},
    gang::Sense,
    resource::Request,
};

use crate::{
    assignment::{Assignment, Group, Needed, NodeKind, assign},
    budget::Budget,
    gang::{could_be_held, minimum_reached, place_if_free, place_tasks, tasks_for_later},
};

/// How much may be done in one turn to find another order: sets of tasks that are formed, and comparisons of a node with
/// a class. Guessed: some milliseconds.
const MAX_WORK: u64 = 200_000;

/// What the searches of one turn have left, and how they ended.
#[derive(Debug)]
pub(crate) struct SearchBound {
    left: u64,
    /// What of it rules have taken that are slow, and is counted as work already.
    pub(crate) of_rules: u64,
    /// Whether a search ended at the bound.
    pub(crate) was_reached: bool,
}

impl Default for SearchBound {
    fn default() -> Self {
        Self { left: MAX_WORK, of_rules: 0, was_reached: false }
    }
}

impl SearchBound {
    /// What is left.
    pub(crate) const fn left(&self) -> u64 {
        self.left
    }

    /// Takes what some work needs of what is left. Returns `false`, and takes nothing, if less is left.
    pub(crate) fn admits(&mut self, work: u64) -> bool {
        let is_admitted = work <= self.left;
        match is_admitted {
            true => self.left -= work,
            false => self.was_reached = true,
        }
        is_admitted
    }

    /// Takes what rules have cost since the session had done so much work, such as searches for devices. Returns `false`
    /// if nothing is left then.
    pub(crate) fn admits_rules_since(&mut self, session: &Session, work: u64) -> bool {
        let cost = (session.work() - work).min(self.left);
        self.left -= cost;
        self.of_rules += cost;
        self.was_reached |= self.left == 0;
        self.left > 0
    }
}

/// Tasks that are alike, in their order.
pub(crate) struct Alike {
    pub(crate) class: ClassIdx,
    /// The position of their role in the job, or of their job among several.
    part: Option<usize>,
    pub(crate) tasks: Vec<TaskIdx>,
}

/// Whether some of the tasks differ in where they fit.
pub(crate) fn are_unlike(session: &Session, tasks: &VecDeque<TaskIdx>) -> bool {
    let first = tasks.front().map(|task| class_of(session, *task));
    tasks.iter().any(|task| Some(class_of(session, *task)) != first)
}

/// The class of a task, or the one of which it is a variant: variants fit on the same nodes.
fn class_of(session: &Session, task: TaskIdx) -> ClassIdx {
    let cluster = session.cluster();
    cluster.classes.variant_of[cluster.tasks.class[task]]
}

/// Places tasks in other orders, so that the minimum of the job has places of this capacity. Returns whether it has;
/// otherwise nothing has changed.
pub(crate) fn place_in_other_orders(
    tasks: &mut VecDeque<TaskIdx>,
    statement: &mut Statement<'_>,
    budget: &mut Budget<'_>,
    capacity: Capacity,
    bound: &mut SearchBound,
) -> bool {
    let free = |session: &Session, node: NodeIdx, dim: Dim| {
        session.cluster().nodes.available(node, dim, capacity)
    };
    let fits = |session: &mut Session, class: ClassIdx, node: NodeIdx| {
        session.search().fits(class, node, capacity)
    };
    let view = View::new(statement.session_mut(), tasks, bound, (&fits, &free));
    let Some(view) = view else { return false };
    let found = if view.depends_on_nodes_alone(statement.session_mut(), bound) {
        view.search(statement, bound)
    } else {
        Assignment::Unknown
    };
    if found == Assignment::None {
        return false;
    }
    let (start, waiting, idle) = (statement.savepoint(), tasks.clone(), budget.idle());
    let has_places = |statement: &mut Statement<'_>| {
        minimum_reached(statement, start)
            .is_some_and(|reached| reached == Capacity::Idle || capacity == Capacity::FutureIdle)
    };
    // The first is the order that was tried.
    for order in view.orders(tasks).split_off(1) {
        *tasks = order;
        place_tasks(tasks, statement, budget);
        if has_places(statement) {
            return true;
        }
        statement.rollback_to(start);
        budget.restore(idle.clone());
    }
    tasks.clone_from(&waiting);
    let Assignment::Found(pairs) = found else { return false };
    if view.place(statement, &pairs, budget) && has_places(statement) {
        tasks.retain(|task| statement.session().cluster().is_waiting(*task));
        return true;
    }
    statement.rollback_to(start);
    budget.restore(idle);
    false
}

/// A job, and places for its tasks.
pub(crate) type JobPlaces = (JobIdx, Vec<(TaskIdx, NodeIdx)>);

/// Places for the minimum of each of some jobs together, in what is idle, if only what is free decides where their
/// tasks fit and the search finds some.
pub(crate) fn places_of_jobs(
    session: &mut Session,
    jobs: &[JobIdx],
    bound: &mut SearchBound,
) -> Option<Vec<JobPlaces>> {
    let mut groups = Vec::new();
    for (at, job) in jobs.iter().enumerate() {
        let own = groups_of(session, &session.waiting_tasks(*job).into());
        groups.extend(own.into_iter().map(|group| Alike { part: Some(at), ..group }));
    }
    let free = |session: &Session, node: NodeIdx, dim: Dim| {
        session.cluster().nodes.available(node, dim, Capacity::Idle)
    };
    let fits = |session: &mut Session, class: ClassIdx, node: NodeIdx| {
        session.search().fits(class, node, Capacity::Idle)
    };
    let view = View::of_groups(session, groups, bound, (&fits, &free))?;
    if !view.depends_on_nodes_alone(session, bound) {
        return None;
    }
    let of_parts: Vec<u32> = jobs.iter().map(|job| session.plugins().tasks_missing(*job)).collect();
    let needed = Needed { n_tasks: of_parts.iter().sum(), of_parts };
    let before = bound.left;
    let found = assign(&view.sizes, &view.kinds, &needed, &mut bound.left);
    session.count_work(before - bound.left);
    let Assignment::Found(pairs) = found else { return None };
    let mut places: Vec<JobPlaces> = jobs.iter().map(|job| (*job, Vec::new())).collect();
    let mut left: Vec<_> = view.groups.iter().map(|group| group.tasks.iter()).collect();
    for (group, at) in pairs {
        let task = *left[group].next().expect("no more are placed than there are");
        let job = view.groups[group].part.expect("it is the position of the job");
        places[job].1.push((task, view.nodes[at]));
    }
    Some(places)
}

/// Other orders in which tasks are placed with victims; none if the tasks are alike. What victims release is not free
/// yet, so a node counts for a task if the rules that no placement can change admit it.
pub(crate) fn other_orders(
    session: &mut Session,
    job: JobIdx,
    tasks: &VecDeque<TaskIdx>,
) -> Vec<VecDeque<TaskIdx>> {
    if !are_unlike(session, tasks) || !could_be_held(session, job) {
        return Vec::new();
    }
    let allocatable =
        |session: &Session, node: NodeIdx, dim: Dim| session.cluster().nodes.allocatable[node][dim];
    let mut bound = SearchBound::default();
    let fits = |session: &mut Session, class: ClassIdx, node: NodeIdx| {
        session.search().is_eligible(class, node)
    };
    let view = View::new(session, tasks, &mut bound, (&fits, &allocatable));
    view.map(|view| view.orders(tasks).split_off(1)).unwrap_or_default()
}

/// Whether a node admits tasks of a class.
type Admits<'a> = dyn Fn(&mut Session, ClassIdx, NodeIdx) -> bool + 'a;

/// How much of a resource is free on a node.
type Free<'a> = dyn Fn(&Session, NodeIdx, Dim) -> i64 + 'a;

/// The tasks, and the nodes that admit one of them.
struct View {
    groups: Vec<Alike>,
    sizes: Vec<Group>,
    nodes: Vec<NodeIdx>,
    kinds: Vec<NodeKind>,
}

impl View {
    /// `None` if there are too many classes and nodes.
    fn new(
        session: &mut Session,
        tasks: &VecDeque<TaskIdx>,
        bound: &mut SearchBound,
        (admits, free): (&Admits<'_>, &Free<'_>),
    ) -> Option<Self> {
        let groups = groups_of(session, tasks);
        Self::of_groups(session, groups, bound, (admits, free))
    }

    fn of_groups(
        session: &mut Session,
        groups: Vec<Alike>,
        bound: &mut SearchBound,
        (admits, free): (&Admits<'_>, &Free<'_>),
    ) -> Option<Self> {
        let in_scope = session.nodes_in_scope();
        if !bound.admits((groups.len() * in_scope.len()) as u64) {
            return None;
        }
        let dims = requested(session, &groups);
        let sizes = groups.iter().map(|group| size_of(session, group, &dims)).collect();
        let (mut nodes, mut kinds) = (Vec::new(), Vec::new());
        for node in in_scope {
            let admits: Vec<bool> =
                groups.iter().map(|group| admits(session, group.class, node)).collect();
            if !admits.contains(&true) {
                continue;
            }
            let free = dims.iter().map(|dim| free(session, node, *dim)).collect();
            kinds.push(NodeKind { admits, free });
            nodes.push(node);
        }
        Some(Self { groups, sizes, nodes, kinds })
    }

    /// Whether only what is free, and rules that no placement of these tasks can change, decide where they fit.
    /// Also `false` if the bound is used up.
    fn depends_on_nodes_alone(&self, session: &mut Session, bound: &mut SearchBound) -> bool {
        let firsts: Vec<TaskIdx> = self.groups.iter().map(|group| group.tasks[0]).collect();
        self.groups.iter().all(|group| {
            session.cluster().classes.devices[group.class].is_empty()
                && !session.search().is_open_to_change(group.class)
                && needs_only_resources(session, group.class, &firsts, bound)
        })
    }

    fn search(&self, statement: &mut Statement<'_>, bound: &mut SearchBound) -> Assignment {
        let needed = needed(statement);
        let before = bound.left;
        let found = assign(&self.sizes, &self.kinds, &needed, &mut bound.left);
        bound.was_reached |= found == Assignment::Unknown;
        statement.session_mut().count_work(before - bound.left);
        found
    }

    /// The tasks in the order that is given, then in others: those first that fit on the fewest nodes, and those first
    /// that take most of a node.
    fn orders(&self, tasks: &VecDeque<TaskIdx>) -> Vec<VecDeque<TaskIdx>> {
        let n_nodes = |at: usize| self.kinds.iter().filter(|kind| kind.admits[at]).count();
        let part = |at: usize| Reverse(self.sizes[at].part_of_largest(&self.kinds));
        let (mut fewest, mut largest): (Vec<usize>, Vec<usize>) =
            ((0..self.groups.len()).collect(), (0..self.groups.len()).collect());
        fewest.sort_by_cached_key(|at| (n_nodes(*at), part(*at)));
        largest.sort_by_cached_key(|at| (part(*at), n_nodes(*at)));
        let mut orders = vec![tasks.clone()];
        for order in [fewest, largest] {
            let tasks = order.iter().flat_map(|at| &self.groups[*at].tasks).copied().collect();
            if !orders.contains(&tasks) {
                orders.push(tasks);
            }
        }
        orders
    }

    /// Places tasks as the search says. Returns `false` if one of them may not have its place.
    fn place(
        &self,
        statement: &mut Statement<'_>,
        pairs: &[(usize, usize)],
        budget: &mut Budget<'_>,
    ) -> bool {
        let mut left: Vec<_> = self.groups.iter().map(|group| group.tasks.iter()).collect();
        pairs.iter().all(|(group, at)| {
            let task = *left[*group].next().expect("no more are placed than there are");
            let node = self.nodes[*at];
            let mut capacities = [Capacity::Idle, Capacity::FutureIdle].into_iter();
            capacities
                .any(|capacity| place_if_free(statement, task, Choice { node, capacity }, budget))
        })
    }
}

/// Whether none of these tasks can change an answer of a rule for the class; also `false` if the bound is used up.
pub(crate) fn needs_only_resources(
    session: &mut Session,
    class: ClassIdx,
    others: &[TaskIdx],
    bound: &mut SearchBound,
) -> bool {
    let work = session.work();
    session.search().needs_only_resources(class, others) && bound.admits_rules_since(session, work)
}

/// The tasks by class and role, in their order.
pub(crate) fn groups_of(session: &Session, tasks: &VecDeque<TaskIdx>) -> Vec<Alike> {
    let mut groups: Vec<Alike> = Vec::new();
    let mut known: BTreeMap<(ClassIdx, Option<usize>), usize> = BTreeMap::new();
    for task in tasks {
        let class = class_of(session, *task);
        let part = session.cluster().tasks.role[*task].map(usize::from);
        let at = *known.entry((class, part)).or_insert_with(|| {
            groups.push(Alike { class, part, tasks: Vec::new() });
            groups.len() - 1
        });
        groups[at].tasks.push(*task);
    }
    groups
}

/// The resources that some of them request.
pub(crate) fn requested(session: &Session, groups: &[Alike]) -> Vec<Dim> {
    let requests = groups.iter().map(|group| &session.cluster().classes.request[group.class]);
    let mut dims: Vec<Dim> = requests.flat_map(Request::amounts).map(|(dim, _)| *dim).collect();
    dims.sort_unstable();
    dims.dedup();
    dims
}

fn size_of(session: &Session, group: &Alike, dims: &[Dim]) -> Group {
    let request = &session.cluster().classes.request[group.class];
    Group {
        request: dims.iter().map(|dim| request.get(*dim)).collect(),
        n_tasks: u32::try_from(group.tasks.len()).unwrap_or(u32::MAX),
        part: group.part,
    }
}

/// How many tasks must have a place, besides those that backfill may place.
pub(crate) fn needed(statement: &mut Statement<'_>) -> Needed {
    let n_for_later = tasks_for_later(statement);
    let (session, job) = (statement.session(), statement.job());
    let n_missing = session.plugins().tasks_missing(job);
    let missing = session.cluster().missing_of_roles(job, Sense::Pipelined);
    // Those of backfill may be of any role.
    let of_parts = if n_for_later == 0 { missing.collect() } else { Vec::new() };
    let n_for_later = u32::try_from(n_for_later).unwrap_or(u32::MAX);
    Needed { n_tasks: n_missing.saturating_sub(n_for_later), of_parts }
}
