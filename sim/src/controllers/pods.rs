//! The pods that a controller wants.

use jiff::Timestamp;
use kube_batch_cache::store::Store;
use kube_batch_model::name::ObjectKey;

use super::{
    job::JobRun,
    plan::{Numbers, Ordinals, OwnedPod, Plan},
};

/// The pods that a controller wants.
#[derive(Clone, Debug)]
pub(crate) enum Pods {
    /// As many as this, of ReplicaSets and Deployments.
    Replicas(usize, Numbers),
    /// One for each ordinal, of StatefulSets.
    Ordinals(Ordinals),
    /// Those of a Job.
    Job(Box<JobRun>, Numbers),
}

impl Pods {
    /// Takes over what the controller has done so far, when its object is replaced.
    pub(crate) fn keep_progress(&mut self, old: Self) {
        match (self, old) {
            (Self::Replicas(_, numbers), Self::Replicas(_, old)) => *numbers = old,
            (Self::Job(job, numbers), Self::Job(old_job, old)) => {
                job.keep_progress(*old_job);
                *numbers = old;
            }
            (Self::Replicas(..) | Self::Ordinals(_) | Self::Job(..), _) => {}
        }
    }

    /// When the controller stops its pods.
    pub(crate) fn deadline(&self) -> Option<Timestamp> {
        match self {
            Self::Job(job, _) => job.ends(),
            Self::Replicas(..) | Self::Ordinals(_) => None,
        }
    }

    /// Whether it is a Job that has failed.
    pub(crate) fn has_failed(&self) -> bool {
        match self {
            Self::Job(job, _) => job.has_failed(),
            Self::Replicas(..) | Self::Ordinals(_) => false,
        }
    }

    /// What the controller `owner` does with these pods.
    pub(crate) fn plan(
        &mut self,
        owner: &ObjectKey,
        pods: &[OwnedPod],
        store: &Store,
        now: Timestamp,
    ) -> Plan {
        match self {
            Self::Replicas(replicas, numbers) => {
                let n_active = pods.iter().filter(|pod| pod.is_active()).count();
                let n_missing = replicas.saturating_sub(n_active);
                Plan { create: numbers.next(n_missing, owner, store), ..Plan::default() }
            }
            Self::Ordinals(ordinals) => ordinals.plan(owner, pods, store),
            Self::Job(job, numbers) => job.plan(numbers, owner, pods, store, now),
        }
    }
}
