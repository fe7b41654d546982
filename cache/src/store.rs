//! The facts that the API server has reported, by kind, without any sums.
//!
//! Nothing here depends on the order of events, with one exception: the queue from which a pod was bound is
//! what the first version with a node says, so that no later change of an annotation can move the pod to
//! another queue. Sums are computed in the snapshot; a relist, a repeated or a reordered event cannot corrupt
//! anything.
//!
//! Upstream does the same work incrementally in `pkg/scheduler/cache/event_handlers.go`, and drifts.

use std::{collections::BTreeMap, fmt::Display, ops::Bound, sync::Arc};

use k8s_openapi::{
    Resource,
    api::{
        core::v1::{Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod},
        policy::v1::PodDisruptionBudget,
        resource::v1::{DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice},
        scheduling::{v1::PriorityClass, v1alpha3::CompositePodGroup},
        storage::v1::{CSIDriver, CSINode, StorageClass},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube_batch_api::{
    crd::{PodGroupSpec, QueueSpec},
    dialect::{self, RawObject},
    read,
};
use kube_batch_model::{
    api_version::{ApiVersion, Join, ServedApis},
    facts::{
        FactError,
        class::PodTemplate,
        composite::CompositeFacts,
        device::{
            claim::ResourceClaimFacts, class::DeviceClassFacts, slice::SliceFacts,
            taint::DeviceTaintRuleFacts,
        },
        group::GroupFacts,
        metadata::MetadataPrefixes,
        node::{NamespaceFacts, NodeFacts},
        pod::{Interner, TaskFacts},
        policy::{BudgetFacts, PriorityClassFacts},
        queue::QueueFacts,
        size::Bounds,
        storage::{ClaimFacts, CsiDriverFacts, CsiNodeFacts, StorageClassFacts, VolumeFacts},
    },
    name::{Name, ObjectKey},
    object_status::{PodGroupStatus, QueueStatus},
    selector::Labels,
    status::TaskStatus,
};
use serde::Serialize;
use serde_json::json;

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

/// The facts of an object.
pub trait Fact: PartialEq + Serialize {
    /// The most that is kept of an object. Kinds without a namespace are written by administrators, nodes and
    /// drivers.
    const BOUNDS: Bounds = Bounds::ADMINISTRATORS;

    /// Whether both lead to the same decisions, ignoring fields that the scheduler writes.
    fn decides_like(&self, other: &Self) -> bool {
        self == other
    }

    /// Whether the object takes and changes nothing that another job could use: a pod that waits, a claim that was
    /// made for it, or a PodGroup.
    fn concerns_only_its_job(&self) -> bool {
        false
    }
}

impl Fact for NodeFacts {}
impl Fact for NamespaceFacts {}
impl Fact for PriorityClassFacts {}
impl Fact for BudgetFacts {
    const BOUNDS: Bounds = Bounds::USERS;
}
impl Fact for VolumeFacts {}
impl Fact for ClaimFacts {
    const BOUNDS: Bounds = Bounds::USERS;
}
impl Fact for StorageClassFacts {}
impl Fact for CsiNodeFacts {}
impl Fact for CsiDriverFacts {}

impl Fact for ResourceClaimFacts {
    const BOUNDS: Bounds = Bounds::WITH_PARAMETERS;

    /// A claim that was made for a pod, as long as it has no devices. Jobs whose pods name claims that were not made
    /// for them are tried in every cycle.
    fn concerns_only_its_job(&self) -> bool {
        self.allocation.is_none() && self.controller.is_some()
    }
}

impl Fact for SliceFacts {}
impl Fact for DeviceClassFacts {}
impl Fact for DeviceTaintRuleFacts {}
impl Fact for CompositeFacts {
    const BOUNDS: Bounds = Bounds::USERS;
}

impl Fact for TaskFacts {
    // Of a pod that is above them, `read::pod` keeps less.
    const BOUNDS: Bounds = Bounds::USERS;

    fn decides_like(&self, other: &Self) -> bool {
        let Self { nominated_node, nominated_by_other, unscheduled, .. } = self;
        let other = Self {
            nominated_node: nominated_node.clone(),
            nominated_by_other: *nominated_by_other,
            unscheduled: unscheduled.clone(),
            ..other.clone()
        };
        *self == other
    }

    fn concerns_only_its_job(&self) -> bool {
        self.node.is_none() && self.status == TaskStatus::Pending
    }
}

impl Fact for GroupFacts {
    const BOUNDS: Bounds = Bounds::USERS;

    fn concerns_only_its_job(&self) -> bool {
        true
    }

    fn decides_like(&self, other: &Self) -> bool {
        let Self { status, resource_version, .. } = self;
        let (status, resource_version) = (status.clone(), resource_version.clone());
        *self == Self { status, resource_version, ..other.clone() }
    }
}

impl Fact for QueueFacts {
    fn decides_like(&self, other: &Self) -> bool {
        let Self { status, resource_version, .. } = self;
        let (status, resource_version) = (status.clone(), resource_version.clone());
        *self == Self { status, resource_version, ..other.clone() }
    }
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
        let before = self.rows.insert(key.clone(), facts);
        let was_own = before.as_ref().is_none_or(|before| before.concerns_only_its_job());
        if !(is_same || is_own && was_own) {
            self.generation += 1;
        }
        self.former.add(&key, before, self.rows.len());
    }

    /// Removes an object; returns whether it was known.
    pub fn delete(&mut self, key: &K) -> bool {
        self.changes.add(key);
        let before = self.rows.remove(key);
        if before.as_ref().is_some_and(|before| !before.concerns_only_its_job()) {
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

/// All facts.
#[derive(Debug, Default)]
pub struct Store {
    interner: Interner,
    served: ServedApis,
    unreadable: ServedApis,
    /// Pods of every scheduler.
    pub pods: Table<ObjectKey, TaskFacts>,
    /// Nodes.
    pub nodes: Table<Name, NodeFacts>,
    /// Namespaces.
    pub namespaces: Table<Name, NamespaceFacts>,
    /// PodGroups of both API groups.
    pub groups: Table<(ObjectKey, ApiVersion), GroupFacts>,
    /// Composite PodGroups.
    pub composites: Table<ObjectKey, CompositeFacts>,
    /// Queues of both API groups.
    pub queues: Table<(Name, ApiVersion), QueueFacts>,
    /// PriorityClasses.
    pub priority_classes: Table<Name, PriorityClassFacts>,
    /// PodDisruptionBudgets.
    pub budgets: Table<ObjectKey, BudgetFacts>,
    /// PersistentVolumes.
    pub volumes: Table<Name, VolumeFacts>,
    /// PersistentVolumeClaims.
    pub claims: Table<ObjectKey, ClaimFacts>,
    /// StorageClasses.
    pub storage_classes: Table<Name, StorageClassFacts>,
    /// ResourceClaims.
    pub resource_claims: Table<ObjectKey, ResourceClaimFacts>,
    /// ResourceSlices.
    pub resource_slices: Table<Name, SliceFacts>,
    /// DeviceClasses.
    pub device_classes: Table<Name, DeviceClassFacts>,
    /// DeviceTaintRules.
    pub device_taint_rules: Table<Name, DeviceTaintRuleFacts>,
    /// CSINodes.
    pub csi_nodes: Table<Name, CsiNodeFacts>,
    /// CSIDrivers.
    pub csi_drivers: Table<Name, CsiDriverFacts>,
}

/// One method for each kind: parse, then store. An invalid object is not stored, and the object
/// stored before under its name is kept.
macro_rules! apply {
    ($($(#[$doc:meta])* $method:ident($object:ident: &$type:ty) => $table:ident[$key:expr] = $parse:expr;)*) => { $(
        $(#[$doc])*
        ///
        /// # Errors
        ///
        /// [`FactError`] if the object is invalid: it is not stored, and the others are not affected.
        pub fn $method(&mut self, $object: &$type) -> Result<Change, FactError> {
            let facts = $parse($object)?;
            check_size(<$type as Resource>::KIND, &$key(&facts), &facts, $object)?;
            Ok(self.$table.apply($key(&facts), facts))
        }
    )* };
}

/// The methods that do the same for each table.
macro_rules! each_table {
    ($($table:ident)*) => {
        fn absorb_tables(&mut self, other: Self) {
            // Without `..`, so that the compiler reports a missing table.
            let Self { interner: _, served: _, unreadable: _, $($table),* } = other;
            $(self.$table.absorb($table);)*
        }

        /// Records from now on what changes, for [`Self::copy_changes`].
        pub fn record_changes(&mut self) {
            $(self.$table.record_changes();)*
        }

        /// Copies at most `n` changes to a store that has all earlier ones, and returns their number. If
        /// it is less than `n`, both have the same facts.
        pub fn copy_changes(&mut self, to: &mut Self, n: usize) -> usize {
            to.served = self.served;
            to.unreadable = self.unreadable;
            let mut left = n;
            $(left -= self.$table.copy_changes(&mut to.$table, left);)*
            n - left
        }

        /// A copy of the facts, which are shared: it costs a pointer for each object.
        pub fn share(&self) -> Self {
            let Self { served, unreadable, .. } = *self;
            let interner = Interner::default();
            Self { interner, served, unreadable, $($table: self.$table.share_all()),* }
        }

        /// Number of objects of all kinds.
        pub fn len(&self) -> usize {
            0 $(+ self.$table.len())*
        }

        /// A number that grows whenever anything but a waiting pod or a PodGroup has changed, as far as
        /// decisions can depend on it.
        pub const fn generation(&self) -> u64 {
            0 $(+ self.$table.generation)*
        }
    };
}

/// Refuses an object of which more would be kept than the bounds of its kind allow.
fn check_size<F: Fact>(
    kind: impl Display,
    key: &impl Display,
    facts: &F,
    object: &impl Serialize,
) -> Result<(), FactError> {
    match F::BOUNDS.excess(facts, object) {
        None => Ok(()),
        Some(excess) => Err(excess.into_error(format!("{kind} {key}"))),
    }
}

impl Store {
    each_table! {
        nodes namespaces groups composites queues priority_classes budgets volumes claims storage_classes
        csi_nodes csi_drivers resource_claims resource_slices device_classes device_taint_rules pods
    }
}

impl Store {
    /// An empty store, which keeps the labels and annotations under these prefixes.
    pub fn new(prefixes: MetadataPrefixes) -> Self {
        Self { interner: Interner::new(prefixes), ..Self::default() }
    }

    apply! {
        /// Stores a node.
        apply_node(node: &Node) => nodes[|f: &NodeFacts| f.name.clone()] = read::node;
        /// Stores a namespace.
        apply_namespace(namespace: &Namespace) => namespaces[|f: &NamespaceFacts| f.name.clone()]
            = read::namespace;
        /// Stores a PriorityClass.
        apply_priority_class(class: &PriorityClass)
            => priority_classes[|f: &PriorityClassFacts| f.name.clone()]
            = read::priority_class;
        /// Stores a PodDisruptionBudget.
        apply_budget(budget: &PodDisruptionBudget) => budgets[|f: &BudgetFacts| f.key.clone()]
            = read::budget;
        /// Stores a PersistentVolume.
        apply_volume(volume: &PersistentVolume) => volumes[|f: &VolumeFacts| f.name.clone()]
            = read::volume;
        /// Stores a StorageClass.
        apply_storage_class(class: &StorageClass)
            => storage_classes[|f: &StorageClassFacts| f.name.clone()]
            = read::storage_class;
        /// Stores a ResourceClaim.
        apply_resource_claim(claim: &ResourceClaim)
            => resource_claims[|f: &ResourceClaimFacts| f.key.clone()]
            = read::resource_claim;
        /// Stores a ResourceSlice.
        apply_resource_slice(slice: &ResourceSlice)
            => resource_slices[|f: &SliceFacts| f.name.clone()] = read::slice;
        /// Stores a DeviceClass.
        apply_device_class(class: &DeviceClass)
            => device_classes[|f: &DeviceClassFacts| f.name.clone()] = read::device_class;
        /// Stores a DeviceTaintRule.
        apply_device_taint_rule(rule: &DeviceTaintRule)
            => device_taint_rules[|f: &DeviceTaintRuleFacts| f.name.clone()]
            = read::taint_rule;
        /// Stores a composite PodGroup.
        apply_composite(composite: &CompositePodGroup)
            => composites[|f: &CompositeFacts| f.key.clone()] = read::composite;
        /// Stores a CSINode.
        apply_csi_node(node: &CSINode) => csi_nodes[|f: &CsiNodeFacts| f.name.clone()]
            = read::csi_node;
        /// Stores a CSIDriver.
        apply_csi_driver(driver: &CSIDriver) => csi_drivers[|f: &CsiDriverFacts| f.name.clone()]
            = read::csi_driver;
    }

    /// Stores a PersistentVolumeClaim.
    ///
    /// # Errors
    ///
    /// [`FactError`] if the object is invalid: it is not stored, and the others are not affected.
    pub fn apply_claim(&mut self, claim: &PersistentVolumeClaim) -> Result<Change, FactError> {
        let facts = read::claim(claim)?;
        check_size("PersistentVolumeClaim", &facts.key, &facts, claim)?;
        Ok(self.claims.apply(facts.key.clone(), facts.shared(&mut self.interner)))
    }

    /// Stores a pod.
    ///
    /// # Errors
    ///
    /// [`FactError`] if the pod is invalid: it is not stored, and the others are not affected.
    pub fn apply_pod(&mut self, pod: &Pod) -> Result<Change, FactError> {
        self.apply_pod_decided(pod, |_| None)
    }

    /// Stores a pod; `decided` is the queue from which it was bound, if that is known better than the pod says.
    ///
    /// # Errors
    ///
    /// As [`Self::apply_pod`].
    pub fn apply_pod_decided(
        &mut self,
        pod: &Pod,
        decided: impl FnOnce(&TaskFacts) -> Option<Name>,
    ) -> Result<Change, FactError> {
        let mut facts = read::pod(pod, &mut self.interner)?;
        if let Some(queue) = decided(&facts) {
            facts.bound_queue = Some(queue);
        }
        if let Some(earlier) = self.pods.get(&facts.key) {
            facts.keep_binding(earlier);
        }
        Ok(self.pods.apply(facts.key.clone(), facts))
    }

    /// Stores a PodGroup of one of our own APIs.
    ///
    /// # Errors
    ///
    /// As [`Self::apply_group_object`].
    pub fn apply_group(
        &mut self,
        version: ApiVersion,
        meta: &ObjectMeta,
        spec: &PodGroupSpec,
        status: Option<&PodGroupStatus>,
    ) -> Result<Change, FactError> {
        let status = status.map(|status| json!(status));
        let object = RawObject { metadata: meta.clone(), spec: json!(spec), status };
        self.apply_group_object(version, &object)
    }

    /// Stores a queue.
    ///
    /// # Errors
    ///
    /// [`FactError`] if the queue is invalid: it is not stored, and the others are not affected.
    pub fn apply_queue(
        &mut self,
        version: ApiVersion,
        meta: &ObjectMeta,
        spec: &QueueSpec,
        status: Option<&QueueStatus>,
    ) -> Result<Change, FactError> {
        let facts = read::queue(version, meta, spec, status)?;
        check_size("Queue", &facts.name, &facts, &(meta, spec, status))?;
        Ok(self.queues.apply((facts.name.clone(), version), facts))
    }

    /// Stores a PodGroup of any API.
    ///
    /// # Errors
    ///
    /// [`FactError`] if the group is invalid: it is not stored, and the others are not affected.
    pub fn apply_group_object(
        &mut self,
        version: ApiVersion,
        object: &RawObject,
    ) -> Result<Change, FactError> {
        let facts = dialect::of(version).read_group(object, self.interner.prefixes())?;
        let facts = facts.with_short_messages();
        check_size("PodGroup", &facts.key, &facts, object)?;
        Ok(self.groups.apply((facts.key.clone(), version), facts))
    }

    /// Stores a queue of any API.
    ///
    /// # Errors
    ///
    /// [`FactError`] if the queue is invalid: it is not stored, and the others are not affected.
    pub fn apply_queue_object(
        &mut self,
        version: ApiVersion,
        object: &RawObject,
    ) -> Result<Change, FactError> {
        let facts = dialect::of(version).read_queue(object)?;
        check_size("Queue", &facts.name, &facts, object)?;
        Ok(self.queues.apply((facts.name.clone(), version), facts))
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
    pub const fn set_served(&mut self, version: ApiVersion, is_served: bool) -> Change {
        if self.served.set(version, is_served) { Change::Facts } else { Change::Nothing }
    }

    /// The APIs that are served and cannot be read: what is stored of them may be old.
    pub const fn unreadable(&self) -> ServedApis {
        self.unreadable
    }

    /// Sets whether an API that is served can be read. Jobs with its PodGroups wait while it cannot.
    // Parity: see docs/parity.md#k10.
    pub const fn set_readable(&mut self, version: ApiVersion, is_readable: bool) -> Change {
        if self.unreadable.set(version, !is_readable) { Change::Facts } else { Change::Nothing }
    }

    /// The API that cannot be read, of which a PodGroup is or may be that pods name in this way.
    pub fn unreadable_api(&self, join: Join, group: Option<&GroupFacts>) -> Option<ApiVersion> {
        if self.unreadable.is_empty() {
            return None;
        }
        let is_of = |version: &ApiVersion| match group {
            Some(group) => group.version == *version,
            None => version.join() == join,
        };
        ApiVersion::ALL.into_iter().find(|version| self.unreadable.has(*version) && is_of(version))
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

fn last<F>(of: impl Fn(ApiVersion) -> Option<F>) -> Option<F> {
    ApiVersion::ALL.into_iter().rev().find_map(of)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn pod(status: Value, cpu: &str) -> Pod {
        serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "a", "namespace": "ns", "uid": "u", "resourceVersion": "7"},
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]},
            "status": status,
        }))
        .expect("a pod")
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
        let mut apply = |status, cpu| store.apply_pod(&pod(status, cpu)).expect("facts");
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
        let meta = ObjectMeta {
            name: Some("a".to_owned()),
            namespace: Some("ns".to_owned()),
            ..ObjectMeta::default()
        };
        let [older, newer] = ApiVersion::OWN;
        // In any order of events.
        for version in [older, newer, older] {
            let (group, queue) = (PodGroupSpec::default(), QueueSpec::default());
            store.apply_group(version, &meta, &group, None).expect("facts");
            store.apply_queue(version, &meta, &queue, None).expect("facts");
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
        store.apply_pod(&pod(json!({}), "1")).expect("facts");
        let key = ObjectKey::new("ns", "a");
        assert_eq!(store.pods.retain_some(None, 2, |_| true), (false, None));
        assert_eq!(store.pods.retain_some(None, 1, |_| true), (false, Some(key.clone())));
        assert_eq!(store.pods.retain_some(Some(&key), 1, |_| false), (false, None));
        assert_eq!(store.pods.retain_some(None, 2, |_| false), (true, None));
        assert!(store.pods.get(&key).is_none());
    }
}
