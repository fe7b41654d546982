//! Applies what has changed to the last snapshot.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use kube_batch_model::{
    cluster::{Cluster, FormerRow},
    column::QueueIdx,
    facts::{device::claim::ResourceClaimFacts, pod::TaskFacts},
    group_version::ServedApis,
    name::{JobKey, Name, ObjectKey},
    problem::Ignored,
};

use super::{
    blocks::{Block, BlockRows, Dirty},
    changed::Changed,
    world::{row_of_node, write_budgets, write_nodes, write_queues},
    write::{JobIndex, Writer},
};
use crate::{
    assumed::Assumed,
    snapshot::{
        RejectedTask, Reusable, Snapshot, SnapshotOptions,
        devices::{devices_of, is_active, published_devices},
        duplicates, fold,
        foreign_selectors::rank,
        hints::{NamedGroup, misplaced_group, named_group},
        jobs::{JobMaker, Membership, membership},
        rows::{OfGroup, RowMaker},
        storage::storage_of,
    },
    store::Store,
};

/// If there are this many classes more than twice those of the last snapshot from scratch, most are unused.
/// Guessed.
const MAX_UNUSED_CLASSES: usize = 1_000;

/// The last snapshot, and what it was made of.
#[derive(Debug)]
pub(super) struct Kept {
    options: SnapshotOptions,
    served: ServedApis,
    unreadable: ServedApis,
    /// `None` until a cycle gives it back.
    cluster: Option<Cluster>,
    reusable: Reusable,
    /// How many pods of other schedulers on nodes name each PodGroup: they are tasks of its job if it exists.
    named_by_others: HashMap<NamedGroup, usize>,
    jobs: JobIndex,
    ignored: Vec<Ignored>,
    /// Pods whose rows were changed after the snapshot.
    lent: Vec<ObjectKey>,
    /// The number of classes of the last snapshot from scratch.
    n_classes: usize,
}

impl Kept {
    /// Takes a snapshot from scratch.
    pub(super) fn from_scratch(
        store: &Store,
        assumed: &Assumed,
        options: &SnapshotOptions,
    ) -> (Self, Snapshot) {
        let (snapshot, reusable) = fold(store, assumed, options);
        let mut named_by_others = HashMap::new();
        for group in store.pods.values().filter_map(|facts| named_on_node(facts, store, options)) {
            *named_by_others.entry(group).or_default() += 1;
        }
        let kept = Self {
            options: options.clone(),
            served: store.served(),
            unreadable: store.unreadable(),
            cluster: None,
            reusable,
            named_by_others,
            jobs: JobIndex::of(&snapshot.cluster),
            ignored: snapshot.ignored.clone(),
            lent: lent(&snapshot),
            n_classes: snapshot.cluster.classes.template.len(),
        };
        (kept, snapshot)
    }

    pub(super) fn is_for(&self, options: &SnapshotOptions) -> bool {
        self.options == *options
    }

    pub(super) fn keep(&mut self, mut cluster: Cluster) {
        cluster.jobs.incomplete_for.fill(None);
        cluster.jobs.is_torn.fill(false);
        cluster.terminating.clear();
        cluster.jobs.former = cluster.jobs.key.ids().map(|row| FormerRow(Some(row))).collect();
        self.cluster = Some(cluster);
    }

    /// The next snapshot; `None` if it has to be taken from scratch.
    pub(super) fn follow(
        &mut self,
        store: &Store,
        assumed: &Assumed,
        changed: &Changed,
    ) -> Option<Snapshot> {
        let mut cluster = self.cluster.take()?;
        let has_room = cluster.classes.template.len() <= 2 * self.n_classes + MAX_UNUSED_CLASSES;
        let reads_namespaces = !cluster.matchers.is_empty();
        if !has_room
            || self.served != store.served()
            || self.unreadable != store.unreadable()
            || changed.priority_classes
            || changed.device_classes
            || !changed.namespaces.is_empty() && reads_namespaces
            || changed.queues_of_namespaces
        {
            return None;
        }
        write_nodes(&mut cluster, store, &changed.nodes)?;
        write_queues(&mut cluster, store, changed)?;
        write_budgets(&mut cluster, store, changed)?;
        if changed.storage {
            cluster.storage = Arc::new(storage_of(store, assumed));
        }
        if changed.slices
            || !changed.resource_claims.is_empty()
            || !changed.claims_in_flight.is_empty()
        {
            let published = match changed.slices {
                true => published_devices(store),
                false => Arc::clone(&cluster.devices.published),
            };
            cluster.devices = Arc::new(devices_of(store, assumed, published));
        }
        if !(changed.groups.is_empty() && changed.queues.is_empty()) {
            self.ignored = duplicates(store);
        }
        let dirty = self.dirty_blocks(&mut cluster, store, changed)?;
        let nodes = std::mem::take(&mut cluster.nodes.facts);
        let node_row = |name: &Name| row_of_node(&nodes, name);
        let options = self.options.clone();
        let queues = cluster.queues.facts.iter();
        let queue_rows: HashMap<Name, QueueIdx> =
            queues.map(|(row, queue)| (queue.name.clone(), row)).collect();
        let queue_row = |name: &Name| queue_rows.get(name).copied();
        let (node_row, queue_row) = (&node_row, &queue_row);
        let maker = RowMaker { store, assumed, options: &options, node_row, queue_row };
        if !dirty.is_empty() {
            let writer = Writer {
                job_maker: JobMaker::new(store, &options),
                cluster: &mut cluster,
                reusable: &mut self.reusable,
                jobs: &mut self.jobs,
                maker: &maker,
            };
            writer.write(dirty);
        }
        let rejected = self.rejected(&cluster, &maker);
        cluster.nodes.facts = nodes;
        let ignored = self.ignored.clone();
        let snapshot = Snapshot { cluster, ignored, rejected, generation: store.generation() };
        self.lent = lent(&snapshot);
        Some(snapshot)
    }

    /// What has changed in each block.
    fn dirty_blocks(
        &mut self,
        cluster: &mut Cluster,
        store: &Store,
        changed: &Changed,
    ) -> Option<BTreeMap<Block, Dirty>> {
        let mut dirty = BTreeMap::<Block, Dirty>::new();
        for (group, version) in changed.groups.keys() {
            let named = (version.join(), group.clone());
            let key = JobKey::Group(version.join(), group.clone());
            let before = self.jobs.row(&key).and_then(|row| cluster.jobs.group[row].as_ref());
            let after = store.group(version.join(), group);
            if before.is_some() != after.is_some() && self.named_by_others.contains_key(&named) {
                return None;
            }
            let is_reclassified = OfGroup::new(before) != OfGroup::new(after);
            dirty.entry(Some(key)).or_default().is_reclassified |= is_reclassified;
        }
        if changed.composites {
            for (job, group) in cluster.jobs.group.iter() {
                if group.as_ref().is_some_and(|group| group.parent.is_some()) {
                    dirty.entry(Some(cluster.jobs.key[job].clone())).or_default();
                }
            }
        }
        let mut uids = BTreeSet::new();
        self.follow_batch_jobs(store, changed, &mut dirty, &mut uids);
        let mut claims: BTreeSet<ObjectKey> = changed.resource_claims.keys().cloned().collect();
        for (key, before) in &changed.pods {
            let after = store.pods.get(key);
            if let Some(facts) = after.filter(|facts| self.block_of(store, facts).is_some()) {
                let matchers = &mut cluster.matchers;
                self.reusable
                    .classifier
                    .add_template(matchers, store, &facts.template)
                    .then_some(())?;
            }
            let pod = PodChange { before: before.as_ref(), after };
            if self.moves_bound(store, pod) {
                return None;
            }
            self.follow_claims(pod, &mut claims);
            self.follow_hints(store, pod, &mut dirty, &mut uids);
            self.follow_pod(store, pod, &mut dirty);
        }
        let users = claims.iter().flat_map(|claim| self.reusable.claim_users.pods(claim));
        let owners: Vec<ObjectKey> =
            changed.resource_claims.iter().flat_map(owners(store)).collect();
        let touched = changed.touched.iter().chain(&self.lent).chain(users).chain(&owners);
        let touched: BTreeSet<_> = touched.filter(|key| !changed.pods.contains_key(key)).collect();
        for facts in touched.into_iter().filter_map(|key| store.pods.get(key)) {
            if let Some(block) = self.block_of(store, facts) {
                dirty.entry(block).or_default().changed.push(Arc::clone(facts));
            }
        }
        for key in self.jobs.with_controllers(&uids) {
            dirty.entry(Some(key.clone())).or_default();
        }
        Some(dirty)
    }

    /// Records changed Jobs of `batch`. `uids` are those of controllers about which something has changed.
    fn follow_batch_jobs(
        &mut self,
        store: &Store,
        changed: &Changed,
        dirty: &mut BTreeMap<Block, Dirty>,
        uids: &mut BTreeSet<Name>,
    ) {
        for (key, before) in &changed.batch_jobs {
            for (job, is_new) in [(before.as_ref(), false), (store.batch_jobs.get(key), true)] {
                let Some(job) = job else { continue };
                let hints = &mut self.reusable.hints;
                if is_new {
                    hints.batch_job(job, store);
                } else {
                    hints.forget_batch_job(job, store);
                }
                uids.insert(job.uid.clone());
                let named = job.group(store.served());
                let named = named.map(|(join, group)| JobKey::Group(join, group));
                if let Some(key) = named.filter(|key| self.jobs.row(key).is_some()) {
                    dirty.entry(Some(key)).or_default();
                }
            }
        }
    }

    /// Whether a changed pod may change which templates are above the bound on selectors.
    fn moves_bound(&self, store: &Store, PodChange { before, after }: PodChange<'_>) -> bool {
        let classifier = &self.reusable.classifier;
        let ranked = [before, after].map(|facts| {
            let facts = facts.filter(|facts| classifier.counts_for_bound(facts))?;
            let is_present = self.block_of(store, facts).is_some();
            is_present.then(|| (facts.template.id(), rank(facts)))
        });
        ranked[0] != ranked[1]
    }

    /// The block that the task of a pod is in; `None` if the pod is not in the snapshot.
    fn block_of(&self, store: &Store, facts: &TaskFacts) -> Option<Block> {
        match membership(facts, store, &self.options) {
            Membership::Gone | Membership::Absent => None,
            Membership::NodeOnly => Some(None),
            Membership::Job(key) => Some(Some(key)),
        }
    }

    /// Records a changed pod in its block.
    fn follow_pod(
        &self,
        store: &Store,
        PodChange { before, after }: PodChange<'_>,
        dirty: &mut BTreeMap<Block, Dirty>,
    ) {
        let [from, to] = [before, after].map(|facts| Some((facts?, self.block_of(store, facts?)?)));
        match (from, to) {
            (Some((before, from)), Some((after, to)))
                if from == to && before.created == after.created =>
            {
                dirty.entry(to).or_default().changed.push(Arc::clone(after));
            }
            (from, to) => {
                if let Some((facts, block)) = from {
                    dirty.entry(block).or_default().removed.push(Arc::clone(facts));
                }
                if let Some((facts, block)) = to {
                    dirty.entry(block).or_default().added.push(Arc::clone(facts));
                }
            }
        }
    }

    /// Records which claims for devices a changed pod names; `claims` are those that others may share.
    fn follow_claims(
        &mut self,
        PodChange { before, after }: PodChange<'_>,
        claims: &mut BTreeSet<ObjectKey>,
    ) {
        let is_same = |(before, after): (&Arc<TaskFacts>, &Arc<TaskFacts>)| {
            is_active(before) == is_active(after) && before.device_claims == after.device_claims
        };
        if before.zip(after).is_some_and(is_same) {
            return;
        }
        let users = &mut self.reusable.claim_users;
        before.into_iter().for_each(|facts| claims.extend(users.remove(facts)));
        after.into_iter().for_each(|facts| claims.extend(users.add(facts)));
    }

    /// Records a changed pod in what jobs know of pods that are not theirs. `uids` are those of controllers
    /// about whose pods something has changed.
    fn follow_hints(
        &mut self,
        store: &Store,
        PodChange { before, after }: PodChange<'_>,
        dirty: &mut BTreeMap<Block, Dirty>,
        uids: &mut BTreeSet<Name>,
    ) {
        for (facts, is_new) in [(before, false), (after, true)] {
            let Some(facts) = facts.filter(|facts| !facts.ended_in_deletion) else { continue };
            match self.block_of(store, facts) {
                None => {
                    let group = named_group(facts, store);
                    match &group {
                        Some(group) if !is_new => {
                            self.reusable.hints.forget_other_scheduler(group, facts);
                        }
                        _ => self.reusable.hints.other_scheduler(group.clone(), facts),
                    }
                    // The job exists if it has a PodGroup or pods of ours.
                    let key = group.map(|(join, group)| JobKey::Group(join, group));
                    if let Some(key) = key.filter(|key| self.jobs.row(key).is_some()) {
                        dirty.entry(Some(key)).or_default();
                    }
                }
                Some(Some(JobKey::Shadow { .. } | JobKey::Pod { .. })) => {
                    if is_new {
                        self.reusable.hints.not_annotated(facts);
                    } else {
                        self.reusable.hints.forget_not_annotated(facts);
                    }
                    uids.extend(facts.controller.as_ref().map(|controller| controller.uid.clone()));
                    let key = misplaced_group(facts);
                    let key = key.map(|((join, group), _)| JobKey::Group(join, group));
                    if let Some(key) = key.filter(|key| self.jobs.row(key).is_some()) {
                        dirty.entry(Some(key)).or_default();
                    }
                }
                Some(_) => {}
            }
            let Some(group) = named_on_node(facts, store, &self.options) else { continue };
            let n_pods = self.named_by_others.entry(group.clone()).or_default();
            *n_pods = if is_new { *n_pods + 1 } else { *n_pods - 1 };
            if *n_pods == 0 {
                self.named_by_others.remove(&group);
            }
        }
    }

    /// The tasks whose bindings the API server rejected, in row order.
    fn rejected(&self, cluster: &Cluster, maker: &RowMaker<'_>) -> Vec<RejectedTask> {
        let mut rejected: Vec<RejectedTask> = Vec::new();
        for (uid, key) in maker.assumed.rejected() {
            let known = maker.store.pods.get(key).filter(|facts| facts.uid == *uid);
            let place = known.and_then(|facts| Some((facts, self.block_of(maker.store, facts)?)));
            let Some((facts, block)) = place else { continue };
            let rows = self.rows_of(cluster, &block);
            rejected.extend(maker.rejected(rows.row_of(cluster, facts), facts));
        }
        rejected.sort_by_key(|rejected| rejected.task);
        rejected
    }

    fn rows_of(&self, cluster: &Cluster, block: &Block) -> BlockRows {
        match block {
            Some(key) => BlockRows::of_job(cluster, self.jobs.row(key)),
            None => BlockRows::jobless(cluster),
        }
    }
}

/// The facts of a pod before and after it changed.
#[derive(Clone, Copy)]
struct PodChange<'a> {
    before: Option<&'a Arc<TaskFacts>>,
    after: Option<&'a Arc<TaskFacts>>,
}

/// The pods for whose extended resources a changed claim was made.
fn owners<'a>(
    store: &'a Store,
) -> impl Fn((&'a ObjectKey, &'a Option<Arc<ResourceClaimFacts>>)) -> Vec<ObjectKey> {
    |(key, before)| {
        let states = before.iter().chain(store.resource_claims.get(key));
        let pods = states.filter_map(|claim| claim.extended_for.clone());
        pods.map(|name| ObjectKey { namespace: key.namespace.clone(), name }).collect()
    }
}

/// The PodGroup that a pod of another scheduler names that is on a node.
fn named_on_node(
    facts: &TaskFacts,
    store: &Store,
    options: &SnapshotOptions,
) -> Option<NamedGroup> {
    let is_other = facts.node.is_some() && !options.scheduler_names.contains(&facts.scheduler);
    named_group(facts, store).filter(|_| is_other)
}

/// The pods whose nominations are changed after the snapshot.
fn lent(snapshot: &Snapshot) -> Vec<ObjectKey> {
    let tasks = &snapshot.cluster.tasks;
    snapshot.rejected.iter().map(|rejected| tasks.facts[rejected.task].key.clone()).collect()
}
