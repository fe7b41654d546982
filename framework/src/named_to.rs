//! Whose jobs a user reads of: those of other namespaces have no names, unless the configuration says so.
// Parity: new, see docs/parity.md#e10.

use kube_batch_model::{
    column::{JobIdx, TaskIdx},
    decision::JobInQueue,
    name::{Name, ObjectKey},
};

use crate::session::Session;

impl Session {
    /// A job and its queue, as those read of it who own the job `reader`; `None` if it is in no queue.
    pub(crate) fn named_to(&self, reader: JobIdx, job: JobIdx) -> Option<JobInQueue> {
        let namespace = &self.cluster.jobs.key[reader].object().namespace;
        self.named_in(namespace, job)
    }

    /// A job and its queue, as those read of it who own pods in a namespace; `None` if it is in no queue.
    pub(crate) fn named_in(&self, namespace: &Name, job: JobIdx) -> Option<JobInQueue> {
        let key = &self.cluster.jobs.key[job];
        Some(JobInQueue {
            queue: self.cluster.queues.facts[self.cluster.jobs.queue[job]?].name.clone(),
            is_named: self.shows(namespace, &key.object().namespace),
            job: key.clone(),
        })
    }

    /// The name of a pod, if those who own the job `reader` may know it.
    pub(crate) fn pod_named_to(&self, reader: JobIdx, task: TaskIdx) -> Option<ObjectKey> {
        let pod = &self.cluster.tasks.facts[task].key;
        let reader = &self.cluster.jobs.key[reader].object().namespace;
        self.shows(reader, &pod.namespace).then(|| pod.clone())
    }

    fn shows(&self, to: &Name, of: &Name) -> bool {
        to == of || self.policy.settings().shows_other_namespaces
    }
}
