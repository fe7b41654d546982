//! Devices and what tasks need of them, with the decisions in flight applied.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use kube_batch_api::{
    decision::{DeviceChoice, PodRef},
    devices::{
        ClaimDemand, Derived, DeviceDemand, DeviceObjects, ExtendedClaim, PublishedDevices,
        counted, devices_of_class,
    },
    facts::{
        device::{
            claim::{ClaimEntry, ClaimSource, ResourceClaimFacts},
            class::{DeviceClassFacts, implicit_resource},
        },
        pod::TaskFacts,
    },
    name::{Name, ObjectKey},
    resource::ResourceList,
    status::TaskStatus,
};

use crate::{
    assumed::{Assumed, InFlight},
    store::{Fact, Store, Table},
};

/// The devices of the cluster, and their classes.
pub(crate) fn published_devices(store: &Store) -> Arc<PublishedDevices> {
    Arc::new(PublishedDevices {
        slices: shared(&store.resource_slices),
        classes: shared(&store.device_classes),
        taint_rules: shared(&store.device_taint_rules),
        derived: Derived::default(),
    })
}

/// Devices and claims, with the decisions in flight.
pub(crate) fn devices_of(
    store: &Store,
    assumed: &Assumed,
    published: Arc<PublishedDevices>,
) -> DeviceObjects {
    let mut objects = DeviceObjects { claims: shared(&store.resource_claims), published };
    for (pod, in_flight, _) in assumed.iter() {
        if let InFlight::Bind { devices, .. } = in_flight {
            for choice in devices {
                reserve(&mut objects, choice, &pod);
            }
        }
    }
    objects
}

/// The claim as it will be when its choice is written.
fn reserve(objects: &mut DeviceObjects, choice: &DeviceChoice, pod: &PodRef) {
    if let Some(new) = &choice.new {
        let owner = (&pod.key.name, &pod.uid);
        let claim = || Arc::new(ResourceClaimFacts::extended(&choice.claim, owner, &new.spec));
        objects.claims.entry(choice.claim.clone()).or_insert_with(claim);
    }
    let Some(claim) = objects.claims.get_mut(&choice.claim).map(Arc::make_mut) else { return };
    if claim.allocation.is_none() {
        claim.allocation.clone_from(&choice.allocation);
        claim.is_protected = true;
    }
    let consumer = choice.consumer(pod);
    if claim.reserved_for.iter().all(|user| user.uid != consumer.uid) {
        claim.reserved_for.push(consumer);
    }
}

fn shared<K: Ord + Clone, F: Fact>(table: &Table<K, F>) -> BTreeMap<K, Arc<F>> {
    table.iter().map(|(key, facts)| (key.clone(), Arc::clone(facts))).collect()
}

/// The resources that classes of devices stand for.
pub(super) fn of_devices(store: &Store) -> BTreeSet<Name> {
    let names = |class: &Arc<DeviceClassFacts>| {
        let own = [devices_of_class(&class.name), implicit_resource(&class.name)];
        own.into_iter().chain(class.extended_resource.clone())
    };
    store.device_classes.values().flat_map(names).collect()
}

/// The pods that name each claim for devices.
#[derive(Debug, Default)]
pub(crate) struct ClaimUsers(HashMap<ObjectKey, Users>);

#[derive(Debug, Default)]
struct Users {
    pods: BTreeSet<ObjectKey>,
    /// Those that have not ended.
    n_active: u32,
}

impl ClaimUsers {
    pub(crate) fn of(store: &Store) -> Self {
        let mut new = Self::default();
        store.pods.values().for_each(|facts| {
            new.add(facts);
        });
        new
    }

    /// Adds a pod to those who use its claims. Returns the claims.
    pub(crate) fn add(&mut self, facts: &TaskFacts) -> Vec<ObjectKey> {
        let claims: Vec<ObjectKey> = facts.claim_keys().collect();
        for claim in &claims {
            let users = self.0.entry(claim.clone()).or_default();
            if users.pods.insert(facts.key.clone()) {
                users.n_active += u32::from(is_active(facts));
            }
        }
        claims
    }

    /// Removes a pod that was added. Returns its claims.
    pub(crate) fn remove(&mut self, facts: &TaskFacts) -> Vec<ObjectKey> {
        let claims: Vec<ObjectKey> = facts.claim_keys().collect();
        for claim in &claims {
            let Some(users) = self.0.get_mut(claim) else { continue };
            if users.pods.remove(&facts.key) {
                users.n_active -= u32::from(is_active(facts));
            }
            if users.pods.is_empty() {
                self.0.remove(claim);
            }
        }
        claims
    }

    /// The pods that name a claim.
    pub(crate) fn pods(&self, claim: &ObjectKey) -> impl Iterator<Item = &ObjectKey> {
        self.0.get(claim).into_iter().flat_map(|users| &users.pods)
    }

    /// How many of them have not ended.
    fn n_active(&self, claim: &ObjectKey) -> u32 {
        self.0.get(claim).map_or(0, |users| users.n_active)
    }
}

/// Whether a pod has not ended.
pub(crate) fn is_active(facts: &TaskFacts) -> bool {
    !matches!(facts.status, TaskStatus::Succeeded | TaskStatus::Failed)
}

/// What a task needs of devices; `None` if it needs none.
pub(super) fn demand_of(
    store: &Store,
    users: &ClaimUsers,
    facts: &TaskFacts,
) -> Option<DeviceDemand> {
    if facts.device_claims.is_empty() && facts.template.extended.is_empty() {
        return None;
    }
    let namespace = &facts.key.namespace;
    let mut resources = facts.template.extended.iter().flat_map(|container| &container.requests);
    let is_for_class = resources.any(|request| {
        store.device_classes.values().any(|class| class.stands_for(&request.resource))
    });
    let demand = DeviceDemand {
        claims: facts
            .device_claims
            .iter()
            .map(|entry| claim(store, facts, namespace, entry))
            .collect(),
        extended: if is_for_class { facts.template.extended.clone() } else { Vec::new() },
        leftover: is_for_class.then(|| leftover(store, facts)).flatten(),
        counted: counted_for(store, users, facts),
    };
    (!demand.is_empty()).then_some(demand)
}

/// The claim for the extended resources of a waiting pod that an earlier attempt left behind.
fn leftover(store: &Store, facts: &TaskFacts) -> Option<ObjectKey> {
    let key = ExtendedClaim::key(&facts.key, &facts.uid);
    let claim = store.resource_claims.get(&key).filter(|_| facts.node.is_none())?;
    is_own(claim, facts).then_some(key)
}

/// What the claims of a task count for. A claim that several pods name counts for each of them in equal parts.
// Parity: see docs/parity.md#x8.
fn counted_for(store: &Store, users: &ClaimUsers, facts: &TaskFacts) -> ResourceList {
    let keys: BTreeSet<ObjectKey> = facts.claim_keys().collect();
    let mut sum = ResourceList::default();
    for key in keys {
        let Some(claim) = store.resource_claims.get(&key) else { continue };
        let n_users = if is_own(claim, facts) { 1 } else { users.n_active(&key).max(1) };
        for (name, amount) in counted(claim).iter() {
            let part = amount.unsigned_abs().div_ceil(u64::from(n_users));
            sum.set(name, sum.get(name).saturating_add_unsigned(part));
        }
    }
    sum
}

/// Whether a claim was made for a pod.
fn is_own(claim: &ResourceClaimFacts, facts: &TaskFacts) -> bool {
    claim.controller.as_ref() == Some(&facts.uid)
}

/// A claim that was made for the task, as long as it is not allocated, is like that of any other task.
fn claim(store: &Store, facts: &TaskFacts, namespace: &Name, entry: &ClaimEntry) -> ClaimDemand {
    let other = || ClaimDemand::Entry(namespace.clone(), entry.clone());
    let ClaimSource::Generated { claim: name, .. } = &entry.source else { return other() };
    let key = ObjectKey { namespace: namespace.clone(), name: name.clone() };
    match store.resource_claims.get(&key) {
        Some(claim) if claim.allocation.is_none() && !claim.deleting && is_own(claim, facts) => {
            ClaimDemand::Own(Arc::clone(&claim.spec))
        }
        _ => other(),
    }
}
