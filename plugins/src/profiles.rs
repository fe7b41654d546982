//! Classes that differ in nothing but their request, taken together.
//!
//! No rule in this crate but the resource scores looks at the request, so everything else is worked
//! out once for each profile: a thousand sizes of one kind of pod are one profile.

use kube_batch_api::{
    cluster::Cluster,
    column::{ClassIdx, Column, MatcherIdx, Ordinal, TaskIdx},
    facts::class::PodTemplate,
    status::TaskStatus,
};

use crate::rows::row_type;

row_type! {
    /// Row of a profile.
    Profile,
}

/// The profiles of a snapshot.
#[derive(Debug, Default)]
pub(crate) struct Profiles {
    of_class: Column<ClassIdx, Profile>,
    rows: Column<Profile, Row>,
}

#[derive(Clone, Debug, Default)]
struct Row {
    /// Any class of the profile: all have the same constraints.
    class: Option<ClassIdx>,
    /// The first task of the profile.
    task: Option<TaskIdx>,
    is_present: bool,
    is_asked: bool,
}

impl Profiles {
    pub(crate) fn new(cluster: &Cluster) -> Self {
        let of_class: Column<ClassIdx, Profile> =
            cluster.classes.constraints.values().map(|at| Profile::new(*at as usize)).collect();
        let n_profiles = of_class.values().map(|profile| profile.at() + 1).max().unwrap_or(0);
        let mut rows = Column::filled(Row::default(), n_profiles);
        for (class, profile) in of_class.iter() {
            rows[*profile].class.get_or_insert(class);
        }
        for (task, at) in cluster.tasks.placement.iter() {
            let row = &mut rows[of_class[cluster.tasks.class[task]]];
            row.task.get_or_insert(task);
            let waits = cluster.is_waiting(task);
            row.is_present |= waits || at.status.is_on_node();
            row.is_asked |= waits || is_being_placed(at.status);
        }
        Self { of_class, rows }
    }

    pub(crate) fn of(&self, class: ClassIdx) -> Profile {
        self.of_class[class]
    }

    /// The profile of a task.
    pub(crate) fn of_task(&self, cluster: &Cluster, task: TaskIdx) -> Profile {
        self.of_class[cluster.tasks.class[task]]
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Profiles with a task that waits for a node or stands on one.
    pub(crate) fn present(&self) -> impl Iterator<Item = Profile> {
        self.rows.iter().filter(|(_, row)| row.is_present).map(|(profile, _)| profile)
    }

    /// Profiles with a task that waits for a node, or has one that is not confirmed yet. No others
    /// are asked about.
    pub(crate) fn asked(&self) -> impl Iterator<Item = Profile> {
        self.rows.iter().filter(|(_, row)| row.is_asked).map(|(profile, _)| profile)
    }

    /// The first task of a profile.
    pub(crate) fn first_task(&self, profile: Profile) -> TaskIdx {
        self.rows[profile].task.expect("every class has a task")
    }

    /// What the tasks of a profile have in common. The request in it is that of some of them only.
    pub(crate) fn template<'a>(&self, cluster: &'a Cluster, profile: Profile) -> &'a PodTemplate {
        &cluster.classes.template[self.class(profile)]
    }

    /// The selectors that match the tasks of a profile, ascending.
    pub(crate) fn matched_by<'a>(
        &self,
        cluster: &'a Cluster,
        profile: Profile,
    ) -> &'a [MatcherIdx] {
        &cluster.classes.matched_by[self.class(profile)]
    }

    /// A class of a profile.
    pub(crate) fn class(&self, profile: Profile) -> ClassIdx {
        self.rows[profile].class.expect("a profile is a number that some class has")
    }
}

/// Whether a task has a node by a decision that the API server has not confirmed yet.
pub(crate) const fn is_being_placed(status: TaskStatus) -> bool {
    match status {
        TaskStatus::Allocated | TaskStatus::Pipelined | TaskStatus::Binding => true,
        TaskStatus::Pending
        | TaskStatus::Bound
        | TaskStatus::Running
        | TaskStatus::Releasing
        | TaskStatus::Succeeded
        | TaskStatus::Failed
        | TaskStatus::Unknown => false,
    }
}
