//! What the turns of a job depend on: see [`crate::memory`].

use std::sync::Arc;

use kube_batch_model::{
    cluster::Cluster,
    column::{JobIdx, TaskIdx},
    devices::DeviceDemand,
    facts::{group::GroupFacts, pod::TaskFacts, topology::TopologyFacts},
    name::Name,
};

/// What decides about a job and is its own: its PodGroup and its tasks.
#[derive(Clone, Debug)]
pub(crate) struct Own {
    min_available: u32,
    priority: i32,
    queue: Option<Name>,
    topology: Option<Arc<TopologyFacts>>,
    group: Option<Arc<GroupFacts>>,
    tasks: Vec<OwnTask>,
}

#[derive(Clone, Debug)]
struct OwnTask {
    facts: Arc<TaskFacts>,
    devices: Arc<DeviceDemand>,
    priority: i32,
    is_gated: bool,
}

impl Own {
    pub(crate) fn of(cluster: &Cluster, job: JobIdx) -> Self {
        let task = |task| OwnTask {
            facts: Arc::clone(&cluster.tasks.facts[task]),
            devices: Arc::clone(devices_of(cluster, task)),
            priority: cluster.tasks.priority[task],
            is_gated: cluster.tasks.gated[task],
        };
        Self {
            min_available: cluster.jobs.min_available[job],
            priority: cluster.jobs.priority[job],
            queue: queue(cluster, job).cloned(),
            topology: cluster.jobs.topology[job].clone(),
            group: cluster.jobs.group[job].clone(),
            tasks: cluster.jobs.tasks[job].iter().map(task).collect(),
        }
    }

    /// Whether the job is still the same, as far as it decides about its turns.
    pub(crate) fn is_same(&self, cluster: &Cluster, job: JobIdx) -> bool {
        let tasks = cluster.jobs.tasks[job];
        self.min_available == cluster.jobs.min_available[job]
            && self.priority == cluster.jobs.priority[job]
            && self.queue.as_ref() == queue(cluster, job)
            && self.topology == cluster.jobs.topology[job]
            && is_same_group(self.group.as_deref(), cluster.jobs.group[job].as_deref())
            && self.tasks.len() == tasks.len()
            && self.tasks.iter().zip(tasks.iter()).all(|(own, task)| {
                own.priority == cluster.tasks.priority[task]
                    && own.is_gated == cluster.tasks.gated[task]
                    && is_same_task(&own.facts, &cluster.tasks.facts[task])
                    && is_same_demand(&own.devices, devices_of(cluster, task))
            })
    }
}

fn devices_of(cluster: &Cluster, task: TaskIdx) -> &Arc<DeviceDemand> {
    &cluster.classes.devices[cluster.tasks.class[task]]
}

/// Whether the claims are equal, whichever cycle made them ready.
fn is_same_demand(one: &Arc<DeviceDemand>, other: &Arc<DeviceDemand>) -> bool {
    Arc::ptr_eq(one, other) || one == other
}

fn queue(cluster: &Cluster, job: JobIdx) -> Option<&Name> {
    cluster.jobs.queue[job].map(|queue| &cluster.queues.facts[queue].name)
}

/// Whether two versions of a PodGroup ask for the same, besides what is compared already.
fn is_same_group(one: Option<&GroupFacts>, other: Option<&GroupFacts>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => {
            std::ptr::eq(one, other)
                || (one.metadata == other.metadata && one.demands() == other.demands())
        }
        (one, other) => one.is_none() && other.is_none(),
    }
}

fn is_same_task(one: &Arc<TaskFacts>, other: &Arc<TaskFacts>) -> bool {
    // Facts are immutable, and mostly the same object.
    Arc::ptr_eq(one, other)
        || (one.uid == other.uid
            && one.template.id() == other.template.id()
            && one.labels.id() == other.labels.id()
            && one.never_preempts == other.never_preempts
            && one.role == other.role
            && one.device_claims == other.device_claims)
}
