//! Mistakes in the objects of jobs that users find hard to see: pods that should be in a gang and are
//! not.

use std::{collections::HashMap, sync::Arc};

use kube_batch_api::{
    facts::pod::TaskFacts,
    name::{Name, ObjectKey},
    reason::JobWarning,
};

/// Pods that look as if they should be in a gang.
#[derive(Default)]
pub(super) struct Hints<'a> {
    /// Pods of other schedulers that wait, by the PodGroup they name: how many, and the scheduler of
    /// the first.
    other_scheduler: HashMap<ObjectKey, (u32, &'a Name)>,
    /// Pods without a PodGroup, by the uid of their controller: how many, and the first.
    not_annotated: HashMap<&'a Name, (u32, &'a ObjectKey)>,
}

impl<'a> Hints<'a> {
    /// Records a pod that waits for another scheduler.
    pub(super) fn other_scheduler(&mut self, facts: &'a TaskFacts) {
        if let Some(group) = &facts.group {
            let key = ObjectKey { namespace: facts.key.namespace.clone(), name: group.clone() };
            self.other_scheduler.entry(key).or_insert((0, &facts.scheduler)).0 += 1;
        }
    }

    /// Records a pod of ours that is not in a gang.
    pub(super) fn not_annotated(&mut self, facts: &'a TaskFacts) {
        if let Some(controller) = &facts.controller {
            self.not_annotated.entry(&controller.uid).or_insert((0, &facts.key)).0 += 1;
        }
    }

    /// What was recorded about the job of a PodGroup with these tasks.
    pub(super) fn warnings(
        &self,
        group: &ObjectKey,
        tasks: &[&Arc<TaskFacts>],
    ) -> impl Iterator<Item = JobWarning> {
        let other = self.other_scheduler.get(group).map(|(n_pods, scheduler)| {
            JobWarning::OtherScheduler { n_pods: *n_pods, scheduler: (*scheduler).clone() }
        });
        other.into_iter().chain(self.not_annotated_beside(tasks))
    }

    fn not_annotated_beside(&self, tasks: &[&Arc<TaskFacts>]) -> Option<JobWarning> {
        if self.not_annotated.is_empty() {
            return None;
        }
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
        let found = controllers.into_iter().filter_map(|uid| self.not_annotated.get(uid));
        let (n_pods, first) = found.copied().reduce(|l, r| (l.0 + r.0, l.1.min(r.1)))?;
        Some(JobWarning::NotAnnotated { n_pods, first: first.clone() })
    }
}
