//! Numbers of pods on nodes, and how placements change them.

use kube_batch_framework::plugin::{Capacity, PlacementChange};
use kube_batch_model::{
    cluster::Cluster,
    column::{NodeIdx, TaskIdx},
    status::{Placement, TaskStatus},
};

use crate::constraint_classes::ConstraintClassIdx;

/// A number of pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PodCount {
    all: u32,
    /// Without those that are being terminated.
    staying: u32,
}

impl PodCount {
    pub(crate) fn apply(&mut self, change: PodCountChange) {
        self.all = self.all.wrapping_add_signed(change.all);
        self.staying = self.staying.wrapping_add_signed(change.staying);
    }

    /// The number of pods that count for a task which uses this capacity.
    pub(crate) const fn of(self, capacity: Capacity) -> u32 {
        match capacity {
            Capacity::Idle => self.all,
            Capacity::FutureIdle => self.staying,
        }
    }

    pub(crate) fn is_zero(self) -> bool {
        self == Self::default()
    }
}

/// What a placement adds to the number of pods on a node: -1, 0 or +1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PodCountChange {
    pub(crate) all: i32,
    /// Without pods that are being terminated.
    pub(crate) staying: i32,
}

impl PodCountChange {
    const NONE: Self = Self { all: 0, staying: 0 };

    fn of(at: Placement, sign: i32) -> Self {
        let on_node = i32::from(at.status.is_on_node());
        let leaving = i32::from(at.status == TaskStatus::Releasing);
        Self { all: sign * on_node, staying: sign * (on_node - leaving) }
    }
}

/// A placement of a task, as rules need it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed {
    pub(crate) task: TaskIdx,
    /// The constraint class of the task.
    pub(crate) constraint_class: ConstraintClassIdx,
    pub(crate) from: Placement,
    pub(crate) to: Placement,
    counts: [(Option<NodeIdx>, PodCountChange); 2],
}

impl Placed {
    pub(crate) fn new(cluster: &Cluster, change: &PlacementChange) -> Self {
        let PlacementChange { task, from, to } = *change;
        let class = cluster.tasks.class[task];
        let (removed, added) = (PodCountChange::of(from, -1), PodCountChange::of(to, 1));
        let counts = if from.node == to.node {
            let (all, staying) = (removed.all + added.all, removed.staying + added.staying);
            [(to.node, PodCountChange { all, staying }), (None, PodCountChange::NONE)]
        } else {
            [(from.node, removed), (to.node, added)]
        };
        let constraint_class = cluster.classes.constraint_class[class];
        Self { task, constraint_class, from, to, counts }
    }

    /// The nodes on which the number of pods changes, and how.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (NodeIdx, PodCountChange)> {
        let changed = self.counts.into_iter().filter(|(_, change)| *change != PodCountChange::NONE);
        changed.filter_map(|(node, change)| Some((node?, change)))
    }
}

/// Every task on a node, as if it had just been placed there.
pub(crate) fn placements(cluster: &Cluster) -> impl Iterator<Item = Placed> {
    let on_nodes = cluster.tasks.placement.iter().filter(|(_, at)| at.node.is_some());
    on_nodes.map(|(task, to)| {
        let from = Placement { status: to.status, node: None };
        Placed::new(cluster, &PlacementChange { task, from, to: *to })
    })
}
