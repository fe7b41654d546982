//! Constraint classes: the classes of tasks that differ only in what they request.
//!
//! No rule in this crate looks at the request, except for the resource scores. So every other rule
//! is compiled once for each constraint class: pods of one template in a thousand sizes are one
//! constraint class.

use kube_batch_model::{
    cluster::{ClassCounts, Cluster},
    column::{ClassIdx, Column, Ordinal, TaskIdx},
    devices::DeviceDemand,
    facts::class::PodTemplate,
    matcher_set::MatcherSet,
    status::TaskStatus,
};

pub(crate) use kube_batch_model::column::ConstraintClassIdx;

/// The constraint classes of a snapshot.
#[derive(Debug, Default)]
pub(crate) struct ConstraintClasses {
    members: Column<ConstraintClassIdx, Members>,
}

/// The members of a constraint class.
#[derive(Clone, Debug, Default)]
struct Members {
    /// The first class.
    class: Option<ClassIdx>,
    /// The first task that waits for a node, or whose binding is not confirmed yet.
    task: Option<TaskIdx>,
    is_present: bool,
    is_to_place: bool,
}

impl ConstraintClasses {
    pub(crate) fn new(cluster: &Cluster) -> Self {
        let of_class = &cluster.classes.constraint_class;
        let n_rows = of_class.values().map(|row| row.at() + 1).max().unwrap_or(0);
        let mut members = Column::filled(Members::default(), n_rows);
        for (class, row) in of_class.iter() {
            members[*row].class.get_or_insert(class);
        }
        for (class, row) in of_class.iter() {
            let ClassCounts { waiting, on_nodes, being_placed } = cluster.classes.counts[class];
            let members = &mut members[*row];
            members.is_present |= waiting + on_nodes > 0;
            members.is_to_place |= waiting + being_placed > 0;
        }
        if members.values().any(|members| members.is_to_place) {
            let waits =
                |status: TaskStatus| status == TaskStatus::Pending || status.is_being_placed();
            for task in cluster.tasks_in(waits) {
                members[of_class[cluster.tasks.class[task]]].task.get_or_insert(task);
            }
        }
        Self { members }
    }

    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    /// All constraint classes, ascending.
    pub(crate) fn rows(&self) -> impl Iterator<Item = ConstraintClassIdx> + use<> {
        self.members.ids()
    }

    /// Whether it is one of [`ConstraintClasses::present`].
    pub(crate) fn is_present(&self, row: ConstraintClassIdx) -> bool {
        self.members[row].is_present
    }

    /// Constraint classes with a task that waits for a node or is on one.
    pub(crate) fn present(&self) -> impl Iterator<Item = ConstraintClassIdx> {
        self.members.iter().filter(|(_, members)| members.is_present).map(|(row, _)| row)
    }

    /// Constraint classes with a task that waits for a node, or whose binding is not confirmed yet.
    /// The session queries plugins about no others.
    pub(crate) fn to_place(&self) -> impl Iterator<Item = ConstraintClassIdx> {
        self.members.iter().filter(|(_, members)| members.is_to_place).map(|(row, _)| row)
    }

    /// Whether it is one of [`ConstraintClasses::to_place`].
    pub(crate) fn is_to_place(&self, row: ConstraintClassIdx) -> bool {
        self.members[row].is_to_place
    }

    /// A task of a constraint class that is one of [`ConstraintClasses::to_place`].
    pub(crate) fn first_task(&self, row: ConstraintClassIdx) -> TaskIdx {
        self.members[row].task.expect("a class to place has a task to place")
    }

    /// The template that the tasks of a constraint class share. Its request is that of only some of
    /// them.
    pub(crate) fn template<'a>(
        &self,
        cluster: &'a Cluster,
        row: ConstraintClassIdx,
    ) -> &'a PodTemplate {
        &cluster.classes.template[self.class(row)]
    }

    /// What the tasks of a constraint class need of devices.
    pub(crate) fn devices<'a>(
        &self,
        cluster: &'a Cluster,
        row: ConstraintClassIdx,
    ) -> &'a DeviceDemand {
        &cluster.classes.devices[self.class(row)]
    }

    /// The selectors that match the tasks of a constraint class.
    pub(crate) fn matched_by<'a>(
        &self,
        cluster: &'a Cluster,
        row: ConstraintClassIdx,
    ) -> &'a MatcherSet {
        &cluster.classes.matched_by[self.class(row)]
    }

    fn class(&self, row: ConstraintClassIdx) -> ClassIdx {
        self.members[row].class.expect("a row is used by a class")
    }
}
