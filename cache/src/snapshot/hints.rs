//! Mistakes in the objects of jobs that users find hard to see: pods that should be in a gang and are
//! not.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    hash::Hash,
    sync::Arc,
};

use kube_batch_model::{
    facts::{batch_job::BatchJobFacts, pod::TaskFacts, pod_hints::MisplacedGroup},
    group_version::Join,
    name::{Name, ObjectKey},
    problem::JobWarning,
};

use crate::store::Store;

/// Pods that look as if they should be in a gang, and Jobs whose pods will be in one.
#[derive(Debug, Default)]
pub(crate) struct Hints {
    /// Pods of other schedulers that wait, with their schedulers, by the PodGroup they name.
    other_scheduler: HashMap<NamedGroup, BTreeMap<ObjectKey, Name>>,
    /// Pods without a PodGroup, by the uid of their controller.
    not_annotated: HashMap<Name, BTreeSet<ObjectKey>>,
    /// Pods of ours without a PodGroup, by the one that they name in the wrong place.
    misplaced: HashMap<NamedGroup, BTreeMap<ObjectKey, MisplacedGroup>>,
    /// Jobs of `batch`, by the PodGroup that their pods name.
    batch_jobs: HashMap<NamedGroup, BTreeSet<ObjectKey>>,
}

impl Hints {
    /// Records a pod that waits for another scheduler, and the PodGroup that it names.
    pub(crate) fn other_scheduler(&mut self, group: Option<NamedGroup>, facts: &TaskFacts) {
        if let Some(group) = group {
            let pods = self.other_scheduler.entry(group).or_default();
            pods.insert(facts.key.clone(), facts.scheduler.clone());
        }
    }

    /// Records a pod of ours that is not in a gang.
    pub(crate) fn not_annotated(&mut self, facts: &TaskFacts) {
        if let Some(controller) = &facts.controller {
            let pods = self.not_annotated.entry(controller.uid.clone()).or_default();
            pods.insert(facts.key.clone());
        }
        if let Some((group, misplaced)) = misplaced_group(facts) {
            let pods = self.misplaced.entry(group).or_default();
            pods.insert(facts.key.clone(), misplaced.clone());
        }
    }

    /// Records a Job of `batch`.
    pub(crate) fn batch_job(&mut self, job: &BatchJobFacts, store: &Store) {
        if let Some(group) = job.group(store.served()) {
            self.batch_jobs.entry(group).or_default().insert(job.key.clone());
        }
    }

    /// Forgets a Job of `batch`.
    pub(crate) fn forget_batch_job(&mut self, job: &BatchJobFacts, store: &Store) {
        if let Some(group) = job.group(store.served()) {
            remove(&mut self.batch_jobs, &group, |jobs| {
                jobs.remove(&job.key);
                jobs.is_empty()
            });
        }
    }

    /// The Jobs of `batch` whose pods name a PodGroup.
    pub(crate) fn batch_jobs(&self, group: &NamedGroup) -> impl Iterator<Item = &ObjectKey> {
        self.batch_jobs.get(group).into_iter().flatten()
    }

    /// Forgets a pod of another scheduler that named a PodGroup.
    pub(crate) fn forget_other_scheduler(&mut self, group: &NamedGroup, facts: &TaskFacts) {
        remove(&mut self.other_scheduler, group, |pods| {
            pods.remove(&facts.key);
            pods.is_empty()
        });
    }

    /// Forgets a pod of ours that was not in a gang.
    pub(crate) fn forget_not_annotated(&mut self, facts: &TaskFacts) {
        if let Some(controller) = &facts.controller {
            remove(&mut self.not_annotated, &controller.uid, |pods| {
                pods.remove(&facts.key);
                pods.is_empty()
            });
        }
        if let Some((group, _)) = misplaced_group(facts) {
            remove(&mut self.misplaced, &group, |pods| {
                pods.remove(&facts.key);
                pods.is_empty()
            });
        }
    }

    /// What was recorded about the job of a PodGroup with these tasks.
    pub(crate) fn warnings(
        &self,
        group: &NamedGroup,
        tasks: &[&Arc<TaskFacts>],
    ) -> impl Iterator<Item = JobWarning> {
        let other = self.other_scheduler.get(group).and_then(|pods| {
            let (_, scheduler) = pods.first_key_value()?;
            let n_pods = u32::try_from(pods.len()).unwrap_or(u32::MAX);
            Some(JobWarning::OtherScheduler { n_pods, scheduler: scheduler.clone() })
        });
        let misplaced = self.misplaced.get(group).and_then(|pods| {
            let (first, MisplacedGroup { place, key, .. }) = pods.first_key_value()?;
            let n_pods = u32::try_from(pods.len()).unwrap_or(u32::MAX);
            let (first, key) = (first.clone(), key.clone());
            Some(JobWarning::MisplacedGroup { n_pods, first, place: *place, key })
        });
        let found = other.into_iter().chain(misplaced);
        found.chain(self.not_annotated_beside(tasks))
    }

    fn not_annotated_beside(&self, tasks: &[&Arc<TaskFacts>]) -> Option<JobWarning> {
        if self.not_annotated.is_empty() {
            return None;
        }
        let pods: Vec<&BTreeSet<ObjectKey>> =
            controllers(tasks).into_iter().filter_map(|uid| self.not_annotated.get(uid)).collect();
        let first = pods.iter().filter_map(|pods| pods.first()).min()?;
        let n_pods = pods.iter().map(|pods| pods.len()).sum::<usize>();
        let n_pods = u32::try_from(n_pods).unwrap_or(u32::MAX);
        Some(JobWarning::NotAnnotated { n_pods, first: first.clone() })
    }
}

/// A PodGroup, and how pods name it.
pub(crate) type NamedGroup = (Join, ObjectKey);

/// The PodGroup that a pod names.
pub(crate) fn named_group(facts: &TaskFacts, store: &Store) -> Option<NamedGroup> {
    facts.group(store.served())
}

/// The PodGroup that a pod names in the wrong place.
pub(crate) fn misplaced_group(facts: &TaskFacts) -> Option<(NamedGroup, &MisplacedGroup)> {
    let misplaced = facts.hints.as_ref()?.misplaced_group.as_ref()?;
    let key = ObjectKey::new(facts.key.namespace.clone(), misplaced.name.clone());
    Some(((misplaced.join, key), misplaced))
}

/// The uids of the controllers of some tasks, each once.
pub(crate) fn controllers<'a>(tasks: &[&'a Arc<TaskFacts>]) -> Vec<&'a Name> {
    let mut controllers: Vec<&Name> = Vec::new();
    for facts in tasks {
        let Some(controller) = &facts.controller else { continue };
        // Most pods of a job have the controller of the one before.
        if controllers.last() != Some(&&controller.uid) {
            controllers.push(&controller.uid);
        }
    }
    controllers.sort_unstable();
    controllers.dedup();
    controllers
}

/// Changes the pods of a key, and removes it if there are none left.
fn remove<K: Eq + Hash, T>(of: &mut HashMap<K, T>, key: &K, change: impl FnOnce(&mut T) -> bool) {
    if of.get_mut(key).is_some_and(change) {
        of.remove(key);
    }
}
