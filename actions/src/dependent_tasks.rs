//! A gang whose tasks decide where the others fit: by affinity to each other, by spreading, by anti-affinity and host
//! ports, or by devices and claims.
//!
//! Its tasks are placed one after the other, each on some node where it fits then. Where the rest does not fit, the
//! last placement is taken back and another is tried. The first placement is varied first, with the rest in the usual
//! order: mostly it decides the domain of all. Devices of later alternatives are tried as well.
//!
//! Of nodes that are alike as far as the tasks can tell, one is tried. The same places are never tried twice. So if
//! the search ends below its bound, the gang has no places, however its tasks are ordered.
// Parity: new, see docs/parity.md#a11.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use kube_batch_framework::{
    candidates::Choice,
    plugin::Capacity,
    session::Session,
    statement::{Savepoint, Statement},
};
use kube_batch_model::{
    column::{ClassIdx, Dim, NodeIdx, TaskIdx},
    facts::class::PodTemplate,
    name::Name,
};

use crate::{
    budget::Budget,
    gang::{minimum_reached, place_if_free, place_tasks},
    unlike_tasks::{Alike, SearchBound, groups_of, needed, needs_only_resources, requested},
};

/// One task more: of a group, on a node, with the alternative of its devices that is tried first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Step {
    group: usize,
    node: NodeIdx,
    alternative: usize,
}

/// What is still to be tried after some steps.
struct Frame {
    before: Savepoint,
    options: std::vec::IntoIter<Step>,
}

/// The tasks, and the nodes on which they are tried.
struct Search {
    groups: Vec<Alike>,
    dims: Vec<Dim>,
    nodes: Vec<NodeIdx>,
    /// For each of the nodes, a number of its labels, without those that no other node has; `None` if nodes are not
    /// compared.
    kinds: Option<Vec<usize>>,
    /// Whether no placement can make a task of any group fit that did not.
    only_shrinks: bool,
    n_alternatives: Vec<usize>,
    capacity: Capacity,
}

/// Places tasks that depend on each other, so that the minimum of the job has places of this capacity. Returns whether
/// it has; otherwise nothing has changed.
pub(crate) fn place_by_trying(
    tasks: &mut VecDeque<TaskIdx>,
    statement: &mut Statement<'_>,
    budget: &mut Budget<'_>,
    capacity: Capacity,
    bound: &mut SearchBound,
) -> bool {
    let (left, of_rules) = (bound.left(), bound.of_rules);
    let search = Search::new(statement.session_mut(), tasks, capacity, bound);
    let is_placed = search.is_some_and(|search| {
        let is_placed = search.vary_the_first(tasks, statement, budget, bound)
            || search.run(statement, budget, bound);
        statement.session_mut().try_first(None);
        is_placed
    });
    statement.session_mut().count_work(left - bound.left() - (bound.of_rules - of_rules));
    if is_placed {
        tasks.retain(|task| statement.session().cluster().is_waiting(*task));
    }
    is_placed
}

impl Search {
    /// `None` if the tasks do not depend on each other, or if there are too many classes and nodes.
    fn new(
        session: &mut Session,
        tasks: &VecDeque<TaskIdx>,
        capacity: Capacity,
        bound: &mut SearchBound,
    ) -> Option<Self> {
        let groups = groups_of(session, tasks);
        let in_scope = session.nodes_in_scope();
        let n_pairs = (groups.len() * in_scope.len()) as u64;
        if !are_dependent(session, &groups, bound) || !bound.admits(n_pairs) {
            return None;
        }
        let dims = requested(session, &groups);
        let mut nodes = in_scope;
        nodes.retain(|node| groups.iter().any(|group| has_room(session, group.class, *node)));
        let templates = groups.iter().map(|group| template(session, group.class));
        let mut is_comparable = true;
        let mut only_shrinks = true;
        for (template, group) in templates.zip(&groups) {
            let is_told_apart = has_claims(session, group.class);
            is_comparable &= !is_told_apart && template.spread.is_empty();
            only_shrinks &= !is_told_apart
                && template.spread.is_empty()
                && template.pod_terms.required.is_empty();
        }
        let n_alternatives =
            groups.iter().map(|group| session.plugins().n_alternatives(group.class)).collect();
        let kinds = is_comparable.then(|| numbers_of_labels(session, &nodes));
        Some(Self { groups, dims, nodes, kinds, only_shrinks, n_alternatives, capacity })
    }

    /// Tries each alternative of devices, and each place for the first task of each group, and places the others in
    /// their order.
    fn vary_the_first(
        &self,
        tasks: &VecDeque<TaskIdx>,
        statement: &mut Statement<'_>,
        budget: &mut Budget<'_>,
        bound: &mut SearchBound,
    ) -> bool {
        let (start, idle) = (statement.savepoint(), budget.idle());
        let most = self.n_alternatives.iter().copied().max().unwrap_or(1);
        // A turn takes about as long as a look at this many nodes.
        let cost = (tasks.len() + self.nodes.len()) as u64;
        for alternative in 1..most {
            if !bound.admits(cost) {
                return false;
            }
            let work = statement.session().work();
            statement.session_mut().try_first(Some(alternative));
            place_tasks(&mut tasks.clone(), statement, budget);
            if self.has_places(statement, start) {
                return true;
            }
            statement.rollback_to(start);
            budget.restore(idle.clone());
            if !bound.admits_rules_since(statement.session(), work) {
                return false;
            }
        }
        statement.session_mut().try_first((most > 1).then_some(0));
        let Some(steps) = self.steps(statement, &[], bound) else { return false };
        for step in steps.into_iter().filter(|step| step.alternative == 0) {
            if !bound.admits(cost) {
                return false;
            }
            let work = statement.session().work();
            if let Some(task) = self.take(statement, budget, &[], step) {
                let mut others = tasks.clone();
                others.retain(|other| *other != task);
                place_tasks(&mut others, statement, budget);
                if self.has_places(statement, start) {
                    return true;
                }
            }
            statement.rollback_to(start);
            budget.restore(idle.clone());
            if !bound.admits_rules_since(statement.session(), work) {
                return false;
            }
        }
        false
    }

    fn run(
        &self,
        statement: &mut Statement<'_>,
        budget: &mut Budget<'_>,
        bound: &mut SearchBound,
    ) -> bool {
        let (start, idle) = (statement.savepoint(), budget.idle());
        let mut budgets = vec![idle.clone()];
        let mut path: Vec<Step> = Vec::new();
        let mut frames: Vec<Frame> = Vec::new();
        let mut seen: BTreeSet<Vec<Step>> = BTreeSet::new();
        let mut is_new = true;
        loop {
            if is_new {
                if self.has_places(statement, start) {
                    return true;
                }
                let mut places = path.clone();
                places.sort_unstable();
                let steps = match seen.insert(places) {
                    true => self.steps(statement, &path, bound),
                    false => Some(Vec::new()),
                };
                let Some(steps) = steps else { break };
                let before = statement.savepoint();
                frames.push(Frame { before, options: steps.into_iter() });
                is_new = false;
            }
            let Some(frame) = frames.last_mut() else { break };
            let (before, next) = (frame.before, frame.options.next());
            // What was tried from here last is taken back.
            statement.rollback_to(before);
            path.truncate(frames.len() - 1);
            budgets.truncate(frames.len());
            budget.restore(budgets.last().cloned().flatten());
            match next {
                Some(step) => {
                    if self.take(statement, budget, &path, step).is_some() {
                        path.push(step);
                        budgets.push(budget.idle());
                        is_new = true;
                    }
                }
                None => {
                    frames.pop();
                }
            }
        }
        statement.rollback_to(start);
        budget.restore(idle);
        false
    }

    fn has_places(&self, statement: &mut Statement<'_>, start: Savepoint) -> bool {
        minimum_reached(statement, start).is_some_and(|reached| {
            reached == Capacity::Idle || self.capacity == Capacity::FutureIdle
        })
    }

    /// The next task of the group, if some steps were taken before.
    fn next_task(&self, path: &[Step], group: usize) -> Option<TaskIdx> {
        let n_placed = path.iter().filter(|step| step.group == group).count();
        self.groups[group].tasks.get(n_placed).copied()
    }

    /// Places a task. Returns it if it may have the place.
    fn take(
        &self,
        statement: &mut Statement<'_>,
        budget: &mut Budget<'_>,
        path: &[Step],
        Step { group, node, alternative }: Step,
    ) -> Option<TaskIdx> {
        let task = self.next_task(path, group)?;
        let session = statement.session_mut();
        if self.n_alternatives[group] > 1 {
            session.try_first(Some(alternative));
        }
        let capacities: &[Capacity] = match self.capacity {
            Capacity::Idle => &[Capacity::Idle],
            Capacity::FutureIdle => &[Capacity::Idle, Capacity::FutureIdle],
        };
        let is_placed = capacities.iter().any(|capacity| {
            place_if_free(statement, task, Choice { node, capacity: *capacity }, budget)
        });
        is_placed.then_some(task)
    }

    /// The steps that are to be tried after some others; `None` if the bound is reached.
    fn steps(
        &self,
        statement: &mut Statement<'_>,
        path: &[Step],
        bound: &mut SearchBound,
    ) -> Option<Vec<Step>> {
        let left = |group: usize| {
            let n_placed = path.iter().filter(|step| step.group == group).count();
            self.groups[group].tasks.len() - n_placed
        };
        let left: Vec<usize> = (0..self.groups.len()).map(left).collect();
        let n_open = left.iter().filter(|left| **left > 0).count();
        if !bound.admits((n_open * self.nodes.len() + path.len()) as u64) {
            return None;
        }
        let n_needed = needed(statement).n_tasks as usize;
        let session = statement.session_mut();
        let fits = self.fits(session, &left, bound)?;
        if self.only_shrinks {
            let possible = (0..self.groups.len()).map(|group| {
                let of_group = fits.iter().filter(|fits| fits.of_groups[group]);
                let held = of_group
                    .map(|fits| fits.n_nodes.saturating_mul(self.times(session, group, fits.node)));
                held.fold(0_usize, usize::saturating_add).min(left[group])
            });
            if possible.sum::<usize>() < n_needed {
                return Some(Vec::new());
            }
        }
        let n_nodes = |group: usize| fits.iter().filter(|fits| fits.of_groups[group]).count();
        let mut groups: Vec<usize> =
            (0..self.groups.len()).filter(|group| left[*group] > 0).collect();
        groups.sort_by_cached_key(|group| (n_nodes(*group), *group));
        if self.only_shrinks && left.iter().sum::<usize>() == n_needed {
            // All must be placed, and no order is better than another.
            groups.truncate(1);
        }
        let steps = groups.into_iter().flat_map(|group| {
            let nodes = fits.iter().filter(move |fits| fits.of_groups[group]);
            nodes.flat_map(move |fits| {
                let alternatives = 0..self.n_alternatives[group];
                alternatives.map(move |alternative| Step { group, node: fits.node, alternative })
            })
        });
        Some(steps.collect())
    }

    /// Which groups fit on which nodes now, without nodes that are like one before; `None` if the bound is reached.
    fn fits(
        &self,
        session: &mut Session,
        left: &[usize],
        bound: &mut SearchBound,
    ) -> Option<Vec<Fits>> {
        let mut known = BTreeMap::new();
        let mut all: Vec<Fits> = Vec::new();
        for (at, node) in self.nodes.iter().enumerate() {
            let work = session.work();
            let of_groups = self.groups.iter().zip(left);
            let of_groups: Vec<bool> = of_groups
                .map(|(group, left)| {
                    *left > 0 && session.search().fits(group.class, *node, self.capacity)
                })
                .collect();
            if !bound.admits_rules_since(session, work) {
                return None;
            }
            if !of_groups.contains(&true) {
                continue;
            }
            if let Some(kinds) = &self.kinds {
                let nodes = &session.cluster().nodes;
                let free = |dim: &Dim| (nodes.idle[*node][*dim], nodes.future_idle(*node, *dim));
                let free: Vec<(i64, i64)> = self.dims.iter().map(free).collect();
                let is_used = self.is_used(session, *node).then_some(*node);
                let kind = (kinds[at], free, of_groups.clone(), is_used);
                let first = *known.entry(kind).or_insert(all.len());
                if let Some(alike) = all.get_mut(first) {
                    alike.n_nodes += 1;
                    continue;
                }
            }
            all.push(Fits { node: *node, n_nodes: 1, of_groups });
        }
        Some(all)
    }

    /// Whether a task of the gang has its place on the node.
    fn is_used(&self, session: &Session, node: NodeIdx) -> bool {
        let placement = &session.cluster().tasks.placement;
        let mut tasks = self.groups.iter().flat_map(|group| &group.tasks);
        tasks.any(|task| placement[*task].node == Some(node))
    }

    /// How many tasks of a group a node holds by what is free.
    fn times(&self, session: &Session, group: usize, node: NodeIdx) -> usize {
        let cluster = session.cluster();
        let request = &cluster.classes.request[self.groups[group].class];
        let times =
            request.amounts().iter().filter(|(_, amount)| *amount > 0).map(|(dim, amount)| {
                let free = match self.capacity {
                    Capacity::Idle => cluster.nodes.idle[node][*dim],
                    Capacity::FutureIdle => cluster.nodes.future_idle(node, *dim),
                };
                usize::try_from(free / amount).unwrap_or(0)
            });
        times.min().unwrap_or(usize::MAX)
    }
}

/// A node, and which groups fit on it.
struct Fits {
    node: NodeIdx,
    /// How many nodes are like it, itself included.
    n_nodes: usize,
    of_groups: Vec<bool>,
}

/// Whether the first of the tasks has claims for devices or volumes.
pub(crate) fn have_claims(session: &Session, tasks: &VecDeque<TaskIdx>) -> bool {
    tasks.front().is_some_and(|task| has_claims(session, session.cluster().tasks.class[*task]))
}

fn has_claims(session: &Session, class: ClassIdx) -> bool {
    !session.cluster().classes.devices[class].is_empty()
        || !template(session, class).claims.is_empty()
}

/// Whether the place of one task may decide where another fits, other than by what is free. Also `true` if the bound is
/// used up.
fn are_dependent(session: &mut Session, groups: &[Alike], bound: &mut SearchBound) -> bool {
    let is_alone = groups.len() == 1;
    let firsts: Vec<TaskIdx> = groups.iter().map(|group| group.tasks[0]).collect();
    groups.iter().any(|group| {
        // Tasks that are all alike need no other order because of other rules, see A10 for affinity.
        has_claims(session, group.class)
            || !is_alone && !needs_only_resources(session, group.class, &firsts, bound)
    })
}

fn template(session: &Session, class: ClassIdx) -> &PodTemplate {
    &session.cluster().classes.template[class]
}

/// Whether the node holds a task of the class if all that is not of the gang stays as it is.
fn has_room(session: &mut Session, class: ClassIdx, node: NodeIdx) -> bool {
    let cluster = session.cluster();
    let amounts = cluster.classes.request[class].amounts().iter();
    let has_room =
        amounts.into_iter().all(|(dim, amount)| *amount <= cluster.nodes.future_idle(node, *dim));
    has_room && session.search().is_eligible(class, node)
}

/// A number for each node: nodes with equal labels have equal numbers, without labels that no other node has.
fn numbers_of_labels(session: &Session, nodes: &[NodeIdx]) -> Vec<usize> {
    let labels = |node: &NodeIdx| &session.cluster().nodes.facts[*node].labels;
    let mut n_nodes: BTreeMap<(&Name, &Name), usize> = BTreeMap::new();
    for label in nodes.iter().flat_map(|node| labels(node).iter()) {
        *n_nodes.entry(label).or_default() += 1;
    }
    let mut numbers: BTreeMap<Vec<(&Name, &Name)>, usize> = BTreeMap::new();
    let mut number = |node: &NodeIdx| {
        let shared = labels(node).iter().filter(|label| n_nodes[label] > 1);
        let next = numbers.len();
        *numbers.entry(shared.collect()).or_insert(next)
    };
    nodes.iter().map(&mut number).collect()
}
