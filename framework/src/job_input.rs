//! What the result of a try of a job depends on, and so when a remembered try is forgotten.
//!
//! A try in vain is remembered with its [`JobInput`], and recalled instead of another try while the job has an equal
//! input: it would find the same.
//!
//! The scheduler cache adds one number, [`ClusterInput::generation`]. It stays the same while only such objects change
//! that concern only their own job, see [`Fact::concerns_only_its_job`]. So what a try reads of them is compared here.
//!
//! [`Fact::concerns_only_its_job`]: kube_batch_model::facts::fact::Fact::concerns_only_its_job

use std::sync::Arc;

use kube_batch_model::{
    cluster::Cluster,
    column::{JobIdx, TaskIdx},
    devices::DeviceDemand,
    facts::{group::GroupFacts, pod::TaskFacts, topology::TopologyFacts},
    name::Name,
};

use crate::cluster_input::ClusterInput;

/// Everything on which the result of a try of a job depends. It equals the [`CurrentInput`] of the job as long as another
/// try would have the same result.
#[derive(Clone, Debug)]
pub(crate) struct JobInput {
    cluster: Arc<ClusterInput>,
    min_available: u32,
    priority: i32,
    queue: Option<Name>,
    topology: Option<Arc<TopologyFacts>>,
    group: Option<Arc<GroupFacts>>,
    tasks: Vec<TaskInput>,
}

/// A task of the job.
#[derive(Clone, Debug)]
struct TaskInput {
    facts: Arc<TaskFacts>,
    devices: Arc<DeviceDemand>,
    priority: i32,
    is_gated: bool,
}

/// The input of a job in a session. It is not read before it is compared: that happens for every waiting job in every
/// cycle, and most are equal because they share the same facts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CurrentInput<'s> {
    pub(crate) state: &'s Arc<ClusterInput>,
    pub(crate) cluster: &'s Cluster,
    pub(crate) job: JobIdx,
}

impl From<CurrentInput<'_>> for JobInput {
    fn from(current: CurrentInput<'_>) -> Self {
        let CurrentInput { state, cluster, job } = current;
        Self {
            cluster: Arc::clone(state),
            min_available: cluster.jobs.min_available[job],
            priority: cluster.jobs.priority[job],
            queue: queue(cluster, job).cloned(),
            topology: cluster.jobs.topology[job].clone(),
            group: cluster.jobs.group[job].clone(),
            tasks: cluster.jobs.tasks[job]
                .iter()
                .map(|task| TaskInput::of(cluster, task))
                .collect(),
        }
    }
}

impl PartialEq<CurrentInput<'_>> for JobInput {
    fn eq(&self, current: &CurrentInput<'_>) -> bool {
        let CurrentInput { state, cluster, job } = *current;
        let Self {
            cluster: own,
            min_available,
            priority,
            queue: own_queue,
            topology,
            group,
            tasks,
        } = self;
        let now = cluster.jobs.tasks[job];
        (Arc::ptr_eq(own, state) || own == state)
            && *min_available == cluster.jobs.min_available[job]
            && *priority == cluster.jobs.priority[job]
            && own_queue.as_ref() == queue(cluster, job)
            && *topology == cluster.jobs.topology[job]
            && is_same_group(group.as_ref(), cluster.jobs.group[job].as_ref())
            && tasks.len() == now.len()
            && tasks.iter().zip(now.iter()).all(|(own, task)| own.is_of(cluster, task))
    }
}

impl JobInput {
    /// What the tries of all jobs depended on.
    pub(crate) const fn state(&self) -> &Arc<ClusterInput> {
        &self.cluster
    }
}

impl TaskInput {
    fn of(cluster: &Cluster, task: TaskIdx) -> Self {
        Self {
            facts: Arc::clone(&cluster.tasks.facts[task]),
            devices: Arc::clone(devices(cluster, task)),
            priority: cluster.tasks.priority[task],
            is_gated: cluster.tasks.gated[task],
        }
    }

    /// Whether this is what decides about a task now.
    fn is_of(&self, cluster: &Cluster, task: TaskIdx) -> bool {
        let Self { facts, devices: own_devices, priority, is_gated } = self;
        let devices = devices(cluster, task);
        *priority == cluster.tasks.priority[task]
            && *is_gated == cluster.tasks.gated[task]
            && is_same_task(facts, &cluster.tasks.facts[task])
            // Equal claims may have been read in different cycles.
            && (Arc::ptr_eq(own_devices, devices) || own_devices == devices)
    }
}

fn queue(cluster: &Cluster, job: JobIdx) -> Option<&Name> {
    cluster.jobs.queue[job].map(|queue| &cluster.queues.facts[queue].name)
}

fn devices(cluster: &Cluster, task: TaskIdx) -> &Arc<DeviceDemand> {
    &cluster.classes.devices[cluster.tasks.class[task]]
}

/// Whether two versions of a PodGroup ask for the same, besides what is compared already.
fn is_same_group(one: Option<&Arc<GroupFacts>>, other: Option<&Arc<GroupFacts>>) -> bool {
    match (one, other) {
        // Facts are immutable, and mostly the same object.
        (Some(one), Some(other)) => {
            Arc::ptr_eq(one, other)
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
