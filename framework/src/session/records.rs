//! What a session records of its jobs, and what it answers about them.

use std::sync::Arc;

use kube_batch_model::{column::JobIdx, gang::Sense};

use super::Session;
use crate::{
    failure::{Failure, RefusedGang},
    job_record::RecordedFailure,
};

impl Session {
    /// Whether anything is recorded of a job.
    pub(crate) fn has_record(&self, job: JobIdx) -> bool {
        self.records.has_some(job)
    }

    /// Records that a job had a turn.
    pub fn record_turn(&mut self, job: JobIdx) {
        let action = self.action();
        self.records[job].tried_in.get_or_insert(action);
    }

    /// Records why a task of the job could not be placed. Only the first reason in a cycle is kept.
    pub fn record_failure(&mut self, job: JobIdx, failure: impl FnOnce(&mut Self) -> Failure) {
        if self.records[job].failure.is_none() {
            let failure = failure(self);
            self.records[job].failure = Some(Arc::new(failure));
            self.records[job].failed_in = self.action();
        }
    }

    /// Removes what is recorded of a job, to be put back.
    pub fn take_failure(&mut self, job: JobIdx) -> Option<RecordedFailure> {
        let failure = self.records[job].failure.take()?;
        Some(RecordedFailure { failure, action: self.records[job].failed_in })
    }

    /// Records again what was taken; it is the first reason.
    pub fn put_back_failure(&mut self, job: JobIdx, recorded: RecordedFailure) {
        let RecordedFailure { failure, action } = recorded;
        self.records[job].failure = Some(failure);
        self.records[job].failed_in = action;
    }

    /// Replaces the reason by a more exact one, or forgets it.
    pub fn replace_failure(&mut self, job: JobIdx, failure: Option<Failure>) {
        self.records[job].failure = failure.map(Arc::new);
    }

    /// Why the first task of the job that could not be placed was not placed.
    pub fn failure(&self, job: JobIdx) -> Option<&Failure> {
        self.records[job].failure.as_deref()
    }

    /// Why the first task of the job that could not be placed was not placed, to be shared with the memory.
    pub(crate) fn shared_failure(&self, job: JobIdx) -> Option<&Arc<Failure>> {
        self.records[job].failure.as_ref()
    }

    /// Records the failure of an earlier cycle again.
    pub(crate) fn recall_failure(&mut self, job: JobIdx, failure: &Arc<Failure>) {
        if self.records[job].failure.is_none() {
            self.records[job].failure = Some(Arc::clone(failure));
            self.records[job].failed_in = self.action();
        }
    }

    /// Records a gang that is not reclaimed for the job.
    pub fn record_refused_gang(&mut self, job: JobIdx, refused: RefusedGang) {
        self.records[job].refused = Some(refused);
    }

    pub(crate) fn refused_gang(&self, job: JobIdx) -> Option<&RefusedGang> {
        self.records[job].refused.as_ref()
    }

    /// The first action in which the job had a turn.
    pub(crate) fn tried_in(&self, job: JobIdx) -> Option<&'static str> {
        self.records[job].tried_in
    }

    /// The action in which the first task of the job could not be placed.
    pub(crate) fn failed_in(&self, job: JobIdx) -> &'static str {
        self.records[job].failed_in
    }

    /// Records that this many tasks of the job had a place at the same time.
    pub fn record_fitting(&mut self, job: JobIdx, n_tasks: u32) {
        let action = self.action();
        let fitting = &mut self.records[job].fitting;
        match fitting.iter_mut().find(|(own, _)| *own == action) {
            Some((_, most)) => *most = n_tasks.max(*most),
            None => fitting.push((action, n_tasks)),
        }
    }

    /// The largest number of tasks of the job that had a place at the same time in this cycle.
    pub fn n_fitting(&self, job: JobIdx) -> u32 {
        let placed = self.cluster.members(job, Sense::Pipelined);
        let recorded = self.records[job].fitting.iter().map(|(_, n_tasks)| *n_tasks);
        recorded.fold(placed.n, u32::max)
    }

    /// What [`Self::record_fitting`] has recorded in each action.
    pub(crate) fn fitting(&self, job: JobIdx) -> &[(&'static str, u32)] {
        &self.records[job].fitting
    }

    /// Whether the job had a turn.
    pub fn was_tried(&self, job: JobIdx) -> bool {
        self.records[job].tried_in.is_some()
    }
}
