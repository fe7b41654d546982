//! The tree of queues: which queue is below which, and which of them serve nothing.
// Parity: see docs/parity.md#q1.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    column::{Column, QueueIdx},
    name::Name,
};

/// The largest number of queues above each other that are served, the lowest included.
pub const MAX_DEPTH: usize = 10;

/// Why a queue serves nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotServed {
    /// The topmost queue of its path names a parent that does not exist.
    NoParent {
        /// The queue that names it.
        child: QueueIdx,
        /// The name of the parent.
        parent: Name,
    },
    /// Its path goes in a circle: the queues of the circle, ascending.
    Loop(Arc<[QueueIdx]>),
    /// More queues are above each other than are served: their number, the lowest included.
    TooDeep(usize),
    /// It stands for the top of the tree, and is no queue.
    Top,
}

/// Queues and their parents. A queue that serves nothing has neither parent nor children.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueTree {
    parent: Column<QueueIdx, Option<QueueIdx>>,
    children: Column<QueueIdx, Vec<QueueIdx>>,
    roots: Vec<QueueIdx>,
    parents_first: Vec<QueueIdx>,
    not_served: BTreeMap<QueueIdx, NotServed>,
}

/// What is known of a queue while its path is followed.
#[derive(Clone, Debug)]
enum Followed {
    NotYet,
    /// It is on the path that is followed.
    OnPath,
    Done(Result<usize, NotServed>),
}

impl QueueTree {
    /// The tree of queues that name these parents. `row` finds a queue by its name; `top` stands for the top of the tree.
    pub fn new(
        parents: &Column<QueueIdx, Option<Name>>,
        row: impl Fn(&Name) -> Option<QueueIdx>,
        top: Option<QueueIdx>,
    ) -> Self {
        let mut followed = Column::filled(Followed::NotYet, parents.len());
        if let Some(top) = top {
            followed[top] = Followed::Done(Err(NotServed::Top));
        }
        let is_below_top = |name: &Name| top.is_some() && row(name) == top;
        let parents: Column<QueueIdx, Option<&Name>> = parents
            .values()
            .map(|parent| parent.as_ref().filter(|name| !is_below_top(name)))
            .collect();
        let parents = &parents;
        let mut tree = Self {
            parent: Column::filled(None, parents.len()),
            children: Column::filled(Vec::new(), parents.len()),
            ..Self::default()
        };
        for queue in parents.ids() {
            follow(queue, parents, &row, &mut followed);
            match &followed[queue] {
                Followed::Done(Err(problem)) => {
                    tree.not_served.insert(queue, problem.clone());
                }
                Followed::Done(Ok(depth)) if *depth > MAX_DEPTH => {
                    tree.not_served.insert(queue, NotServed::TooDeep(*depth));
                }
                Followed::Done(Ok(_)) | Followed::NotYet | Followed::OnPath => {}
            }
        }
        for queue in parents.ids().filter(|queue| !tree.not_served.contains_key(queue)) {
            match parents[queue].and_then(&row) {
                Some(parent) => {
                    tree.parent[queue] = Some(parent);
                    tree.children[parent].push(queue);
                }
                None => tree.roots.push(queue),
            }
        }
        tree.parents_first.clone_from(&tree.roots);
        let mut next = 0;
        while let Some(queue) = tree.parents_first.get(next).copied() {
            tree.parents_first.extend(&tree.children[queue]);
            next += 1;
        }
        tree
    }

    /// Whether no queue is below another.
    pub fn is_flat(&self) -> bool {
        self.roots.len() + self.not_served.len() == self.parent.len()
    }

    /// The queue above a queue; `None` if that is the top, or the queue serves nothing.
    pub fn parent(&self, queue: QueueIdx) -> Option<QueueIdx> {
        self.parent[queue]
    }

    /// The queues directly below a queue, in order.
    pub fn children(&self, queue: QueueIdx) -> &[QueueIdx] {
        &self.children[queue]
    }

    /// The queues at the top, in order.
    pub fn roots(&self) -> &[QueueIdx] {
        &self.roots
    }

    /// All queues that serve something, each after its parent.
    pub fn parents_first(&self) -> &[QueueIdx] {
        &self.parents_first
    }

    /// A queue and all above it, itself first.
    pub fn path(&self, queue: QueueIdx) -> impl Iterator<Item = QueueIdx> {
        std::iter::successors(Some(queue), |queue| self.parent[*queue])
    }

    /// Whether a queue is `below`, or above it.
    pub fn is_on_path(&self, queue: QueueIdx, below: QueueIdx) -> bool {
        self.path(below).any(|above| above == queue)
    }

    /// Whether jobs may name a queue: it serves something, and no queue is below it.
    pub fn is_leaf(&self, queue: QueueIdx) -> bool {
        self.children[queue].is_empty() && !self.not_served.contains_key(&queue)
    }

    /// Why a queue serves nothing, if so.
    pub fn not_served(&self, queue: QueueIdx) -> Option<&NotServed> {
        self.not_served.get(&queue)
    }

    /// How many queues the sides of two queues have: the queues of the path of each, itself first, up to the lowest that is
    /// above both, without it.
    pub fn sides(&self, one: QueueIdx, other: QueueIdx) -> [usize; 2] {
        let mut at = [Some(one), Some(other)];
        let n_above = at.map(|queue| queue.into_iter().flat_map(|queue| self.path(queue)).count());
        let mut n = [0, 0];
        let mut rise = |at: &mut [Option<QueueIdx>; 2], side: usize| {
            at[side] = at[side].and_then(|queue| self.parent[queue]);
            n[side] += 1;
        };
        for side in [0, 1] {
            for _ in n_above[1 - side]..n_above[side] {
                rise(&mut at, side);
            }
        }
        while at[0] != at[1] {
            rise(&mut at, 0);
            rise(&mut at, 1);
        }
        n
    }

    /// Where two queues part: the queue of the path of each that is below their common parent. `None` if one of them is
    /// above the other.
    pub fn parting(&self, one: QueueIdx, other: QueueIdx) -> Option<[QueueIdx; 2]> {
        if self.parent[one] == self.parent[other] {
            return (one != other).then_some([one, other]);
        }
        let [n_one, n_other] = self.sides(one, other);
        let last = |queue, n: usize| self.path(queue).nth(n.checked_sub(1)?);
        Some([last(one, n_one)?, last(other, n_other)?])
    }
}

/// Follows the path of a queue to a queue whose path is known, or that ends it.
fn follow(
    queue: QueueIdx,
    parents: &Column<QueueIdx, Option<&Name>>,
    row: &impl Fn(&Name) -> Option<QueueIdx>,
    followed: &mut Column<QueueIdx, Followed>,
) {
    let mut path = Vec::new();
    let mut last = queue;
    let mut found = loop {
        match &followed[last] {
            Followed::Done(known) => break known.clone(),
            Followed::OnPath => {
                let start = path.iter().position(|on_path| *on_path == last).unwrap_or(0);
                let mut circle: Vec<QueueIdx> = path[start..].to_vec();
                circle.sort_unstable();
                break Err(NotServed::Loop(circle.into()));
            }
            Followed::NotYet => {}
        }
        followed[last] = Followed::OnPath;
        path.push(last);
        let Some(name) = parents[last] else { break Ok(0) };
        match row(name) {
            Some(parent) => last = parent,
            None => break Err(NotServed::NoParent { child: last, parent: name.clone() }),
        }
    };
    for on_path in path.into_iter().rev() {
        found = found.map(|depth| depth + 1);
        followed[on_path] = Followed::Done(found.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::column::Ordinal;

    /// The tree of queues `q0`, `q1` …, each with the number of its parent; -1 is none, and others may not exist.
    fn tree(parents: &[i32]) -> QueueTree {
        let name = |number: i32| Name::from(&*format!("q{number}"));
        let of_queue = |parent: &i32| (*parent >= 0).then(|| name(*parent));
        let column: Column<QueueIdx, Option<Name>> = parents.iter().map(of_queue).collect();
        QueueTree::new(
            &column,
            |wanted| (0..parents.len()).find(|at| name(*at as i32) == *wanted).map(QueueIdx::new),
            None,
        )
    }

    fn rows(rows: &[usize]) -> Vec<QueueIdx> {
        rows.iter().copied().map(QueueIdx::new).collect()
    }

    #[test]
    fn queues_are_below_their_parents() {
        let tree = tree(&[-1, 0, 0, 1, -1]);
        assert_eq!(tree.roots(), rows(&[0, 4]));
        assert_eq!(tree.children(QueueIdx::new(0)), rows(&[1, 2]));
        assert_eq!(tree.parents_first(), rows(&[0, 4, 1, 2, 3]));
        assert_eq!(tree.path(QueueIdx::new(3)).collect::<Vec<_>>(), rows(&[3, 1, 0]));
        assert!(tree.is_leaf(QueueIdx::new(3)) && !tree.is_leaf(QueueIdx::new(1)));
    }

    #[test]
    fn sides_end_below_the_common_parent() {
        let tree = tree(&[-1, 0, 0, 1, -1]);
        let sides = |one, other| tree.sides(QueueIdx::new(one), QueueIdx::new(other));
        assert_eq!(sides(3, 2), [2, 1]);
        assert_eq!(sides(3, 4), [3, 1]);
        assert_eq!(sides(3, 1), [1, 0]);
        assert_eq!(sides(3, 3), [0, 0]);
        let parting = |one, other| tree.parting(QueueIdx::new(one), QueueIdx::new(other));
        assert_eq!(parting(3, 2), Some([QueueIdx::new(1), QueueIdx::new(2)]));
        assert_eq!(parting(3, 4), Some([QueueIdx::new(0), QueueIdx::new(4)]));
        assert_eq!(parting(3, 1), None);
        assert_eq!(parting(2, 2), None);
    }

    #[test]
    fn a_queue_without_a_way_to_the_top_serves_nothing() {
        // 1 and 2 are above each other, 0 is below them; 4 is below 3, whose parent does not exist.
        let tree = tree(&[1, 2, 1, 99, 3, -1]);
        let circle = NotServed::Loop(rows(&[1, 2]).into());
        for row in [0, 1, 2] {
            assert_eq!(tree.not_served(QueueIdx::new(row)), Some(&circle));
        }
        for row in [3, 4] {
            let child = QueueIdx::new(3);
            let problem = NotServed::NoParent { child, parent: Name::from("q99") };
            assert_eq!(tree.not_served(QueueIdx::new(row)), Some(&problem));
            assert!(!tree.is_leaf(QueueIdx::new(row)));
        }
        assert_eq!(tree.roots(), rows(&[5]));
    }

    #[test]
    fn ten_queues_above_each_other_are_served() {
        let parents: Vec<i32> = (-1..11).collect();
        let tree = tree(&parents);
        assert_eq!(tree.not_served(QueueIdx::new(9)), None);
        assert_eq!(tree.not_served(QueueIdx::new(10)), Some(&NotServed::TooDeep(11)));
        assert_eq!(tree.not_served(QueueIdx::new(11)), Some(&NotServed::TooDeep(12)));
        assert!(tree.is_leaf(QueueIdx::new(9)), "a queue that is too deep is no child");
    }
}
