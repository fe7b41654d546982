//! Takes the snapshot of one cycle from the store: a pure function, computed from scratch each time.
//!
//! Only this module converts names to ids. Ids are in a documented order, so that the lowest id wins
//! every tie. Objects that cannot take part, such as a job without its queue or the second of two
//! PodGroups with one name, are ignored here, each with its reason.

pub(crate) mod classes;
pub(crate) mod devices;
pub(crate) mod foreign_selectors;
pub(crate) mod hints;
pub(crate) mod jobs;
mod matching;
mod options;
pub(crate) mod queues;
pub(crate) mod rows;
pub(crate) mod storage;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use kube_batch_model::{
    cluster::{Cluster, KeptAvailable, KeptColumns, Nodes},
    column::Column,
    facts::{fact::Fact, group::GroupFacts, policy::BudgetFacts, queue::QueueFacts},
    group_version::{GroupVersion, Join},
    name::{Name, ObjectKey},
    problem::{Duplicate, Ignored},
    resource::{Dimensions, Ledger, ResourceVector},
    status::Placement,
};

use self::{
    classes::Classifier,
    devices::{ClaimUsers, devices_of, of_devices, published_devices},
    hints::Hints,
    jobs::sort_into_jobs,
    queues::queues_of,
    rows::SnapshotRows,
    storage::storage_of,
};
pub use self::{
    options::{SchedulerNames, SnapshotOptions},
    rows::RejectedTask,
};
use crate::{
    assumed::Assumed,
    store::{Store, Table},
};

/// The snapshot of one cycle, and the objects that were ignored.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The cluster.
    pub cluster: Cluster,
    /// Objects that are ignored, and why.
    pub ignored: Vec<Ignored>,
    /// The waiting tasks whose bindings the API server rejected.
    pub rejected: Vec<RejectedTask>,
    /// See [`Store::generation`].
    pub generation: u64,
}

/// Takes the snapshot of one cycle.
pub fn take_snapshot(store: &Store, assumed: &Assumed, options: &SnapshotOptions) -> Snapshot {
    fold(store, assumed, options).0
}

/// What the next snapshot can reuse.
#[derive(Debug)]
pub(crate) struct Reusable {
    pub(crate) classifier: Classifier,
    pub(crate) claim_users: ClaimUsers,
    pub(crate) hints: Hints,
}

/// A snapshot, and what the next one can reuse.
pub(crate) fn fold(
    store: &Store,
    assumed: &Assumed,
    options: &SnapshotOptions,
) -> (Snapshot, Reusable) {
    let groups = groups_that_count(store, |_, _| {});
    let queues = queues_that_count(store, |_, _| {});
    let members = sort_into_jobs(store, &groups, options);
    let dimensions = dimensions_of(store);
    let nodes = nodes_of(store, &dimensions);
    let queues = queues_of(queues, &dimensions, store);
    let rows = SnapshotRows::new(members, &dimensions, &nodes, queues, (store, assumed, options));
    let SnapshotRows {
        classifier,
        classes,
        matchers,
        claim_users,
        hints,
        tasks,
        jobs,
        queues,
        rejected,
    } = rows;
    let n_dimensions = dimensions.len();
    let mut cluster = Cluster {
        classes,
        matchers,
        dimensions,
        nodes,
        queues,
        jobs,
        tasks,
        storage: Arc::new(storage_of(store, assumed)),
        devices: Arc::new(devices_of(store, assumed, published_devices(store))),
        device_totals: ResourceVector::zero(n_dimensions),
        budgets: budgets_of(store),
        terminating: BTreeMap::new(),
    };
    charge(&mut cluster);
    let ignored = duplicates(store);
    let snapshot = Snapshot { cluster, ignored, rejected, generation: store.generation() };
    let kept = Reusable { classifier, claim_users, hints };
    (snapshot, kept)
}

/// The objects that are ignored because one of another API takes precedence.
pub(crate) fn duplicates(store: &Store) -> Vec<Ignored> {
    let mut ignored = Vec::new();
    groups_that_count(store, |key, apis| {
        ignored.push(Ignored::DuplicateGroup(key.clone(), apis));
    });
    queues_that_count(store, |name, apis| {
        ignored.push(Ignored::DuplicateQueue(name.clone(), apis));
    });
    ignored
}

/// The budgets that protect pods.
pub(crate) fn budgets_of(store: &Store) -> Vec<Arc<BudgetFacts>> {
    store.budgets.values().filter(|budget| budget.selector.is_some()).cloned().collect()
}

/// Adds every task to the ledgers according to its placement.
fn charge(cluster: &mut Cluster) {
    for task in cluster.tasks.placement.ids() {
        cluster.book(task);
        let Placement { status, node } = cluster.tasks.placement[task];
        if let Some(node) = node.filter(|_| status.is_on_node()) {
            cluster.nodes.tasks[node].push(task);
        }
    }
}

/// The PodGroups that are used: for each name and each way of naming it, that of the last API.
fn groups_that_count(
    store: &Store,
    duplicate: impl FnMut(&ObjectKey, Duplicate),
) -> Vec<(Join, &ObjectKey, &Arc<GroupFacts>)> {
    let is_same = |l: GroupVersion, r: GroupVersion| l.join() == r.join();
    let groups = last_of_each(&store.groups, is_same, duplicate).into_iter();
    groups.map(|(key, version, facts)| (version.join(), key, facts)).collect()
}

/// The queues that are used: for each name, that of the last API.
fn queues_that_count(
    store: &Store,
    duplicate: impl FnMut(&Name, Duplicate),
) -> Vec<&Arc<QueueFacts>> {
    let queues = last_of_each(&store.queues, |_, _| true, duplicate).into_iter();
    queues.map(|(_, _, facts)| facts).collect()
}

/// For each name among APIs that share names, the object of the last API, in order of names.
// Parity: differs, see docs/parity.md#j2.
fn last_of_each<K: Ord + Clone, F: Fact>(
    table: &Table<(K, GroupVersion), F>,
    share_names: impl Fn(GroupVersion, GroupVersion) -> bool,
    mut duplicate: impl FnMut(&K, Duplicate),
) -> Vec<(&K, GroupVersion, &Arc<F>)> {
    let mut last: Vec<(&K, GroupVersion, &Arc<F>)> = Vec::with_capacity(table.len());
    for ((key, version), facts) in table.iter() {
        // Keys are in order of name and API, and APIs that share names are adjacent in that order.
        match last.last_mut() {
            Some((known, api, of_known)) if *known == key && share_names(*api, *version) => {
                duplicate(key, Duplicate { ignored: *api, counts: *version });
                (*api, *of_known) = (*version, facts);
            }
            _ => last.push((key, *version, facts)),
        }
    }
    last
}

/// Every resource that a node has, a class of devices stands for, or a queue limits. A resource that only pods name gets no column: any
/// user may create a pod, and every ledger has a cell for each column.
// Parity: see docs/parity.md#r7.
fn dimensions_of(store: &Store) -> Dimensions {
    let nodes = store.nodes.values().map(|facts| &facts.allocatable);
    let queues = store
        .queues
        .values()
        .flat_map(|facts| [&facts.capability, &facts.deserved, &facts.guarantee]);
    let names: BTreeSet<&Name> =
        nodes.chain(queues).flat_map(|list| list.iter().map(|(name, _)| name)).collect();
    Dimensions::with_devices(names.into_iter().cloned(), &of_devices(store))
}

fn nodes_of(store: &Store, dimensions: &Dimensions) -> Nodes {
    let n_nodes = store.nodes.len();
    let mut allocatable = Ledger::zero(dimensions.len(), n_nodes);
    let mut idle = allocatable.clone();
    for (row, facts) in allocatable.ids().zip(store.nodes.values()) {
        allocatable[row].copy_from_slice(&dimensions.vector(&facts.allocatable));
        idle[row].copy_from_slice(&dimensions.idle(&allocatable[row]));
    }
    let zero = Ledger::zero(dimensions.len(), n_nodes);
    Nodes {
        facts: store.nodes.values().cloned().collect(),
        allocatable,
        idle,
        releasing: zero.clone(),
        pipelined: zero.clone(),
        foreign: zero.clone(),
        used: zero,
        scoring: Column::filled([0; 2], n_nodes),
        tasks: Column::filled(Vec::new(), n_nodes),
        columns: KeptColumns::default(),
        kept: KeptAvailable::default(),
    }
}
