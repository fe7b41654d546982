//! Physical devices as a resource of their own, which queues share.
//!
//! Whole devices, partitions and shares of the same devices are counted in one unit. It exists only within a cycle:
//! what a partition takes of a physical device follows from the devices that are published.
// Parity: see docs/parity.md#v8.

use std::collections::BTreeSet;

use crate::{
    cluster::Cluster,
    column::{ClassIdx, Dim, TaskIdx},
    resource::Request,
};

/// What tasks request of physical devices.
#[derive(Clone, Debug, Default)]
pub struct PhysicalRequests {
    /// By class of tasks, in thousandths of a device, by dimension ascending.
    pub amounts: Vec<(ClassIdx, Vec<(Dim, i64)>)>,
    /// The dimensions that queues do not share, because they share the physical devices.
    pub unshared: Vec<Dim>,
}

/// The requests of classes of tasks before physical devices were counted.
#[derive(Debug, Default)]
pub struct NotPhysical {
    requests: Vec<(ClassIdx, Request)>,
}

impl Cluster {
    /// Counts physical devices. Call this before any task is moved. Pass the result to [`Self::end_physical`] once no
    /// task is moved any more.
    pub fn begin_physical(&mut self, requests: PhysicalRequests) -> NotPhysical {
        let PhysicalRequests { amounts, unshared } = requests;
        let unshared: BTreeSet<Dim> = unshared.into_iter().collect();
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
        NotPhysical { requests: before }
    }

    /// Stops counting physical devices.
    pub fn end_physical(&mut self, before: NotPhysical) {
        let NotPhysical { requests } = before;
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
