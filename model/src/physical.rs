//! Physical devices as a resource of their own, which queues share.
//!
//! Whole devices, partitions and shares of the same devices are counted in one unit. It exists only within a cycle:
//! what a partition takes of a physical device follows from the devices that are published.
// Parity: see docs/parity.md#v8.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    cluster::Cluster,
    column::{ClassIdx, Dim, QueueIdx, TaskIdx},
    resource::{MAX_AMOUNT, Request},
};

/// What tasks request of physical devices.
#[derive(Clone, Debug, Default)]
pub struct PhysicalRequests {
    /// By class of tasks, in thousandths of a device, by dimension ascending.
    pub amounts: Vec<(ClassIdx, Vec<(Dim, i64)>)>,
    /// The dimensions that queues do not share, because they share the physical devices, each with the one in which these
    /// are counted.
    pub unshared: Vec<(Dim, Dim)>,
}

/// What tasks request and queues are promised, before physical devices were counted.
#[derive(Debug, Default)]
pub struct NotPhysical {
    requests: Vec<(ClassIdx, Request)>,
    promises: Vec<(QueueIdx, Promises)>,
}

/// What a queue deserves by number, and what is guaranteed to it.
type Promises = [Vec<(Dim, i64)>; 2];

impl Cluster {
    /// Counts physical devices. Call this before any task is moved. Pass the result to [`Self::end_physical`] once no
    /// task is moved any more.
    pub fn begin_physical(&mut self, requests: PhysicalRequests) -> NotPhysical {
        let PhysicalRequests { amounts, unshared } = requests;
        let promises = self.promise_physical(&unshared);
        let unshared: BTreeSet<Dim> = unshared.into_iter().map(|(dim, _)| dim).collect();
        let classes: BTreeSet<ClassIdx> = amounts.iter().map(|(class, _)| *class).collect();
        let tasks = self.tasks_of(&classes);
        let dims = amounts.iter().flat_map(|(_, amounts)| amounts).map(|(dim, _)| *dim);
        self.dimensions.count_physical(dims.collect(), unshared.clone());
        tasks.iter().for_each(|task| self.unbook(*task));
        let mut before = Vec::new();
        for (class, amounts) in amounts {
            let request = self.classes.request[class].with(&amounts, &unshared);
            before.push((class, std::mem::replace(&mut self.classes.request[class], request)));
        }
        tasks.iter().for_each(|task| self.book(*task));
        NotPhysical { requests: before, promises }
    }

    /// Promises queues physical devices instead of those of classes, and returns what they were promised.
    fn promise_physical(&mut self, counted_in: &[(Dim, Dim)]) -> Vec<(QueueIdx, Promises)> {
        let counted_in: BTreeMap<Dim, Dim> = counted_in.iter().copied().collect();
        let queues = &mut self.queues;
        let mut before = Vec::new();
        for queue in queues.facts.ids() {
            let mut own = [&mut queues.deserved[queue], &mut queues.guarantee[queue]];
            if own.iter().all(|own| own.iter().all(|(dim, _)| !counted_in.contains_key(dim))) {
                continue;
            }
            before.push((queue, own.each_mut().map(|own| physical_amounts(own, &counted_in))));
        }
        before
    }

    /// Stops counting physical devices.
    pub fn end_physical(&mut self, before: NotPhysical) {
        let NotPhysical { requests, promises } = before;
        for (queue, [deserved, guarantee]) in promises {
            self.queues.deserved[queue] = deserved;
            self.queues.guarantee[queue] = guarantee;
        }
        let classes: BTreeSet<ClassIdx> = requests.iter().map(|(class, _)| *class).collect();
        let tasks = self.tasks_of(&classes);
        tasks.iter().for_each(|task| self.unbook(*task));
        for (class, request) in requests {
            self.classes.request[class] = request;
        }
        tasks.iter().for_each(|task| self.book(*task));
        self.dimensions.count_physical(BTreeSet::new(), BTreeSet::new());
    }

    fn tasks_of(&self, classes: &BTreeSet<ClassIdx>) -> Vec<TaskIdx> {
        if classes.is_empty() {
            return Vec::new();
        }
        let tasks = self.tasks.class.iter().filter(|(_, class)| classes.contains(*class));
        tasks.map(|(task, _)| task).collect()
    }
}

/// Counts amounts of classes in physical devices, and returns what they were.
fn physical_amounts(
    amounts: &mut Vec<(Dim, i64)>,
    counted_in: &BTreeMap<Dim, Dim>,
) -> Vec<(Dim, i64)> {
    let mut sums: BTreeMap<Dim, i64> = BTreeMap::new();
    for (dim, amount) in amounts.iter() {
        let sum = sums.entry(*counted_in.get(dim).unwrap_or(dim)).or_default();
        *sum = sum.saturating_add(*amount).min(MAX_AMOUNT);
    }
    std::mem::replace(amounts, sums.into_iter().collect())
}
