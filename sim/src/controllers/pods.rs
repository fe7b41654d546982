//! The pods that a controller wants.

use std::collections::BTreeSet;

use jiff::Timestamp;
use kube_batch_cache::store::Store;
use kube_batch_model::{facts::batch_job::BatchJobFacts, name::ObjectKey};

use super::{
    job::{JobFailure, JobRun},
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

    /// When the controller does something without a change of its pods.
    pub(crate) fn next_change(&self) -> Option<Timestamp> {
        match self {
            Self::Job(job, _) => job.next_change(),
            Self::Replicas(..) | Self::Ordinals(_) => None,
        }
    }

    /// Why it has failed, if it is a Job that has.
    pub(crate) fn failure(&self) -> Option<JobFailure> {
        match self {
            Self::Job(job, _) => job.failure(),
            Self::Replicas(..) | Self::Ordinals(_) => None,
        }
    }

    /// What the scheduler knows of it, if it is a Job.
    pub(crate) fn facts(&self, manifest: &BatchJobFacts) -> Option<BatchJobFacts> {
        match self {
            Self::Job(job, _) => Some(job.facts(manifest)),
            Self::Replicas(..) | Self::Ordinals(_) => None,
        }
    }

    /// It creates no pods any more.
    pub(crate) fn finish(&mut self) {
        if let Self::Job(job, _) = self {
            job.finish();
        }
    }

    /// What the controller `owner` does with these pods. Pods that the scheduler has `evicted` have a condition that
    /// says so.
    pub(crate) fn plan(
        &mut self,
        owner: &ObjectKey,
        pods: &[OwnedPod],
        evicted: &BTreeSet<ObjectKey>,
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
            Self::Job(job, numbers) => job.plan(numbers, owner, pods, evicted, store, now),
        }
    }
}
