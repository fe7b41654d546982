//! Queues as people look at them: what each holds, asks for and gets, and which is below which.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use kube_batch_model::{
    column::{Column, QueueIdx},
    facts::queue::QueueFacts,
    group_version::GroupVersion,
    name::Name,
    object_status::QueueStatus,
    queue_condition::{ACTIVE, QueueCondition},
    queue_tree::{NotServed, QueueTree},
    resource::{PODS, ResourceList},
};

/// The queues of a cluster, in order of creation, then name.
#[derive(Debug)]
pub(crate) struct QueueViews {
    pub(crate) all: Column<QueueIdx, QueueView>,
    pub(crate) tree: QueueTree,
}

/// One queue.
#[derive(Clone, Debug)]
pub(crate) struct QueueView {
    pub(crate) facts: Arc<QueueFacts>,
    pub(crate) status: QueueStatus,
    /// What its pods hold, and those of the queues below it.
    pub(crate) held: ResourceList,
    /// That, and what waiting pods request.
    pub(crate) requested: ResourceList,
    pub(crate) deserved: ResourceList,
    pub(crate) guaranteed: ResourceList,
    pub(crate) fair_share: ResourceList,
}

impl QueueView {
    fn new(facts: Arc<QueueFacts>, status: QueueStatus) -> Self {
        Self {
            held: amounts(&status.allocated),
            requested: amounts(&status.requested),
            deserved: amounts(&status.deserved),
            guaranteed: amounts(&status.guaranteed),
            fair_share: amounts(&status.fair_share),
            facts,
            status,
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.facts.name
    }

    /// What it says about whether it starts jobs.
    pub(crate) fn active(&self) -> Option<&QueueCondition> {
        self.condition(ACTIVE)
    }

    pub(crate) fn condition(&self, type_: &str) -> Option<&QueueCondition> {
        self.status.conditions.iter().find(|own| own.type_ == type_)
    }

    /// What waiting pods request.
    pub(crate) fn waiting(&self, resource: &str) -> i64 {
        (self.requested.get(resource) - self.held.get(resource)).max(0)
    }

    /// Whether it is known what it deserves: the scheduler writes no shares into the queues of other projects.
    pub(crate) fn has_shares(&self) -> bool {
        self.facts.version != GroupVersion::Volcano || !self.status.deserved.is_empty()
    }

    /// How much more it holds than it deserves.
    pub(crate) fn on_loan(&self, resource: &str) -> i64 {
        if !self.has_shares() {
            return 0;
        }
        (self.held.get(resource) - self.deserved.get(resource)).max(0)
    }
}

/// Amounts that the scheduler wrote. If they cannot be read, somebody else did: then there are none.
fn amounts(quantities: &BTreeMap<String, String>) -> ResourceList {
    let quantities = quantities.iter().map(|(name, quantity)| (&**name, &**quantity)).collect();
    ResourceList::of_limits(&quantities).unwrap_or_default()
}

impl QueueViews {
    pub(crate) fn new(queues: impl IntoIterator<Item = (Arc<QueueFacts>, QueueStatus)>) -> Self {
        let mut all: Vec<QueueView> =
            queues.into_iter().map(|(facts, status)| QueueView::new(facts, status)).collect();
        all.sort_by(|l, r| (l.facts.created, &l.facts.name).cmp(&(r.facts.created, &r.facts.name)));
        let all: Column<QueueIdx, QueueView> = all.into_iter().collect();
        let rows: HashMap<&Name, QueueIdx> =
            all.iter().map(|(row, queue)| (&queue.facts.name, row)).collect();
        let parents = all.values().map(|queue| queue.facts.parent.clone()).collect();
        let top = all.iter().find(|(_, queue)| queue.facts.is_top).map(|(row, _)| row);
        let tree = QueueTree::new(&parents, |name| rows.get(name).copied(), top);
        Self { all, tree }
    }

    pub(crate) fn row(&self, name: &str) -> Option<QueueIdx> {
        self.all.iter().find(|(_, queue)| queue.name() == name).map(|(row, _)| row)
    }

    /// The queues from the top down, each with those below it after it, and how deep it is; then those that serve nothing.
    pub(crate) fn in_order(&self) -> Vec<(QueueIdx, usize)> {
        let mut order = Vec::with_capacity(self.all.len());
        let mut next: Vec<(QueueIdx, usize)> =
            self.tree.roots().iter().rev().map(|root| (*root, 0)).collect();
        while let Some((queue, depth)) = next.pop() {
            order.push((queue, depth));
            let children = self.tree.children(queue).iter().rev();
            next.extend(children.map(|child| (*child, depth + 1)));
        }
        let is_lost = |queue: &QueueIdx| {
            let not_served = self.tree.not_served(*queue);
            not_served.is_some_and(|why| *why != NotServed::Top)
        };
        let lost = self.all.ids().filter(is_lost);
        order.extend(lost.map(|queue| (queue, 0)));
        order
    }

    /// Sums over the queues at the top.
    pub(crate) fn sum<'a>(&'a self, of_queue: impl Fn(&'a QueueView) -> i64) -> i64 {
        let roots = self.tree.roots().iter();
        roots.fold(0, |sum: i64, root| sum.saturating_add(of_queue(&self.all[*root])))
    }

    /// The resources that are held, waited for or deserved: CPU, memory, then others by name.
    pub(crate) fn resources(&self) -> Vec<Name> {
        let lists = self.all.values().flat_map(|queue| [&queue.requested, &queue.deserved]);
        let used = lists.flat_map(|list| list.iter().filter(|(_, amount)| *amount != 0));
        let mut names: Vec<Name> =
            used.map(|(name, _)| name.clone()).filter(|name| **name != *PODS).collect();
        names.sort_by_key(|name| (place(name), name.clone()));
        names.dedup();
        names
    }
}

/// CPU comes first, then memory.
fn place(resource: &str) -> u8 {
    match resource {
        "cpu" => 0,
        "memory" => 1,
        _ => 2,
    }
}
