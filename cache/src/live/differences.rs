//! Whether two snapshots mean the same.

use std::collections::{BTreeSet, HashMap};

use kube_batch_model::{
    cluster::Cluster,
    column::{ClassIdx, ConstraintClassIdx, MatcherIdx},
};

use crate::snapshot::Snapshot;

impl Snapshot {
    /// The fields in which this snapshot, which followed changes, differs from one that was taken from scratch.
    ///
    /// It may have more classes and selectors, in another order: those without tasks, and classes that only
    /// differ in whether a selector matches that no task has.
    pub fn differences(&self, from_scratch: &Self) -> Vec<&'static str> {
        let Self { cluster, ignored, rejected, generation } = self;
        let same = [
            ("ignored", *ignored == from_scratch.ignored),
            ("rejected", *rejected == from_scratch.rejected),
            ("generation", *generation == from_scratch.generation),
        ];
        let different = same.into_iter().filter(|(_, is_same)| !is_same);
        let different = different.map(|(field, _)| field);
        different.chain(differences(cluster, &from_scratch.cluster)).collect()
    }
}

/// The fields of the clusters that differ.
fn differences(followed: &Cluster, from_scratch: &Cluster) -> Vec<&'static str> {
    // Without `..`, so that the compiler reports a missing field.
    let Cluster {
        dimensions,
        nodes,
        queues,
        jobs,
        tasks,
        classes: _,
        matchers: _,
        storage,
        devices,
        device_totals,
        budgets,
        terminating,
    } = followed;
    let own = &from_scratch.tasks;
    let same = [
        ("dimensions", *dimensions == from_scratch.dimensions),
        ("nodes.facts", nodes.facts == from_scratch.nodes.facts),
        ("nodes.tasks", nodes.tasks == from_scratch.nodes.tasks),
        ("nodes", *nodes == from_scratch.nodes),
        ("queues", *queues == from_scratch.queues),
        ("jobs.key", jobs.key == from_scratch.jobs.key),
        ("jobs.tasks", jobs.tasks == from_scratch.jobs.tasks),
        ("jobs.warnings", jobs.warnings == from_scratch.jobs.warnings),
        ("jobs.batch", jobs.batch == from_scratch.jobs.batch),
        ("jobs.counts", jobs.counts == from_scratch.jobs.counts),
        ("jobs", *jobs == from_scratch.jobs),
        ("tasks.facts", tasks.facts == own.facts),
        ("tasks.job", tasks.job == own.job),
        ("tasks.counts_for", tasks.counts_for == own.counts_for),
        ("tasks.priority", tasks.priority == own.priority),
        ("tasks.role", tasks.role == own.role),
        ("tasks.start", tasks.start == own.start),
        ("tasks.ours", tasks.ours == own.ours),
        ("tasks.gated", tasks.gated == own.gated),
        ("tasks.placement", tasks.placement == own.placement),
        ("tasks.nominated", tasks.nominated == own.nominated),
        ("tasks.nominated_devices", tasks.nominated_devices == own.nominated_devices),
        ("storage", *storage == from_scratch.storage),
        ("devices", *devices == from_scratch.devices),
        ("device_totals", *device_totals == from_scratch.device_totals),
        ("budgets", *budgets == from_scratch.budgets),
        ("terminating", *terminating == from_scratch.terminating),
        (
            "tasks.class",
            tasks.class.len() != own.class.len() || classes_agree(followed, from_scratch),
        ),
    ];
    same.into_iter().filter(|(_, is_same)| !is_same).map(|(field, _)| field).collect()
}

/// Whether the classes of each task are equal.
fn classes_agree(followed: &Cluster, from_scratch: &Cluster) -> bool {
    let mut pairs = HashMap::<ClassIdx, ClassIdx>::new();
    let mut constraint = HashMap::<ConstraintClassIdx, ConstraintClassIdx>::new();
    let mut variants = HashMap::<ClassIdx, ClassIdx>::new();
    let tasks = followed.tasks.class.iter().zip(from_scratch.tasks.class.values());
    tasks.into_iter().all(|((_, class), other)| {
        let other = *other;
        if let Some(known) = pairs.insert(*class, other) {
            return known == other;
        }
        let (l, r) = (&followed.classes, &from_scratch.classes);
        let of_constraints =
            constraint.insert(l.constraint_class[*class], r.constraint_class[other]);
        let of_variants = variants.insert(l.variant_of[*class], r.variant_of[other]);
        l.template[*class] == r.template[other]
            && l.group_metadata[*class] == r.group_metadata[other]
            && l.devices[*class] == r.devices[other]
            && l.request[*class] == r.request[other]
            && of_constraints.is_none_or(|known| known == r.constraint_class[other])
            && of_variants.is_none_or(|known| known == r.variant_of[other])
            && selectors(followed, from_scratch, *class)
                == selectors(from_scratch, from_scratch, other)
    })
}

/// The selectors that match the tasks of a class, as rows of `known`, as far as it has them.
fn selectors(cluster: &Cluster, known: &Cluster, class: ClassIdx) -> BTreeSet<MatcherIdx> {
    let rows = cluster.classes.matched_by[class].iter();
    rows.filter_map(|row| known.matchers.get(&cluster.matchers[row])).collect()
}
