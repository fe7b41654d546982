//! Queues as a cycle sees them: columns, sums, and who may use them.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use crate::{
    column::{Column, Dim, JobIdx, QueueIdx},
    division::Wish,
    facts::queue::{QueueFacts, QueueState},
    name::Name,
    queue_tree::QueueTree,
    resource::Ledger,
    selector::{LabelSelector, Labels},
};

/// Columns by queue.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Queues {
    /// The fields of each API object that the scheduler uses.
    pub facts: Column<QueueIdx, Arc<QueueFacts>>,
    /// Which is below which.
    // Parity: see docs/parity.md#q1.
    pub tree: QueueTree,
    /// Hard limits, by dimension.
    pub capability: Column<QueueIdx, Vec<(Dim, i64)>>,
    /// What each gets before weights count, by dimension.
    // Parity: see docs/parity.md#q3.
    pub deserved: Column<QueueIdx, Vec<(Dim, i64)>>,
    /// What is kept free for each, by dimension.
    // Parity: see docs/parity.md#q4.
    pub guarantee: Column<QueueIdx, Vec<(Dim, i64)>>,
    /// The namespaces whose jobs may use each; `None` for all.
    // Parity: see docs/parity.md#q13.
    pub namespaces: Column<QueueIdx, Option<SelectedNamespaces>>,
    /// Jobs of each, ascending.
    pub jobs: Column<QueueIdx, Vec<JobIdx>>,
    /// What the tasks that count for each and those below it hold, as shares count it.
    pub held: Ledger<QueueIdx>,
    /// What the tasks that count for them and are being terminated still use.
    pub leaving: Ledger<QueueIdx>,
    /// What other tasks that count for them use: those that do not end, those that their node does not report, and those
    /// whose node is gone.
    pub stuck: Ledger<QueueIdx>,
}

impl Queues {
    /// What the tasks that count for a queue and those below it use on nodes, those that are being terminated included, or
    /// are nominated for.
    pub fn used(&self, queue: QueueIdx, dim: Dim) -> i64 {
        self.held[queue][dim] + self.leaving[queue][dim] + self.stuck[queue][dim]
    }

    /// The row of a queue.
    pub fn row(&self, name: &Name) -> Option<QueueIdx> {
        self.facts.iter().find(|(_, facts)| facts.name == *name).map(|(row, _)| row)
    }

    /// How many queues name each queue as parent, also those that serve nothing.
    pub fn n_named(&self) -> Column<QueueIdx, usize> {
        let mut n_naming: HashMap<&Name, usize> = HashMap::new();
        for parent in self.facts.values().filter_map(|facts| facts.parent.as_ref()) {
            *n_naming.entry(parent).or_default() += 1;
        }
        let n_naming = |facts: &Arc<QueueFacts>| n_naming.get(&facts.name).copied().unwrap_or(0);
        self.facts.values().map(n_naming).collect()
    }

    /// The queue of a path that is closed, the one nearest to `queue`.
    // Parity: see docs/parity.md#q10.
    pub fn closed_by(&self, queue: QueueIdx) -> Option<QueueIdx> {
        self.tree.path(queue).find(|queue| self.facts[*queue].closed)
    }

    /// What is known of a queue and one resource before the [division](crate::division), without what it requests.
    // Parity: see docs/parity.md#q2.
    pub fn wish(&self, queue: QueueIdx, dim: Dim) -> Wish {
        let number = |amounts: &[(Dim, i64)]| {
            amounts.iter().find(|(own, _)| *own == dim).map(|(_, amount)| *amount)
        };
        let guarantee = number(&self.guarantee[queue]);
        Wish {
            deserved: number(&self.deserved[queue]),
            guarantee: guarantee.filter(|_| self.closed_by(queue).is_none()).unwrap_or_default(),
            capability: number(&self.capability[queue]),
            weight: self.facts[queue].weight,
            priority: self.facts[queue].priority,
            request: 0,
        }
    }

    /// Whether a queue starts jobs.
    pub fn state(&self, queue: QueueIdx) -> QueueState {
        match self.closed_by(queue) {
            None => QueueState::Open,
            Some(_) if self.used(queue, Dim::PODS) > 0 => QueueState::Closing,
            Some(_) => QueueState::Closed,
        }
    }

    /// How long the pods and gangs of a queue run before they may be evicted: as the first queue of its path says that says
    /// anything.
    // Parity: see docs/parity.md#q14.
    pub fn min_runtime(&self, queue: QueueIdx) -> Duration {
        self.tree.path(queue).find_map(|queue| self.facts[queue].min_runtime).unwrap_or_default()
    }

    /// Puts queues below others: the sums follow.
    pub fn set_tree(&mut self, tree: QueueTree) {
        if self.tree == tree {
            return;
        }
        for ledger in [&mut self.held, &mut self.leaving, &mut self.stuck] {
            // What those below a queue do not have is its own.
            for queue in self.tree.parents_first() {
                self.tree
                    .parent(*queue)
                    .into_iter()
                    .for_each(|parent| ledger.add_row(*queue, parent, -1));
            }
            for queue in tree.parents_first().iter().rev() {
                tree.parent(*queue)
                    .into_iter()
                    .for_each(|parent| ledger.add_row(*queue, parent, 1));
            }
        }
        self.tree = tree;
    }
}

/// The namespaces that a selector of labels picks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SelectedNamespaces {
    /// Whether it picks those without labels.
    has_others: bool,
    /// Those for which it is the other way round.
    exceptions: BTreeSet<Name>,
}

impl SelectedNamespaces {
    /// Those that a selector picks, of namespaces that are [set](Self::set) next.
    pub fn by(selector: &LabelSelector) -> Self {
        Self { has_others: selector.matches(&Labels::default()), exceptions: BTreeSet::new() }
    }

    /// Sets whether a namespace is picked.
    pub fn set(&mut self, namespace: &Name, is_picked: bool) {
        if is_picked == self.has_others {
            self.exceptions.remove(namespace);
        } else {
            self.exceptions.insert(namespace.clone());
        }
    }

    /// Whether a namespace is picked. One that is not known has no labels.
    pub fn has(&self, namespace: &Name) -> bool {
        self.exceptions.contains(namespace) != self.has_others
    }
}
