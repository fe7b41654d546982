//! What answers of a plugin depend on, and so how long the framework keeps them.

use std::ops;

use kube_batch_model::column::{Column, NodeIdx};

/// What an answer about a class and a node depends on, and so how long it stays valid.
///
/// The selectors of other pods that match the class count among the tasks on other nodes: an answer of
/// [`Dependency::Class`] or [`Dependency::Node`] is the same for all [variants](
/// kube_batch_model::cluster::Classes::variant_of) of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dependency {
    /// The scheduling constraints of the class, but not its request, and the properties of the node
    /// that no placement changes, such as labels and taints. Evaluated once in a cycle.
    Class,
    /// Also the tasks on the node and the amounts they use. Evaluated again when these change.
    Node,
    /// Also the tasks on some other nodes. Evaluated again when the tasks on the node change, and on
    /// every node when [`Plugin::version`](super::Plugin::version) changes.
    Domain,
    /// Also placements on other nodes. Evaluated again after each placement.
    Cluster,
}

impl Dependency {
    /// All, from the narrowest to the broadest.
    pub const ALL: [Self; 4] = [Self::Class, Self::Node, Self::Domain, Self::Cluster];
}

/// A number for each node; nodes with equal numbers are in one domain.
pub type DomainColumn = Column<NodeIdx, u32>;

/// The dependencies of a plugin's predicates for a class. [`Plugin::predicate`](super::Plugin::predicate) is called once for
/// each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dependencies(u8);

impl Dependencies {
    /// No rule applies to the class.
    pub const NONE: Self = Self(0);

    /// Only this one.
    pub const fn only(dependency: Dependency) -> Self {
        Self(1 << dependency as u8)
    }

    /// Whether this one is among them.
    pub const fn has(self, dependency: Dependency) -> bool {
        self.0 & (1 << dependency as u8) != 0
    }

    /// With this one as well, if `condition` holds.
    #[must_use]
    pub const fn with_if(self, dependency: Dependency, condition: bool) -> Self {
        if condition { Self(self.0 | 1 << dependency as u8) } else { self }
    }
}

impl ops::BitOr for Dependencies {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// What an answer about a victim depends on, besides facts of the victim and the class, queue and
/// priorities of the preemptor: nothing of these changes in a cycle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VictimScope(u8);

impl VictimScope {
    /// The plugin has no say about the victim: it abstains.
    pub const NONE: Self = Self(0);
    /// Nothing else: no move of a task changes the answer.
    pub const FACTS: Self = Self(1);
    /// Which tasks of the victim's job have a place.
    pub const JOB: Self = Self(1 << 1);
    /// What the queue of the victim can spare; see [`Shares::spare`](super::Shares::spare).
    pub const QUEUE: Self = Self(1 << 2);
    /// Anything: the answer may change whenever any task moves.
    pub const ANYTHING: Self = Self(1 << 3);

    /// Whether this is part of it.
    pub const fn has(self, part: Self) -> bool {
        self.0 & part.0 != 0
    }
}

impl ops::BitOr for VictimScope {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// What an order depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderScope {
    /// Only the two queues or jobs compared: their order changes only when a task of one of them
    /// moves.
    Own,
    /// Anything: the order may change whenever any task moves.
    Anything,
}
