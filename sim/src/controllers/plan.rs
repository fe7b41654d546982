//! What a controller does next: pods to create and to stop.

use std::collections::BTreeSet;

use kube_batch_cache::store::Store;
use kube_batch_model::{
    facts::FactError,
    name::{Name, ObjectKey},
    status::TaskStatus,
};

/// Maximum number of pods of one controller. Guessed: ten times the largest cluster that Kubernetes
/// supports, and few enough to be created in seconds.
const MAX_PODS: usize = 1_500_000;

/// A pod of a controller.
#[derive(Clone, Debug)]
pub(crate) struct OwnedPod {
    pub(crate) key: ObjectKey,
    pub(crate) status: TaskStatus,
    /// Its completion index or ordinal, if it has one.
    pub(crate) index: Option<usize>,
}

/// The pods of a StatefulSet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ordinals {
    pub(crate) first: usize,
    pub(crate) replicas: usize,
    /// Whether a pod is created only when those before it run.
    pub(crate) one_by_one: bool,
}

/// The next number in the names of pods.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Numbers(usize);

/// What a controller does next.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) delete: Vec<ObjectKey>,
    /// Whether the deleted pods have ended, and are replaced by pods of the same names.
    pub(crate) replaces: bool,
    pub(crate) create: Vec<NewPod>,
}

/// A pod to create.
#[derive(Debug)]
pub(crate) struct NewPod {
    pub(crate) name: Name,
    /// Its completion index or ordinal.
    pub(crate) index: Option<usize>,
    /// How many pods of its index of a Job have failed before, if indexes count their own.
    pub(crate) n_failed_before: usize,
}

impl OwnedPod {
    /// Whether it has succeeded or failed.
    pub(crate) const fn has_ended(&self) -> bool {
        matches!(self.status, TaskStatus::Succeeded | TaskStatus::Failed)
    }

    /// Whether it is neither finished nor terminating.
    pub(crate) const fn is_active(&self) -> bool {
        match self.status {
            TaskStatus::Succeeded
            | TaskStatus::Failed
            | TaskStatus::Releasing
            | TaskStatus::Stuck => false,
            TaskStatus::Pending
            | TaskStatus::Allocated
            | TaskStatus::Pipelined
            | TaskStatus::Binding
            | TaskStatus::Bound
            | TaskStatus::Running
            | TaskStatus::Unknown => true,
        }
    }
}

impl Numbers {
    /// The next pods whose names are free.
    pub(super) fn next(&mut self, n_pods: usize, owner: &ObjectKey, store: &Store) -> Vec<NewPod> {
        let mut pods = Vec::new();
        while pods.len() < n_pods {
            let name = Name::from(format!("{}-{}", owner.name, self.0));
            self.0 += 1;
            if is_free(owner, &name, store) {
                pods.push(NewPod { name, index: None, n_failed_before: 0 });
            }
        }
        pods
    }
}

/// Whether no pod in the namespace of `owner` has this name.
pub(super) fn is_free(owner: &ObjectKey, name: &Name, store: &Store) -> bool {
    let key = ObjectKey { namespace: owner.namespace.clone(), name: name.clone() };
    store.pods.get(&key).is_none()
}

impl Ordinals {
    /// Pods of a StatefulSet keep their names, so one that has ended is deleted first, and one that
    /// is terminating is waited for.
    pub(super) fn plan(self, owner: &ObjectKey, pods: &[OwnedPod], store: &Store) -> Plan {
        let mut plan = Plan { replaces: true, ..Plan::default() };
        let running: BTreeSet<usize> = pods
            .iter()
            .filter(|pod| pod.status == TaskStatus::Running)
            .filter_map(|pod| pod.index)
            .collect();
        let ended: BTreeSet<&Name> = pods
            .iter()
            .filter(|pod| matches!(pod.status, TaskStatus::Succeeded | TaskStatus::Failed))
            .map(|pod| &pod.key.name)
            .collect();
        for ordinal in self.first..self.first.saturating_add(self.replicas) {
            let name = Name::from(format!("{}-{ordinal}", owner.name));
            let has_ended = ended.contains(&name);
            if has_ended {
                let namespace = owner.namespace.clone();
                plan.delete.push(ObjectKey { namespace, name: name.clone() });
            }
            if has_ended || is_free(owner, &name, store) {
                plan.create.push(NewPod { name, index: Some(ordinal), n_failed_before: 0 });
            }
            if self.one_by_one && !running.contains(&ordinal) {
                break;
            }
        }
        plan
    }
}

/// A number of pods in a manifest.
///
/// # Errors
///
/// [`FactError`] if it is negative or too large.
pub(crate) fn number_of_pods(
    kind: &str,
    key: &ObjectKey,
    field: &str,
    number: i32,
) -> Result<usize, FactError> {
    let reject = |problem| FactError::new(format!("{kind} {key}"), field, problem);
    let count = usize::try_from(number).map_err(|_| reject(format!("{number} is negative")))?;
    if count > MAX_PODS {
        return Err(reject(format!("{count} is more than {MAX_PODS} pods")));
    }
    Ok(count)
}
