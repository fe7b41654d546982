//! The places that tasks have without being bound: nominations of earlier cycles and moves that are kept, and the claims
//! that go with a place.

use std::sync::Arc;

use kube_batch_model::{
    column::{JobIdx, TaskIdx},
    decision::{ClaimChoice, DeviceChoice, PodRef},
    facts::device::DeviceId,
    gang::{Members, Sense},
    name::{Name, ObjectKey},
    status::TaskStatus,
};

use super::Session;
use crate::moves::Move;

impl Session {
    /// Whether the task was nominated in an earlier cycle and is still pipelined.
    pub fn is_nominated(&self, task: TaskIdx) -> bool {
        self.cluster.tasks.nominated[task].is_some()
            && self.cluster.status(task) == TaskStatus::Pipelined
    }

    /// Whether tasks of the job were nominated in an earlier cycle and are still pipelined.
    pub fn has_nominations(&self, job: JobIdx) -> bool {
        let kept = self.kept.get(&job).into_iter().flatten();
        kept.map(Move::task).any(|task| self.is_nominated(task))
    }

    /// The tasks of a job that have places by kept moves.
    pub fn kept_tasks(&self, job: JobIdx) -> impl Iterator<Item = TaskIdx> {
        self.kept.get(&job).into_iter().flatten().map(Move::task)
    }

    /// Jobs with kept moves.
    pub fn jobs_with_kept_moves(&self) -> Vec<JobIdx> {
        self.kept.keys().copied().collect()
    }

    /// The tasks that count towards the minimum of a job.
    pub(crate) fn ready(&self, job: JobIdx) -> Members {
        // Tasks whose moves are only kept do not start.
        let kept = self.kept.get(&job).into_iter().flatten();
        let n_kept = kept.filter(|made| !Move::is_pipeline(made)).count() as u32;
        self.cluster.members(job, Sense::Ready).without(n_kept)
    }

    /// Whether moves of the job are kept.
    pub fn keeps_moves(&self, job: JobIdx) -> bool {
        self.kept.contains_key(&job)
    }

    /// The pod and the node of a task that has a place, as decisions name them.
    pub(crate) fn place_of(&self, task: TaskIdx) -> (PodRef, Name) {
        let node = self.cluster.node_of(task).expect("the task has a place");
        (self.cluster.pod(task), node.clone())
    }

    /// The volumes chosen for the unbound claims of a task that has been placed.
    pub(crate) fn claim_choices(&self, task: TaskIdx) -> Vec<ClaimChoice> {
        let class = self.cluster.tasks.class[task];
        if self.cluster.classes.template[class].claims.is_empty() {
            return Vec::new();
        }
        self.plugins().claim_choices(task)
    }

    /// The claims for devices to deallocate.
    pub(crate) fn claims_to_deallocate(
        &self,
        is_refused: &dyn Fn(JobIdx) -> bool,
    ) -> Vec<(TaskIdx, ObjectKey)> {
        self.policy.claims_to_deallocate(&self.cluster, is_refused)
    }

    /// What is to be written to the claims for devices of a task that has been placed.
    pub(crate) fn device_choices(&self, task: TaskIdx) -> Vec<DeviceChoice> {
        let class = self.cluster.tasks.class[task];
        if self.cluster.classes.devices[class].is_empty() {
            return Vec::new();
        }
        self.plugins().device_choices(task)
    }

    /// The devices that were chosen for the claims of a task that has been placed.
    pub(crate) fn chosen_devices(&self, task: TaskIdx) -> Arc<[DeviceId]> {
        let choices = self.device_choices(task);
        let allocations = choices.into_iter().filter_map(|choice| choice.allocation);
        allocations.flat_map(|allocation| allocation.results).map(|result| result.id).collect()
    }
}
