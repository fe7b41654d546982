//! Dominant resource fairness between the jobs of a queue.
//!
//! The share of a job is its largest part of any one resource of the cluster:
//! `share(j) = max over r of allocated(j, r) / total(r)`, where total is the allocatable of all
//! nodes, and the devices of each class, without what pods of other schedulers use. A resource of total 0 counts as 0 if none is held and as 1 otherwise. The job with the
//! smaller share goes first. A task may preempt a victim if the share of its job afterwards does not
//! exceed the share of the victim's job afterwards.
//!
//! Source: Ghodsi et al., "Dominant Resource Fairness", NSDI 2011; upstream `plugins/drf/drf.go`,
//! which compares floats within 1e-6 and subtracts candidates that are not evicted.

use std::cmp::Ordering;

use kube_batch_framework::{
    arguments::ArgumentSpec,
    plugin::{
        Dependencies, JobProposal, JobShares, OrderScope, PlacementChange, Plugin, Proposal,
        Provided, VictimQuestion, VictimScope, Vote,
    },
    session_cache::SessionCache,
    spec::PluginSpec,
};
use kube_batch_model::{
    cluster::Cluster,
    column::{ClassIdx, Column, Dim, JobIdx, TaskIdx},
    resource::{Request, ResourceVector, Share},
};

/// The plugin `drf`.
#[derive(Debug, Default)]
pub struct Drf {
    /// The resources that shares consider.
    shared: Vec<Dim>,
    /// Whether what pods of other schedulers use is part of the total.
    foreign_pods_count: bool,
    /// What the jobs share.
    total: ResourceVector,
    /// Computed from what its tasks hold, and `total`.
    share: Column<JobIdx, Share>,
}

impl Drf {
    fn share_of(&self, allocated: &[i64]) -> Share {
        let parts = self.shared.iter().map(|dim| Share::of(allocated[*dim], self.total[*dim]));
        parts.max().unwrap_or(Share::ZERO)
    }

    /// The share of a job with these requests added, `sign` times each.
    fn share_with<'r>(
        &self,
        cluster: &Cluster,
        job: JobIdx,
        requests: impl IntoIterator<Item = &'r Request>,
        sign: i64,
    ) -> Share {
        let mut allocated = cluster.jobs.held[job].to_vec();
        for request in requests {
            request.charge(&mut allocated, sign);
        }
        self.share_of(&allocated)
    }
}

const FOREIGN_PODS: ArgumentSpec = ArgumentSpec::switch(
    "drf.shareForeignPods",
    "the share of a job is a part of all of the cluster, also of what pods of other schedulers use",
);

/// How a configuration names the plugin.
pub const SPEC: PluginSpec = PluginSpec {
    name: "drf",
    about: "dominant resource fairness between the jobs of a queue",
    arguments: &[FOREIGN_PODS],
    metadata_prefixes: &[],
    new: |arguments| {
        Box::new(Drf { foreign_pods_count: arguments.bool(&FOREIGN_PODS), ..Drf::default() })
    },
};

impl Plugin for Drf {
    fn name(&self) -> &'static str {
        "drf"
    }

    fn provides(&self) -> Provided<'_> {
        Provided { job_shares: Some(self), ..Provided::default() }
    }

    fn on_session_open(&mut self, cluster: &Cluster, _: &mut SessionCache<'_>) {
        self.shared = cluster.dimensions.shared().collect();
        self.total = match self.foreign_pods_count {
            true => cluster.total(),
            false => cluster.total_for_jobs(),
        };
        let held = &cluster.jobs.held;
        self.share = held.ids().map(|job| self.share_of(&held[job])).collect();
    }

    fn on_placement(&mut self, cluster: &Cluster, change: &PlacementChange) {
        let sign = change.held();
        if let Some(job) = cluster.tasks.job[change.task].filter(|_| sign != 0) {
            self.share[job] = self.share_of(&cluster.jobs.held[job]);
        }
    }

    fn job_order(&self, _: &Cluster, l: JobIdx, r: JobIdx) -> Ordering {
        self.share[l].cmp(&self.share[r])
    }

    fn order_scope(&self) -> OrderScope {
        OrderScope::Own
    }

    fn dependencies(&self, _: &Cluster, _: ClassIdx) -> Dependencies {
        Dependencies::NONE
    }

    fn vote(&self, cluster: &Cluster, proposal: &Proposal<'_>, question: VictimQuestion) -> Vote {
        if question == VictimQuestion::Reclaimable {
            return Vote::Abstain;
        }
        let Proposal { preemptor, victim, evicted } = *proposal;
        let (Some(own), Some(other)) = (cluster.tasks.job[preemptor], cluster.tasks.job[victim])
        else {
            return Vote::Reject;
        };
        if own == other {
            // Both shares compared are those of the same job.
            return Vote::Permit;
        }
        let released = evicted.iter().chain([&victim]);
        let of_other = released.filter(|task| cluster.tasks.job[**task] == Some(other));
        let gained = self.share_with(cluster, own, [cluster.request(preemptor)], 1);
        let lost = self.share_with(cluster, other, of_other.map(|task| cluster.request(*task)), -1);
        if gained <= lost { Vote::Permit } else { Vote::Reject }
    }

    /// The rule compares the shares of two jobs that go on.
    fn vote_on_job(&self, _: &Cluster, _: &JobProposal<'_>, _: VictimQuestion) -> Vote {
        Vote::Abstain
    }

    fn victim_scope(&self, _: &Cluster, _: TaskIdx, question: VictimQuestion) -> VictimScope {
        match question {
            VictimQuestion::Preemptable => VictimScope::ANYTHING,
            VictimQuestion::Reclaimable => VictimScope::NONE,
        }
    }
}

impl JobShares for Drf {
    fn job_share(&self, job: JobIdx) -> Share {
        self.share[job]
    }

    fn share_scope(&self) -> OrderScope {
        OrderScope::Own
    }
}
