//! What a session makes of the gangs of its snapshot: a job that is part of composite PodGroups starts once it is ready
//! and each of them is complete.
// Parity: see docs/parity.md#k8.

pub(crate) mod valid;

use kube_batch_model::{
    cluster::Cluster,
    column::{CompositeIdx, DomainIdx, JobIdx},
    gang::{
        complete::CompleteGroups,
        tree::{Completeness, Gang, GangTree},
    },
};

use crate::{plugin::Prescription, session::Session, session_cache::FromCluster};

impl FromCluster for GangTree {
    fn from_cluster(cluster: &Cluster) -> Self {
        Self::of(cluster)
    }
}

impl Session {
    /// The gangs of the snapshot, as trees.
    pub const fn gangs(&self) -> &GangTree {
        &self.gangs
    }

    /// The outermost composite PodGroup above a job that is not complete, if there is one: until it is, no task
    /// of the job starts.
    pub fn incomplete_above(&self, job: JobIdx) -> Option<CompositeIdx> {
        if !self.cluster.is_in_larger_gang(job) {
            return None;
        }
        self.complete_groups.incomplete_above(&self.gangs, job)
    }

    /// Which groups of composite PodGroups are complete.
    pub const fn complete_groups(&self) -> &CompleteGroups {
        &self.complete_groups
    }

    /// Whether the counters of complete groups are what counting all groups gives.
    pub(crate) fn has_counted_groups(&self) -> bool {
        let is_ready = |job: JobIdx| self.plugins().job_ready(job);
        self.complete_groups == CompleteGroups::new(&self.gangs, is_ready)
    }

    /// Follows a placement of a task of the job.
    pub(crate) fn count_group(&mut self, job: JobIdx) {
        if self.cluster.is_in_larger_gang(job) {
            let is_ready = self.plugins().job_ready(job);
            self.complete_groups.set_ready(&self.gangs, job, is_ready);
        }
    }

    /// Whether the allocated tasks of a job may start.
    pub(crate) fn may_start(&self, job: JobIdx) -> bool {
        self.plugins().job_ready(job) && self.incomplete_above(job).is_none()
    }

    /// Commits the kept moves of the jobs that may start now, together with this one.
    pub(crate) fn commit_groups_of(&mut self, job: JobIdx) {
        // Nothing is kept once a composite PodGroup is complete, however many jobs it has.
        if self.kept.is_empty() || !self.cluster.is_in_larger_gang(job) {
            return;
        }
        let Some(root) = self.gangs.root(job) else { return };
        if !self.complete_groups.is_complete(&self.gangs, Gang::Composite(root)) {
            return;
        }
        for other in self.gangs.jobs(root) {
            if other != job && self.kept.contains_key(&other) && self.may_start(other) {
                self.statement(other).commit_alone();
            }
        }
    }

    /// Sets the only topology domain that the jobs below a composite PodGroup may use, if it requires one and none
    /// of their tasks has a place; `None` if they may use any.
    pub fn choose_domain(&mut self, row: CompositeIdx, domain: Option<DomainIdx>) {
        self.policy.prescribe(Prescription::Domain(row, domain));
    }

    /// Whether a composite PodGroup is complete, or will be once what its tasks wait for is released.
    pub fn is_pipelined(&self, row: CompositeIdx) -> bool {
        let is_pipelined = |job: JobIdx| {
            let plugins = self.plugins();
            plugins.job_ready(job) || plugins.job_pipelined(job)
        };
        is_pipelined.is_complete(&self.gangs, Gang::Composite(row))
    }
}
