//! A bounded search for an assignment of tasks of several sizes to nodes.
//!
//! Tasks that are alike are one *group*, nodes that are alike one *kind*. Nodes are filled one after the other, those
//! that admit the fewest groups and have least free first, each with a set of tasks to which none can be added. Where
//! the rest cannot fit, another set is tried. The search never continues twice from the same node with the same tasks
//! left.
//!
//! A larger set is never worse than one that it contains: in an assignment, a task of a later node can move to the
//! place that is free. So if the search ends below its bound, there is no assignment.
// Parity: new, see docs/parity.md#a11.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use kube_batch_model::gang::Members;

/// Tasks that are alike.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    /// What each requests, by dimension.
    pub(crate) request: Vec<i64>,
    /// How many there are.
    pub(crate) n_tasks: u32,
    /// The position of the part for which they count.
    pub(crate) part: Option<usize>,
}

/// Nodes that are alike.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NodeKind {
    /// The groups that it admits, whatever is free.
    pub(crate) admits: Vec<bool>,
    /// What is free on each node, by dimension.
    pub(crate) free: Vec<i64>,
}

/// How many tasks must have a place, for a gang and for each of its parts: the roles of a job, or several jobs.
#[derive(Clone, Debug)]
pub(crate) struct Needed {
    /// Of all groups together.
    pub(crate) n_tasks: u32,
    /// Of each part.
    pub(crate) of_parts: Vec<u32>,
}

/// The result of a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Assignment {
    /// Pairs of a group and the position of a node.
    Found(Vec<(usize, usize)>),
    /// There is none.
    None,
    /// The search ended at its bound.
    Unknown,
}

/// Searches for places for the tasks on nodes, and subtracts from `work` how many sets of tasks were formed, and how
/// often a node was compared with a group.
pub(crate) fn assign(
    groups: &[Group],
    nodes: &[NodeKind],
    needed: &Needed,
    work: &mut u64,
) -> Assignment {
    let mut search = Search::new(groups, nodes, needed, *work);
    let found = search.run();
    *work = search.work;
    found
}

/// How many tasks of each group.
type Counts = Vec<u32>;

/// What can still be tried at a node.
struct Frame {
    /// The position of the node.
    at: usize,
    /// What is left to place.
    left: Counts,
    /// The set that is tried; `None` before the first.
    set: Option<Counts>,
}

struct Search<'a> {
    groups: &'a [Group],
    needed: &'a Needed,
    /// The groups, the one that is hardest to place first.
    order: Vec<usize>,
    kinds: Vec<NodeKind>,
    /// The kind and the position of each node, in the order in which they are filled.
    nodes: Vec<(usize, usize)>,
    /// For each node, how many tasks of each group it and those after it hold, each group by itself.
    held_from: Vec<Counts>,
    /// For each node, what it and those after it have free.
    free_from: Vec<Vec<i128>>,
    seen: BTreeSet<(usize, Counts)>,
    work: u64,
}

impl Group {
    /// What part of the largest free amount one of them takes, in millionths.
    pub(crate) fn part_of_largest(&self, nodes: &[NodeKind]) -> i128 {
        let part = |(dim, amount): (usize, &i64)| {
            let largest = nodes.iter().map(|kind| kind.free[dim]).max().unwrap_or(0).max(1);
            i128::from(*amount) * 1_000_000 / i128::from(largest)
        };
        self.request.iter().enumerate().map(part).max().unwrap_or(0)
    }
}

impl<'a> Search<'a> {
    fn new(groups: &'a [Group], nodes: &[NodeKind], needed: &'a Needed, work: u64) -> Self {
        let n_tasks: u32 = groups.iter().map(|group| group.n_tasks).fold(0, u32::saturating_add);
        let mut members: BTreeMap<&NodeKind, Vec<usize>> = BTreeMap::new();
        for (at, kind) in nodes.iter().enumerate() {
            let nodes = members.entry(kind).or_default();
            // More are never needed.
            if nodes.len() < n_tasks as usize {
                nodes.push(at);
            }
        }
        let holds = |(kind, _): &(&NodeKind, Vec<usize>)| {
            groups.iter().enumerate().any(|(at, group)| n_held(kind, group, at) > 0)
        };
        let mut members: Vec<(&NodeKind, Vec<usize>)> = members.into_iter().filter(holds).collect();
        members.sort_by_cached_key(|(kind, _)| {
            (kind.admits.iter().filter(|admits| **admits).count(), *kind)
        });
        let mut search = Self {
            groups,
            needed,
            order: hardest_first(groups, nodes),
            kinds: Vec::new(),
            nodes: Vec::new(),
            held_from: Vec::new(),
            free_from: Vec::new(),
            seen: BTreeSet::new(),
            work,
        };
        for (kind, nodes) in members {
            let row = search.kinds.len();
            search.kinds.push(kind.clone());
            search.nodes.extend(nodes.into_iter().map(|node| (row, node)));
        }
        search.sum_up();
        search
    }

    fn sum_up(&mut self) {
        let width = self.kinds.first().map_or(0, |kind| kind.free.len());
        let mut held = vec![0_u32; self.groups.len()];
        let mut free = vec![0_i128; width];
        let (mut held_from, mut free_from) = (vec![held.clone()], vec![free.clone()]);
        for (kind, _) in self.nodes.iter().rev() {
            let kind = &self.kinds[*kind];
            for (at, group) in self.groups.iter().enumerate() {
                held[at] = held[at].saturating_add(n_held(kind, group, at));
            }
            for (sum, free) in free.iter_mut().zip(&kind.free) {
                *sum += i128::from((*free).max(0));
            }
            held_from.push(held.clone());
            free_from.push(free.clone());
        }
        self.work = self.work.saturating_sub((self.nodes.len() * self.groups.len()) as u64);
        held_from.reverse();
        free_from.reverse();
        (self.held_from, self.free_from) = (held_from, free_from);
    }

    fn run(&mut self) -> Assignment {
        let all: Counts = self.groups.iter().map(|group| group.n_tasks).collect();
        let mut frames = Vec::new();
        let mut next = Some(Frame { at: 0, left: all.clone(), set: None });
        loop {
            if let Some(frame) = next.take() {
                if self.is_enough(&frame.left) {
                    return Assignment::Found(self.pairs(&frames));
                }
                if self.is_possible(frame.at, &frame.left)
                    && self.seen.insert((frame.at, frame.left.clone()))
                {
                    frames.push(frame);
                }
            }
            if self.work == 0 {
                return Assignment::Unknown;
            }
            let Some(frame) = frames.last_mut() else { return Assignment::None };
            let (kind, _) = self.nodes[frame.at];
            let set = next_set(
                (&self.kinds[kind], self.groups, &self.order),
                &frame.left,
                frame.set.take(),
                &mut self.work,
            );
            match set {
                Some(set) => {
                    let left = frame.left.iter().zip(&set).map(|(left, n)| left - n).collect();
                    frame.set = Some(set);
                    next = Some(Frame { at: frame.at + 1, left, set: None });
                }
                None => {
                    frames.pop();
                }
            }
        }
    }

    fn pairs(&self, frames: &[Frame]) -> Vec<(usize, usize)> {
        let mut pairs = Vec::new();
        for frame in frames {
            let (_, node) = self.nodes[frame.at];
            for (group, n_tasks) in frame.set.iter().flatten().enumerate() {
                pairs.extend((0..*n_tasks).map(|_| (group, node)));
            }
        }
        pairs
    }

    fn is_enough(&self, left: &[u32]) -> bool {
        let placed = self.groups.iter().zip(left).map(|(group, left)| group.n_tasks - left);
        self.suffices(&placed.collect::<Counts>())
    }

    fn suffices(&self, placed: &[u32]) -> bool {
        let mut of_parts = vec![0_u32; self.needed.of_parts.len()];
        let mut sum = 0_u32;
        for (group, n_placed) in self.groups.iter().zip(placed) {
            sum = sum.saturating_add(*n_placed);
            if let Some(of_part) = group.part.and_then(|part| of_parts.get_mut(part)) {
                *of_part = of_part.saturating_add(*n_placed);
            }
        }
        let are_enough = |n: u32, min: u32| Members { n, min }.are_enough();
        are_enough(sum, self.needed.n_tasks)
            && of_parts.iter().zip(&self.needed.of_parts).all(|(n, min)| are_enough(*n, *min))
    }

    /// Whether the nodes from a position on hold enough, of each group by itself and of each resource by itself.
    fn is_possible(&mut self, at: usize, left: &[u32]) -> bool {
        self.work = self.work.saturating_sub(self.groups.len() as u64);
        let most =
            |((group, left), held): ((&Group, &u32), &u32)| group.n_tasks - left + held.min(left);
        let most: Counts =
            self.groups.iter().zip(left).zip(&self.held_from[at]).map(most).collect();
        if !self.suffices(&most) {
            return false;
        }
        let n_placed: u32 =
            self.groups.iter().zip(left).map(|(group, left)| group.n_tasks - left).sum();
        let n_needed = self.needed.n_tasks.saturating_sub(n_placed);
        self.free_from[at]
            .iter()
            .enumerate()
            .all(|(dim, free)| self.least(dim, left, n_needed) <= *free)
    }

    /// What a number of the tasks that are left request of a resource at least.
    fn least(&self, dim: usize, left: &[u32], n_tasks: u32) -> i128 {
        let mut requests: Vec<(i64, u32)> =
            self.groups.iter().zip(left).map(|(group, left)| (group.request[dim], *left)).collect();
        requests.sort_unstable();
        let (mut sum, mut missing) = (0_i128, n_tasks);
        for (amount, n_left) in requests {
            let n = n_left.min(missing);
            sum += i128::from(amount) * i128::from(n);
            missing -= n;
        }
        sum
    }
}

/// How many tasks of a group a node holds.
fn n_held(kind: &NodeKind, group: &Group, at: usize) -> u32 {
    if kind.admits[at] { times(&kind.free, &group.request).min(group.n_tasks) } else { 0 }
}

fn times(free: &[i64], request: &[i64]) -> u32 {
    let amounts = request.iter().zip(free).filter(|(amount, _)| **amount > 0);
    let times = amounts.map(|(amount, free)| free.max(&0) / amount).min();
    times.map_or(u32::MAX, |times| u32::try_from(times).unwrap_or(u32::MAX))
}

/// The groups by how many nodes hold one of their tasks, then by what part of the largest node it takes.
fn hardest_first(groups: &[Group], nodes: &[NodeKind]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..groups.len()).collect();
    order.sort_by_cached_key(|at| {
        let group = &groups[*at];
        let n_nodes = nodes.iter().filter(|kind| n_held(kind, group, *at) > 0).count();
        (n_nodes, Reverse(group.part_of_largest(nodes)), *at)
    });
    order
}

/// The next set of tasks on a node to which none of those that are left can be added: most of the hardest group first.
fn next_set(
    (kind, groups, order): (&NodeKind, &[Group], &[usize]),
    left: &[u32],
    last: Option<Counts>,
    work: &mut u64,
) -> Option<Counts> {
    let mut set = last.clone().unwrap_or_else(|| vec![0; groups.len()]);
    let mut free = kind.free.clone();
    for (group, n_tasks) in groups.iter().zip(&set) {
        take(&mut free, group, i64::from(*n_tasks));
    }
    // From which place in the order the set is filled again.
    let mut from = 0;
    let mut is_new = last.is_none();
    loop {
        if !is_new {
            // Leave out one of the last group that has some.
            let place = (0..order.len()).rev().find(|place| set[order[*place]] > 0)?;
            let group = order[place];
            set[group] -= 1;
            take(&mut free, &groups[group], -1);
            from = place + 1;
        }
        for group in &order[from..] {
            if kind.admits[*group] {
                let n = times(&free, &groups[*group].request).min(left[*group] - set[*group]);
                set[*group] += n;
                take(&mut free, &groups[*group], i64::from(n));
            }
        }
        *work = work.saturating_sub(1);
        if *work == 0 {
            return None;
        }
        is_new = false;
        let can_grow = order[..from].iter().any(|group| {
            kind.admits[*group]
                && set[*group] < left[*group]
                && times(&free, &groups[*group].request) > 0
        });
        if !can_grow {
            return Some(set);
        }
    }
}

/// Subtracts the requests of a number of tasks.
fn take(free: &mut [i64], group: &Group, n_tasks: i64) {
    for (free, amount) in free.iter_mut().zip(&group.request) {
        *free -= amount * n_tasks;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three groups, and nodes that some of their tasks fill to the brim.
    fn filled(n_nodes: i64) -> (Vec<Group>, Vec<NodeKind>, Needed) {
        let requests = [vec![5, 2], vec![3, 4], vec![2, 1]];
        let mut n_tasks = [0; 3];
        let mut nodes = Vec::new();
        for at in 0..n_nodes {
            let mut free = vec![0, 0];
            for step in 0..=at % 3 {
                let group = usize::try_from((at * at + step * 2) % 3).expect("it is below 3");
                n_tasks[group] += 1;
                free.iter_mut().zip(&requests[group]).for_each(|(free, amount)| *free += amount);
            }
            nodes.push(NodeKind { admits: vec![true; 3], free });
        }
        let groups: Vec<Group> = requests
            .into_iter()
            .zip(n_tasks)
            .map(|(request, n_tasks)| Group { request, n_tasks, part: None })
            .collect();
        let needed = Needed { n_tasks: n_tasks.iter().sum(), of_parts: Vec::new() };
        (groups, nodes, needed)
    }

    #[test]
    fn an_assignment_that_leaves_nothing_free_is_found() {
        let (groups, nodes, needed) = filled(24);
        let mut work = 200_000;
        let Assignment::Found(pairs) = assign(&groups, &nodes, &needed, &mut work) else {
            panic!("it fits")
        };
        let mut free: Vec<Vec<i64>> = nodes.into_iter().map(|kind| kind.free).collect();
        for (group, node) in pairs {
            take(&mut free[node], &groups[group], 1);
        }
        assert!(free.iter().flatten().all(|amount| *amount == 0), "{free:?}");
    }

    #[test]
    fn one_task_more_does_not_fit() {
        let (mut groups, nodes, mut needed) = filled(9);
        groups[2].n_tasks += 1;
        needed.n_tasks += 1;
        assert_eq!(assign(&groups, &nodes, &needed, &mut 200_000), Assignment::None);
    }

    #[test]
    fn the_search_ends_at_its_bound() {
        let (groups, nodes, needed) = filled(24);
        assert_eq!(assign(&groups, &nodes, &needed, &mut 80), Assignment::Unknown);
    }
}
