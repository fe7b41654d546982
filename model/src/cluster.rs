//! The snapshot a cycle works on, as columns, and the only function that changes placements.
//!
//! A [`Cluster`] is built by `kube-batch-cache` and belongs to one cycle, which gives it back as it was, so
//! that the next one is made from it. Facts are shared and never change; ledgers and counts are derived from
//! the placements of tasks, and only [`Cluster::set_placement`] changes them while a cycle runs.

mod batch_jobs;
mod capacity;
mod keep_available;
mod keep_columns;
mod kept_available;
mod left_out;
mod matchers;
mod node_columns;
mod queues;
mod tables;
mod totals;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

pub use self::{
    capacity::Capacity,
    kept_available::KeptAvailable,
    matchers::Matchers,
    node_columns::{EXACT_IN_FLOATS, KeptColumns, NodeColumns, as_exact},
    queues::{Queues, SelectedNamespaces},
    tables::{
        ClassCounts, Classes, CountsFor, FormerRow, Jobs, LeftOut, Nodes, StatusCounts, Storage,
        TaskRange, Tasks,
    },
};
use crate::{
    column::{ClassIdx, Dim, JobIdx, NodeIdx, Ordinal, QueueIdx, TaskIdx},
    decision::PodRef,
    devices::DeviceObjects,
    facts::{policy::BudgetFacts, request::ScoringAmounts},
    name::Name,
    reason::{NodeReason, Unfit},
    resource::{Dimensions, Request, ResourceVector},
    status::{Placement, TaskStatus},
};

/// The snapshot of the cluster that a cycle reads.
#[derive(Clone, Debug, PartialEq)]
pub struct Cluster {
    /// Resource dimensions.
    pub dimensions: Dimensions,
    /// Nodes, in name order.
    pub nodes: Nodes,
    /// Queues, in order of creation, then name.
    pub queues: Queues,
    /// Jobs, in order of creation, then namespace and name.
    pub jobs: Jobs,
    /// Tasks; those of a job are adjacent, those without a job come last.
    pub tasks: Tasks,
    /// Classes of tasks that are equal to every predicate and score.
    pub classes: Classes,
    /// Selectors over pods, each once.
    pub matchers: Matchers,
    /// Volumes and claims.
    pub storage: Arc<Storage>,
    /// Devices, and claims for them.
    pub devices: Arc<DeviceObjects>,
    /// How many devices there are for each resource that classes of devices stand for, beside what nodes
    /// advertise. Known while a session is open, and 0 otherwise.
    pub device_totals: ResourceVector,
    /// Disruption budgets that protect pods, by namespace and name.
    pub budgets: Vec<Arc<BudgetFacts>>,
    /// The tasks on nodes that are being terminated, and for how long.
    // Parity: new, see docs/parity.md#p13.
    pub terminating: BTreeMap<TaskIdx, Terminating>,
}

/// How long a task has been terminating.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terminating {
    /// What is left of its grace period.
    pub left: Duration,
    /// How long ago its grace period ended.
    pub overdue: Duration,
}

impl Cluster {
    /// The priority with which a task evicts others: that of its job, but not more than its own where the job only has
    /// the highest of its pods.
    // Parity: see docs/parity.md#p2.
    pub fn priority_as_preemptor(&self, task: TaskIdx) -> i32 {
        let own = self.tasks.priority[task];
        let Some(job) = self.tasks.job[task] else { return own };
        let of_job = self.jobs.priority[job];
        if self.jobs.priority_of_pods[job] { of_job.min(own) } else { of_job }
    }

    /// Whether no task may be evicted for this one.
    pub fn never_preempts(&self, task: TaskIdx) -> bool {
        let of_group = self.tasks.job[task].and_then(|job| {
            let root = self.jobs.composites[job].as_ref().and_then(|above| above.last());
            let of_root = root.map(|root| root.never_preempts);
            of_root.unwrap_or_else(|| self.jobs.group[job].as_ref()?.never_preempts)
        });
        of_group.unwrap_or(self.tasks.facts[task].never_preempts)
    }

    /// Whether all tasks of a job are required to be in one topology domain, by itself or with those of other jobs.
    pub fn requires_domain(&self, job: JobIdx) -> bool {
        let topology = self.jobs.topology[job].as_ref();
        topology.is_some_and(|topology| topology.required.is_some())
            || self.requires_domain_of_composite(job)
    }

    /// Whether a composite PodGroup above a job requires all pods below it to be in one topology domain.
    pub fn requires_domain_of_composite(&self, job: JobIdx) -> bool {
        let mut above = self.jobs.composites[job].iter().flat_map(|above| above.iter());
        above.any(|composite| composite.topology.is_some())
    }

    /// Changes the placement of a task, and the ledgers and counts with it. Returns the previous
    /// placement.
    ///
    /// This is the only writer of placements, node ledgers and job counts.
    pub fn set_placement(&mut self, task: TaskIdx, to: Placement) -> Placement {
        let from = std::mem::replace(&mut self.tasks.placement[task], to);
        self.charge(task, from, -1);
        self.charge(task, to, 1);
        from
    }

    /// Adds a task to the ledgers and counts. Called once for each task when the snapshot is built.
    pub fn book(&mut self, task: TaskIdx) {
        self.charge(task, self.tasks.placement[task], 1);
    }

    /// Removes a task from the ledgers and counts, before its row is written again or removed.
    pub fn unbook(&mut self, task: TaskIdx) {
        self.charge(task, self.tasks.placement[task], -1);
    }

    fn charge(&mut self, task: TaskIdx, at: Placement, sign: i64) {
        let by = i32::try_from(sign).expect("a sign is -1 or 1");
        let class = self.tasks.class[task];
        let request = &self.classes.request[class];
        let is_waiting = self.waits_as(task, at.status);
        if let Some(job) = self.tasks.job[task] {
            if !self.tasks.gated[task] {
                let count = &mut self.jobs.counts[job].0[at.status as usize];
                *count = count.wrapping_add_signed(by);
                if let Some(role) = self.tasks.role[task] {
                    let counts = &mut self.jobs.role_counts[job][usize::from(role)];
                    let count = &mut counts.0[at.status as usize];
                    *count = count.wrapping_add_signed(by);
                }
            }
            if at.status.is_held() && at.node.is_some() {
                request.charge(&mut self.jobs.held[job], sign);
            } else if is_waiting {
                request.charge(&mut self.jobs.waiting[job], sign);
            }
        }
        let charge = at.status.charge();
        if (at.status.is_held() || charge.used != 0)
            && let Some(queue) = self.queue_of(task)
        {
            let Queues { held, leaving, stuck, tree, .. } = &mut self.queues;
            // On a node that is gone it holds nothing that queues could share.
            let ledger = if at.status.is_held() && at.node.is_some() {
                held
            } else if at.status == TaskStatus::Releasing {
                leaving
            } else {
                stuck
            };
            for queue in tree.path(queue) {
                self.classes.request[class].charge(&mut ledger[queue], sign);
            }
        }
        let request = &self.classes.request[class];
        let counts = &mut self.classes.counts[class];
        for (count, is_counted) in [
            (&mut counts.waiting, is_waiting),
            (&mut counts.on_nodes, charge.used != 0),
            (&mut counts.being_placed, at.status.is_being_placed()),
        ] {
            *count = count.wrapping_add_signed(if is_counted { by } else { 0 });
        }
        let Some(node) = at.node else { return };
        let is_foreign = self.tasks.job[task].is_none() && !self.tasks.facts[task].not_admitted;
        for (ledger, times) in [
            (&mut self.nodes.idle, charge.idle),
            (&mut self.nodes.releasing, charge.releasing),
            (&mut self.nodes.pipelined, charge.pipelined),
            (&mut self.nodes.used, charge.used),
            (&mut self.nodes.foreign, if is_foreign { charge.used - charge.releasing } else { 0 }),
        ] {
            if times != 0 {
                request.charge(&mut ledger[node], sign * times);
            }
        }
        let ScoringAmounts { cpu_milli, memory_bytes } = self.classes.template[class].scoring;
        let scoring = self.nodes.scoring[node].iter_mut().zip([cpu_milli, memory_bytes]);
        for (sum, amount) in scoring {
            // Sums wrap, as those of the ledgers do: a wrapped sum is still rolled back exactly.
            *sum = sum.wrapping_add(amount.wrapping_mul(sign * charge.used));
        }
        self.nodes.amounts_changed(node);
    }

    /// Calls a function while the tasks that are being terminated on these nodes count for nothing in scores. What is
    /// idle stays as it is.
    pub fn with_released<T>(&mut self, nodes: &[NodeIdx], call: impl FnOnce(&Self) -> T) -> T {
        let mut before = Vec::new();
        // Every task takes a pod slot.
        let leave_some = |node: &NodeIdx| self.nodes.releasing[*node][Dim::PODS] != 0;
        let nodes: Vec<NodeIdx> = nodes.iter().copied().filter(leave_some).collect();
        for node in nodes {
            let leaving = self.nodes.tasks[node].iter().copied();
            let leaving: Vec<TaskIdx> =
                leaving.filter(|task| self.status(*task) == TaskStatus::Releasing).collect();
            before.push((node, self.nodes.used[node].to_vec(), self.nodes.scoring[node]));
            for task in leaving {
                let class = self.tasks.class[task];
                self.classes.request[class].charge(&mut self.nodes.used[node], -1);
                let ScoringAmounts { cpu_milli, memory_bytes } =
                    self.classes.template[class].scoring;
                let scoring = self.nodes.scoring[node].iter_mut().zip([cpu_milli, memory_bytes]);
                scoring.for_each(|(sum, amount)| *sum = sum.wrapping_sub(amount));
            }
            self.nodes.amounts_changed(node);
        }
        let answer = call(self);
        for (node, used, scoring) in before {
            self.nodes.used[node].copy_from_slice(&used);
            self.nodes.scoring[node] = scoring;
            self.nodes.amounts_changed(node);
        }
        answer
    }

    /// Whether a task would wait to be placed by kube-batch with this status.
    fn waits_as(&self, task: TaskIdx, status: TaskStatus) -> bool {
        status == TaskStatus::Pending && self.tasks.ours[task] && !self.tasks.gated[task]
    }

    /// What a task requests.
    pub fn request(&self, task: TaskIdx) -> &Request {
        &self.classes.request[self.tasks.class[task]]
    }

    /// The queue for which a task counts: that from which it was bound, or else that of its job. `None` if that does
    /// not exist.
    pub fn queue_of(&self, task: TaskIdx) -> Option<QueueIdx> {
        match self.tasks.counts_for[task] {
            CountsFor::QueueOfJob => self.jobs.queue[self.tasks.job[task]?],
            CountsFor::Queue(queue) => Some(queue),
            CountsFor::NoQueue => None,
        }
    }

    /// Whether a task counts for a queue, or for one below it.
    pub fn counts_below(&self, task: TaskIdx, queue: QueueIdx) -> bool {
        let own = self.queue_of(task);
        own.is_some_and(|own| self.queues.tree.is_on_path(queue, own))
    }

    /// The queue for which most of these tasks count; of several, the first. `None` if most count for none.
    pub fn queue_of_most(&self, tasks: &[TaskIdx]) -> Option<QueueIdx> {
        let first = self.queue_of(*tasks.first()?);
        if tasks.iter().all(|task| self.queue_of(*task) == first) {
            return first;
        }
        let mut counts: BTreeMap<Option<QueueIdx>, usize> = BTreeMap::new();
        for task in tasks {
            *counts.entry(self.queue_of(*task)).or_default() += 1;
        }
        let most = counts.into_iter().max_by_key(|(queue, n)| (*n, std::cmp::Reverse(*queue)));
        most.and_then(|(queue, _)| queue)
    }

    /// The status of a task.
    pub fn status(&self, task: TaskIdx) -> TaskStatus {
        self.tasks.placement[task].status
    }

    /// Whether a task waits to be placed by kube-batch.
    pub fn is_waiting(&self, task: TaskIdx) -> bool {
        self.waits_as(task, self.status(task))
    }

    /// The tasks with one of the states that `include` picks, ascending.
    pub fn tasks_in(&self, include: impl Fn(TaskStatus) -> bool) -> impl Iterator<Item = TaskIdx> {
        self.tasks_of_jobs(self.jobs.key.ids(), include)
    }

    /// The tasks of some jobs, which are ascending, and those that have no job, with one of the states that `include` picks;
    /// ascending.
    pub fn tasks_of_jobs(
        &self,
        jobs: impl Iterator<Item = JobIdx>,
        include: impl Fn(TaskStatus) -> bool,
    ) -> impl Iterator<Item = TaskIdx> {
        let n_of_jobs: usize = self.jobs.tasks.values().map(|tasks| tasks.len()).sum();
        let jobless = (n_of_jobs..self.tasks.facts.len()).map(TaskIdx::new);
        let may_run = include(TaskStatus::Running);
        let has_some = |job: JobIdx| {
            // So it is with most jobs.
            if !may_run
                && self.jobs.counts[job].of(TaskStatus::Running) as usize
                    == self.jobs.tasks[job].len()
            {
                return false;
            }
            let others = self.jobs.counts[job].sum(|status| !include(status));
            self.jobs.tasks[job].len() > others as usize
        };
        let jobs: Vec<JobIdx> = jobs.filter(|job| has_some(*job)).collect();
        let of_jobs = jobs.into_iter().flat_map(|job| self.jobs.tasks[job].iter());
        of_jobs.chain(jobless).filter(move |task| include(self.status(*task)))
    }

    /// Whether a job is scheduled in this cycle.
    pub fn is_schedulable(&self, job: JobIdx) -> bool {
        self.jobs.problem[job].is_none()
    }

    /// The pod of a task, as decisions name it.
    pub fn pod(&self, task: TaskIdx) -> PodRef {
        let facts = &self.tasks.facts[task];
        PodRef { uid: facts.uid.clone(), key: facts.key.clone() }
    }

    /// The name of a node.
    pub fn node_name(&self, node: NodeIdx) -> &Name {
        &self.nodes.facts[node].name
    }

    /// The name of the node of a task, also if that node does not exist any more; `None` if it has none.
    pub fn node_of(&self, task: TaskIdx) -> Option<&Name> {
        let placed = self.tasks.placement[task].node.map(|node| self.node_name(node));
        placed.or(self.tasks.facts[task].node.as_ref())
    }

    /// A reason why a class does not fit, with its names.
    pub fn named_reason(&self, class: ClassIdx, reason: Unfit) -> NodeReason {
        let unknown = self.classes.request[class].unknown();
        let unknown = |at| unknown.get(at as usize).cloned();
        let driver = |at| self.storage.csi_drivers.keys().nth(at as usize).cloned();
        reason.named(
            |dim| self.dimensions.name(dim).clone(),
            |at| unknown(at).unwrap_or_else(|| Name::from("resources")),
            |at| driver(at).unwrap_or_else(|| Name::from("a")),
        )
    }
}
