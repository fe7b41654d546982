//! Priority: higher priority goes first, and only lower priority may be preempted.
//!
//! Jobs are ordered by the value of their PriorityClass, tasks by the priority of their pod. A task
//! may be evicted for a task of another job only if its own job has the lower priority, and for a
//! task of the same job only if it has the lower priority itself. Where a job has only the highest priority
//! of its pods, a task of lower priority evicts with its own. The plugin has no opinion on
//! reclaim, which is between queues.
//!
//! Upstream: `plugins/priority/priority.go`, which has no opinion on preemption.
// Parity: differs, see docs/parity.md#p2 and docs/parity.md#p7.

use std::cmp::Ordering;

use kube_batch_framework::{
    plugin::{Dependencies, OrderScope, Plugin, Proposal, VictimQuestion, VictimScope, Vote},
    spec::PluginSpec,
};
use kube_batch_model::{
    cluster::Cluster,
    column::{ClassIdx, JobIdx, TaskIdx},
};

/// The plugin `priority`.
#[derive(Debug, Default)]
pub struct Priority;

/// How a configuration names the plugin.
pub const SPEC: PluginSpec = PluginSpec {
    name: "priority",
    about: "the job with the higher priority goes first, and only jobs of lower priority may be preempted",
    arguments: &[],
    metadata_prefixes: &[],
    new: |_| Box::new(Priority),
};

impl Plugin for Priority {
    fn name(&self) -> &'static str {
        "priority"
    }

    fn job_order(&self, cluster: &Cluster, l: JobIdx, r: JobIdx) -> Ordering {
        cluster.jobs.priority[r].cmp(&cluster.jobs.priority[l])
    }

    fn task_order(&self, cluster: &Cluster, l: TaskIdx, r: TaskIdx) -> Ordering {
        cluster.tasks.priority[r].cmp(&cluster.tasks.priority[l])
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
        let Proposal { preemptor, victim, .. } = *proposal;
        let (tasks, jobs) = (&cluster.tasks, &cluster.jobs);
        let lower = match (tasks.job[preemptor], tasks.job[victim]) {
            (Some(own), Some(other)) if own == other => {
                tasks.priority[victim] < tasks.priority[preemptor]
            }
            (Some(_), Some(other)) => {
                jobs.priority[other] < cluster.priority_as_preemptor(preemptor)
            }
            (None, _) | (_, None) => false,
        };
        if lower { Vote::Permit } else { Vote::Reject }
    }

    fn victim_scope(&self, _: &Cluster, _: TaskIdx, question: VictimQuestion) -> VictimScope {
        match question {
            VictimQuestion::Preemptable => VictimScope::FACTS,
            VictimQuestion::Reclaimable => VictimScope::NONE,
        }
    }
}
