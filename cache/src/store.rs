//! The facts that the API server has reported, by kind, without any sums.
//!
//! Nothing here depends on the order of events, with one exception: the queue from which a pod was bound is
//! what the first version with a node says, so that no later change of an annotation can move the pod to
//! another queue. Sums are computed in the snapshot; a relist, a repeated or a reordered event cannot corrupt
//! anything.
//!
//! Upstream does the same work incrementally in `pkg/scheduler/cache/event_handlers.go`, and drifts.

use std::{collections::BTreeMap, ops::Bound, sync::Arc};

use kube_batch_model::{
    facts::{
        class::PodTemplate,
        fact::Fact,
        group::GroupFacts,
        metadata::MetadataPrefixes,
        pod::{Interner, TaskFacts},
        queue::QueueFacts,
    },
    group_version::{GroupVersion, Join, ServedApis},
    name::{Name, ObjectKey},
    selector::Labels,
};

use crate::changes::{Changes, Former};

/// The effect of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// No stored fact changed: a heartbeat, or a repeated event.
    Nothing,
    /// Only fields that the scheduler writes itself: status, conditions, nominations.
    Written,
    /// Something a decision can depend on.
    Facts,
}

/// The facts of one kind.
#[derive(Clone, Debug)]
pub struct Table<K, F> {
    rows: BTreeMap<K, Arc<F>>,
    changes: Changes<K>,
    former: Former<K, Arc<F>>,
    /// Number of changes that may concern other jobs than the object's own.
    generation: u64,
}

impl<K, F> Default for Table<K, F> {
    fn default() -> Self {
        Self {
            rows: BTreeMap::new(),
            changes: Changes::default(),
            former: Former::default(),
            generation: 0,
        }
    }
}

/// Equal if the same facts are stored.
impl<K: PartialEq, F: PartialEq> PartialEq for Table<K, F> {
    fn eq(&self, other: &Self) -> bool {
        self.rows == other.rows
    }
}

impl<K: Ord + Clone, F: Fact> Table<K, F> {
    /// Stores the facts of an object, new or changed.
    pub fn apply(&mut self, key: K, facts: F) -> Change {
        let change = match self.rows.get(&key) {
            Some(known) if **known == facts => return Change::Nothing,
            Some(known) if known.decides_like(&facts) => Change::Written,
            Some(_) | None => Change::Facts,
        };
        let is_same = change == Change::Written;
        self.insert(key, Arc::new(facts), is_same);
        change
    }
}

impl<K: Ord + Clone, F: Fact> Table<K, F> {
    /// Stores facts that are already in an `Arc`.
    pub fn share(&mut self, key: K, facts: Arc<F>) {
        self.insert(key, facts, false);
    }

    /// Stores facts; `is_same` says that they decide like those that were stored.
    fn insert(&mut self, key: K, facts: Arc<F>, is_same: bool) {
        self.changes.add(&key);
        let is_own = facts.concerns_only_its_job();
        let before = self.rows.insert(key.clone(), Arc::clone(&facts));
        let left_something = before.as_ref().is_some_and(|old| old.leaves_something(Some(&facts)));
        if !is_same && (!is_own || left_something) {
            self.generation += 1;
        }
        self.former.add(&key, before, self.rows.len());
    }

    /// Removes an object; returns whether it was known.
    pub fn delete(&mut self, key: &K) -> bool {
        self.changes.add(key);
        let before = self.rows.remove(key);
        if before.as_ref().is_some_and(|before| before.leaves_something(None)) {
            self.generation += 1;
        }
        let was_known = before.is_some();
        self.former.add(key, before, self.rows.len());
        was_known
    }

    /// Copies at most `n` changes to a table that has all earlier ones, and returns their number.
    pub(crate) fn copy_changes(&mut self, to: &mut Self, n: usize) -> usize {
        let Self { rows, changes, generation, .. } = self;
        to.generation = *generation;
        changes.take(n, |key| {
            let before = match rows.get(&key) {
                Some(facts) => to.rows.insert(key.clone(), Arc::clone(facts)),
                None => to.rows.remove(&key),
            };
            to.former.add(&key, before, to.rows.len());
        })
    }

    /// The facts that changed since the last call, before they did: `None` in the map is a new object. `None`
    /// if anything may have changed, as before the first call.
    pub(crate) fn take_former(&mut self) -> Option<BTreeMap<K, Option<Arc<F>>>> {
        self.former.take()
    }

    /// Removes those of the first `n` objects after a key, or from the start, that are not to be kept. All
    /// objects in one go would hold a lock for too long. Returns whether any were removed, and the key
    /// after which to go on.
    pub fn retain_some(
        &mut self,
        after: Option<&K>,
        n: usize,
        keep: impl Fn(&K) -> bool,
    ) -> (bool, Option<K>) {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let range: Vec<&K> =
            self.rows.range((start, Bound::Unbounded)).map(|(key, _)| key).take(n).collect();
        let last = (range.len() == n).then(|| range.last().copied().cloned()).flatten();
        let absent: Vec<K> = range.into_iter().filter(|key| !keep(key)).cloned().collect();
        for key in &absent {
            self.delete(key);
        }
        (!absent.is_empty(), last)
    }

    fn share_all(&self) -> Self {
        Self { rows: self.rows.clone(), ..Self::default() }
    }

    fn record_changes(&mut self) {
        self.changes = Changes::recorded(self.rows.keys().cloned());
    }

    fn absorb(&mut self, other: Self) {
        for (key, facts) in other.rows {
            self.share(key, facts);
        }
    }

    /// The facts of an object.
    pub fn get(&self, key: &K) -> Option<&Arc<F>> {
        self.rows.get(key)
    }

    /// All facts, in key order.
    pub fn values(&self) -> impl Iterator<Item = &Arc<F>> {
        self.rows.values()
    }

    /// Keys and facts, in key order.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &Arc<F>)> {
        self.rows.iter()
    }

    /// Number of objects.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

/// Facts that the store keeps in a table.
pub trait Stored: Fact + Sized {
    /// The key by which the table is sorted: the name of an object, its namespace and name, or one of these and its API.
    type Key: Clone + Ord;

    /// The key of these facts.
    fn key(&self) -> Self::Key;

    /// The table of such facts.
    fn table(store: &mut Store) -> &mut Table<Self::Key, Self>;
}

macro_rules! declare_store {
    ($($(#[$doc:meta])* $table:ident: $record:ident($facts:ty), $key:ty = |$of:ident| $by:expr;)*) => {
        /// All facts.
        #[derive(Debug, Default)]
        pub struct Store {
            interner: Interner,
            served: ServedApis,
            unreadable: ServedApis,
            /// What is added to the generations of the tables: those of a store that was written down are not known
            /// apart.
            earlier: u64,
            $( $(#[$doc])* pub $table: Table<$key, $facts>, )*
        }

        $( impl Stored for $facts {
            type Key = $key;

            fn key(&self) -> Self::Key {
                let $of = self;
                $by
            }

            fn table(store: &mut Store) -> &mut Table<Self::Key, Self> {
                &mut store.$table
            }
        } )*

        impl Store {
            fn absorb_tables(&mut self, other: Self) {
                $( self.$table.absorb(other.$table); )*
            }

            /// Records from now on what changes, for [`Self::copy_changes`].
            pub fn record_changes(&mut self) {
                $( self.$table.record_changes(); )*
            }

            /// Copies at most `n` changes to a store that has all earlier ones, and returns their number. If
            /// it is less than `n`, both have the same facts.
            pub fn copy_changes(&mut self, to: &mut Self, n: usize) -> usize {
                to.served = self.served;
                to.unreadable = self.unreadable;
                to.earlier = self.earlier;
                let mut left = n;
                $( left -= self.$table.copy_changes(&mut to.$table, left); )*
                n - left
            }

            /// A copy of the facts, which are shared: it costs a pointer for each object.
            pub fn share(&self) -> Self {
                let Self { served, unreadable, .. } = *self;
                let (interner, earlier) = (Interner::default(), 0);
                Self { interner, served, unreadable, earlier, $( $table: self.$table.share_all() ),* }
            }

            /// Number of objects of all kinds.
            pub fn len(&self) -> usize {
                0 $( + self.$table.len() )*
            }

            /// A number that grows whenever anything but a waiting pod or a PodGroup has changed, as far as
            /// decisions can depend on it.
            pub const fn generation(&self) -> u64 {
                self.earlier $( .wrapping_add(self.$table.generation) )*
            }

            /// Continues the generations of a store that was written down.
            pub(crate) const fn set_generation(&mut self, generation: u64) {
                self.earlier = 0;
                self.earlier = generation.wrapping_sub(self.generation());
            }
        }
    };
}

each_table!(with pods: declare_store);

impl Store {
    /// An empty store, which keeps the labels and annotations under these prefixes.
    pub fn new(prefixes: MetadataPrefixes) -> Self {
        Self { interner: Interner::new(prefixes), ..Self::default() }
    }

    /// Stores the facts of an object, new or changed. Of a known object, [`Fact::keep`] says which fields stay.
    pub fn put<F: Stored>(&mut self, mut facts: F) -> Change {
        let key = facts.key();
        let table = F::table(self);
        if let Some(earlier) = table.get(&key) {
            facts.keep(earlier);
        }
        table.apply(key, facts)
    }

    /// Stores facts that are already in an `Arc`.
    pub(crate) fn put_shared<F: Stored>(&mut self, facts: Arc<F>) {
        F::table(self).share(facts.key(), facts);
    }

    /// The interner, through which the facts of many objects share equal names, labels and templates.
    pub const fn interner_mut(&mut self) -> &mut Interner {
        &mut self.interner
    }

    /// A PodGroup that pods name in this way; of several, that of the last API.
    // Parity: see docs/parity.md#j2.
    pub fn group(&self, join: Join, key: &ObjectKey) -> Option<&Arc<GroupFacts>> {
        last(|version| self.groups.get(&(key.clone(), version)).filter(|_| version.join() == join))
    }

    /// A PodGroup of this name, however pods name it; of several, that of the last API.
    pub fn group_of_any_api(&self, key: &ObjectKey) -> Option<&Arc<GroupFacts>> {
        last(|version| self.groups.get(&(key.clone(), version)))
    }

    /// A queue; of several, that of the last API.
    // Parity: see docs/parity.md#j2.
    pub fn queue(&self, name: &Name) -> Option<&Arc<QueueFacts>> {
        last(|version| self.queues.get(&(name.clone(), version)))
    }

    /// The APIs that are served.
    pub const fn served(&self) -> ServedApis {
        self.served
    }

    /// Sets whether an API is served. That can change the job of many pods.
    pub const fn set_served(&mut self, version: GroupVersion, is_served: bool) -> Change {
        if self.served.set(version, is_served) { Change::Facts } else { Change::Nothing }
    }

    /// The APIs that are served and cannot be read: what is stored of them may be old.
    pub const fn unreadable(&self) -> ServedApis {
        self.unreadable
    }

    /// Sets whether an API that is served can be read. Jobs with its PodGroups wait while it cannot.
    // Parity: see docs/parity.md#k10.
    pub const fn set_readable(&mut self, version: GroupVersion, is_readable: bool) -> Change {
        if self.unreadable.set(version, !is_readable) { Change::Facts } else { Change::Nothing }
    }

    /// The API that cannot be read, of which a PodGroup is or may be that pods name in this way.
    pub fn unreadable_api(&self, join: Join, group: Option<&GroupFacts>) -> Option<GroupVersion> {
        if self.unreadable.is_empty() {
            return None;
        }
        let is_of = |version: &GroupVersion| match group {
            Some(group) => group.version == *version,
            None => version.join() == join,
        };
        GroupVersion::ALL
            .into_iter()
            .find(|version| self.unreadable.has(*version) && is_of(version))
    }

    /// Stores a pod from facts, labels and template.
    pub fn restore_pod(
        &mut self,
        facts: TaskFacts,
        labels: Arc<Labels>,
        template: Arc<PodTemplate>,
    ) {
        let labels = self.interner.labels(labels);
        let template = self.interner.template(template);
        let facts = TaskFacts { labels, template, ..facts };
        self.pods.share(facts.key.clone(), Arc::new(facts));
    }

    /// Adds all facts of another store, which replace existing ones.
    pub fn absorb(&mut self, mut other: Self) {
        for facts in std::mem::take(&mut other.pods).rows.into_values() {
            let (labels, template) = (facts.labels.share(), facts.template.share());
            self.restore_pod(Arc::unwrap_or_clone(facts), labels, template);
        }
        self.absorb_tables(other);
    }

    /// Whether there are no objects.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Frees a part of the names, labels and templates that no pod uses any more, another one with each
    /// call.
    pub fn sweep_some(&mut self) {
        self.interner.sweep_some();
    }
}

fn last<F>(of: impl Fn(GroupVersion) -> Option<F>) -> Option<F> {
    GroupVersion::ALL.into_iter().rev().find_map(of)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(status: Value, cpu: &str) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "a", "namespace": "ns", "uid": "u", "resourceVersion": "7"},
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]},
            "status": status,
        })
    }

    #[test]
    fn only_changes_that_matter_to_decisions_count() {
        let mut store = Store::default();
        let condition = |time: &str| {
            json!({"phase": "Pending", "conditions": [{
                "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                "message": "no room", "lastProbeTime": time,
            }]})
        };
        let mut apply = |status, cpu| store.put_pod(pod(status, cpu));
        assert_eq!(apply(json!({"phase": "Pending"}), "1"), Change::Facts);
        assert_eq!(apply(json!({"phase": "Pending"}), "1"), Change::Nothing);
        assert_eq!(apply(condition("2025-01-01T00:00:00Z"), "1"), Change::Written);
        assert_eq!(apply(condition("2025-01-02T00:00:00Z"), "1"), Change::Nothing);
        assert_eq!(apply(condition("2025-01-02T00:00:00Z"), "2"), Change::Facts);
        assert_eq!(apply(json!({"phase": "Running"}), "2"), Change::Facts);
    }

    #[test]
    fn the_newer_api_group_wins() {
        let mut store = Store::default();
        let (key, name) = (ObjectKey::new("ns", "a"), Name::from("a"));
        assert!(store.group(Join::Annotation, &key).is_none() && store.queue(&name).is_none());
        let [older, newer] = GroupVersion::OWN;
        // In any order of events.
        for version in [older, newer, older] {
            store.put_group(version, json!({"metadata": {"name": "a", "namespace": "ns"}}));
            store.put_queue(version, json!({"metadata": {"name": "a"}}));
            let newest = if store.groups.iter().count() == 1 { older } else { newer };
            assert_eq!(
                store.group(Join::Annotation, &key).map(|facts| facts.version),
                Some(newest)
            );
            assert_eq!(store.queue(&name).map(|facts| facts.version), Some(newest));
        }
    }

    #[test]
    fn objects_missing_from_a_list_are_removed() {
        let mut store = Store::default();
        store.put_pod(pod(json!({}), "1"));
        let key = ObjectKey::new("ns", "a");
        assert_eq!(store.pods.retain_some(None, 2, |_| true), (false, None));
        assert_eq!(store.pods.retain_some(None, 1, |_| true), (false, Some(key.clone())));
        assert_eq!(store.pods.retain_some(Some(&key), 1, |_| false), (false, None));
        assert_eq!(store.pods.retain_some(None, 2, |_| false), (true, None));
        assert!(store.pods.get(&key).is_none());
    }
}
