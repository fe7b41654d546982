//! Checks that the sums which every placement changes match the placements.

use crate::{
    cluster::{ClassCounts, Cluster, Queues, StatusCounts},
    column::{Column, Dim, NodeIdx},
    name::{JobKey, Name},
    resource::Ledger,
    status::TaskStatus,
};

impl Cluster {
    /// Checks that every ledger and count equals what the placements add up to.
    pub fn audit(&self) -> Vec<Violation> {
        let mut fresh = self.clone();
        for row in fresh.nodes.facts.ids().collect::<Vec<_>>() {
            let idle = fresh.dimensions.idle(&fresh.nodes.allocatable[row]);
            fresh.nodes.idle[row].copy_from_slice(&idle);
            fresh.nodes.releasing[row].fill(0);
            fresh.nodes.pipelined[row].fill(0);
            fresh.nodes.used[row].fill(0);
            fresh.nodes.foreign[row].fill(0);
        }
        fresh.nodes.scoring.fill([0; 2]);
        fresh.jobs.counts.fill(StatusCounts::default());
        for counts in fresh.jobs.role_counts.values_mut() {
            counts.fill(StatusCounts::default());
        }
        let (width, n_jobs) = (self.dimensions.len(), self.jobs.key.len());
        fresh.jobs.held = Ledger::zero(width, n_jobs);
        fresh.jobs.waiting = Ledger::zero(width, n_jobs);
        let n_queues = self.queues.facts.len();
        fresh.queues.held = Ledger::zero(width, n_queues);
        fresh.queues.leaving = Ledger::zero(width, n_queues);
        fresh.queues.stuck = Ledger::zero(width, n_queues);
        fresh.classes.counts.fill(ClassCounts::default());
        for task in self.tasks.placement.ids() {
            fresh.book(task);
        }
        let mut violations = Vec::new();
        for node in self.nodes.facts.ids() {
            for (ledger, own, derived) in [
                ("idle", &self.nodes.idle, &fresh.nodes.idle),
                ("releasing", &self.nodes.releasing, &fresh.nodes.releasing),
                ("pipelined", &self.nodes.pipelined, &fresh.nodes.pipelined),
                ("used", &self.nodes.used, &fresh.nodes.used),
                ("foreign", &self.nodes.foreign, &fresh.nodes.foreign),
            ] {
                if own[node] != derived[node] {
                    violations.push(Violation::LedgerDrifted {
                        node: self.node_name(node).clone(),
                        ledger,
                    });
                }
            }
            if self.nodes.scoring[node] != fresh.nodes.scoring[node] {
                violations.push(Violation::LedgerDrifted {
                    node: self.node_name(node).clone(),
                    ledger: "scoring",
                });
            }
        }
        if let Some(node) = self.nodes.unlike_in_columns() {
            let node = self.node_name(node).clone();
            violations.push(Violation::LedgerDrifted { node, ledger: "columns" });
        }
        for node in self.over_committed_nodes() {
            violations.push(Violation::OverCommitted { node: self.node_name(node).clone() });
        }
        for job in self.jobs.key.ids() {
            if self.jobs.counts[job] != fresh.jobs.counts[job]
                || self.jobs.role_counts[job] != fresh.jobs.role_counts[job]
                || self.jobs.held[job] != fresh.jobs.held[job]
                || self.jobs.waiting[job] != fresh.jobs.waiting[job]
            {
                violations.push(Violation::CountsDrifted { job: self.jobs.key[job].clone() });
            }
        }
        for queue in self.queues.facts.ids() {
            let sums = |cluster: &'_ Self| {
                let Queues { held, leaving, stuck, .. } = &cluster.queues;
                [held[queue].to_vec(), leaving[queue].to_vec(), stuck[queue].to_vec()]
            };
            if sums(self) != sums(&fresh) {
                let name = self.queues.facts[queue].name.clone();
                violations.push(Violation::QueueDrifted { queue: name });
            }
        }
        if self.classes.counts != fresh.classes.counts {
            violations.push(Violation::ClassCountsDrifted);
        }
        violations
    }

    /// Nodes on which this cycle has allocated or nominated more than there is. A node that others
    /// have over-committed may stay so, but nothing may be added in the dimensions it lacks.
    fn over_committed_nodes(&self) -> Vec<NodeIdx> {
        let mut given: Column<NodeIdx, Vec<Dim>> =
            Column::filled(Vec::new(), self.nodes.facts.len());
        for (task, at) in self.tasks.placement.iter() {
            let new = matches!(at.status, TaskStatus::Allocated | TaskStatus::Pipelined);
            if let Some(node) = at.node.filter(|_| new) {
                given[node].extend(self.request(task).amounts().iter().map(|(dim, _)| *dim));
            }
        }
        let lacks = |node: NodeIdx, dim: &Dim| {
            let nodes = &self.nodes;
            nodes.idle[node][*dim] + nodes.releasing[node][*dim] < nodes.pipelined[node][*dim]
        };
        let broken = given.iter().filter(|(node, dims)| dims.iter().any(|dim| lacks(*node, dim)));
        broken.map(|(node, _)| node).collect()
    }
}

/// A violated invariant: a bug in the scheduler.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// A ledger differs from what the placements add up to.
    #[error("ledger {ledger} of node {node} does not follow from the placements")]
    LedgerDrifted {
        /// The node.
        node: Name,
        /// The ledger.
        ledger: &'static str,
    },
    /// The counts of a job differ from what the placements add up to.
    #[error("task counts of job {job} do not follow from the placements")]
    CountsDrifted {
        /// The job.
        job: JobKey,
    },
    /// The sums of a queue differ from what the placements add up to.
    #[error("what queue {queue} holds does not follow from the placements")]
    QueueDrifted {
        /// The queue.
        queue: Name,
    },
    /// The counts of a class differ from what the placements add up to.
    #[error("task counts of a class do not follow from the placements")]
    ClassCountsDrifted,
    /// More was allocated or nominated than there is.
    #[error("more is nominated on node {node} than there is")]
    OverCommitted {
        /// The node.
        node: Name,
    },
}
