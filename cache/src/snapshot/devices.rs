//! Devices and what tasks need of them, with the decisions in flight applied.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use kube_batch_model::{
    decision::{DeviceChoice, PodRef},
    devices::{
        ClaimDemand, Derived, DeviceDemand, DeviceObjects, ExtendedClaim, PublishedDevices,
        counted, devices_of_class, physical_devices_of_class,
    },
    facts::{
        device::{
            DeviceId,
            claim::{Allocation, ClaimEntry, ClaimSource, ResourceClaimFacts},
            class::{DeviceClassFacts, implicit_resource},
        },
        fact::Fact,
        pod::TaskFacts,
    },
    name::{Name, ObjectKey},
    resource::ResourceList,
    status::TaskStatus,
};

use crate::{
    assumed::{AfterRejection, Assumed, InFlight},
    store::{Store, Table},
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
    let lost = lost_claims(store, assumed);
    for (pod, in_flight, _) in assumed.iter() {
        if let InFlight::Bind { devices, .. } = in_flight {
            for choice in devices.iter().filter(|choice| !lost.contains(&choice.claim)) {
                reserve(&mut objects, choice, &pod);
            }
        }
    }
    objects
}

/// The claims of rejected bindings whose devices were allocated to another claim meanwhile. The pods keep their places
/// until their back-offs end, but cannot keep these devices.
fn lost_claims<'a>(store: &Store, assumed: &'a Assumed) -> BTreeSet<&'a ObjectKey> {
    let mut wanted: BTreeMap<&DeviceId, Vec<&ObjectKey>> = BTreeMap::new();
    for (uid, _) in assumed.rejected() {
        let waits = assumed.after_rejection(uid) == Some(AfterRejection::Waits);
        let Some(InFlight::Bind { devices, .. }) = assumed.get(uid).filter(|_| waits) else {
            continue;
        };
        for choice in devices {
            for id in choice.allocation.iter().flat_map(Allocation::exclusive) {
                wanted.entry(id).or_default().push(&choice.claim);
            }
        }
    }
    if wanted.is_empty() {
        return BTreeSet::new();
    }
    let mut lost = BTreeSet::new();
    for claim in store.resource_claims.values() {
        for id in claim.allocation.iter().flat_map(Allocation::exclusive) {
            let others = wanted.get(id).into_iter().flatten();
            lost.extend(others.filter(|other| ***other != claim.key));
        }
    }
    lost
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
        let own = [
            devices_of_class(&class.name),
            physical_devices_of_class(&class.name),
            implicit_resource(&class.name),
        ];
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
    let names_claim = facts.node.is_none() && facts.extended_claim.is_some();
    let is_for_class = is_for_class || names_claim;
    let demand = DeviceDemand {
        claims: facts
            .device_claims
            .iter()
            .map(|entry| claim(store, facts, namespace, entry))
            .collect(),
        n_users: facts
            .device_claims
            .iter()
            .map(|entry| {
                let claim =
                    entry.claim().map(|name| ObjectKey::new(namespace.clone(), name.clone()));
                claim.map_or(1, |claim| n_users(store, users, facts, &claim))
            })
            .collect(),
        extended: if is_for_class { facts.template.extended.clone() } else { Vec::new() },
        names_claim,
        leftover: is_for_class.then(|| leftover(store, facts)).flatten(),
        extended_claim: facts
            .extended_claim
            .as_ref()
            .filter(|_| is_for_class && facts.node.is_some())
            .map(|name| ObjectKey::new(namespace.clone(), name.clone())),
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
// Parity: see docs/parity.md#v8.
fn counted_for(store: &Store, users: &ClaimUsers, facts: &TaskFacts) -> ResourceList {
    let keys: BTreeSet<ObjectKey> = facts.claim_keys().collect();
    let mut sum = ResourceList::default();
    for key in keys {
        let Some(claim) = store.resource_claims.get(&key) else { continue };
        let n_users = n_users(store, users, facts, &key);
        for (name, amount) in counted(claim).iter() {
            let part = amount.unsigned_abs().div_ceil(u64::from(n_users));
            sum.set(name, sum.get(name).saturating_add_unsigned(part));
        }
    }
    sum
}

/// How many pods that have not ended share a claim of a pod.
fn n_users(store: &Store, users: &ClaimUsers, facts: &TaskFacts, claim: &ObjectKey) -> u32 {
    let found = store.resource_claims.get(claim);
    match found.is_some_and(|found| is_own(found, facts)) {
        true => 1,
        false => users.n_active(claim).max(1),
    }
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

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use kube_batch_model::decision::Decision;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_rejected_binding_keeps_no_device_that_another_claim_has_got() {
        let mut store = Store::default();
        let result =
            |device: &str| json!({"driver": "d", "pool": "p", "device": device, "request": "r"});
        let results = |device: &str| json!({"devices": {"results": [result(device)]}});
        let request = json!({"name": "r", "exactly": {"deviceClassName": "gpu", "count": 1}});
        for (name, status) in [
            ("own", json!({})),
            ("free", json!({})),
            ("other", json!({"allocation": results("gpu-0")})),
        ] {
            store.put_resource_claim(json!({
                "metadata": {"name": name, "namespace": "ns", "uid": name},
                "spec": {"devices": {"requests": [request]}},
                "status": status,
            }));
        }
        let allocated = |name: &str, device: &str| {
            let other = store.resource_claims.get(&ObjectKey::new("ns", "other"));
            let mut allocation = other.expect("it exists").allocation.clone().expect("allocated");
            allocation.results[0].id.device = device.into();
            let (claim, allocation) = (ObjectKey::new("ns", name), Some(allocation));
            DeviceChoice { claim, allocation, new: None, group: None }
        };
        let pod = PodRef { uid: "u".into(), key: ObjectKey::new("ns", "p") };
        let devices = vec![allocated("own", "gpu-0"), allocated("free", "gpu-1")];
        let bind = Decision::Bind {
            minimum: 1,
            protected_until: None,
            queue: "q".into(),
            pod: pod.clone(),
            node: "n".into(),
            claims: vec![],
            devices,
        };
        let mut assumed = Assumed::default();
        assumed.note(&bind, Timestamp::UNIX_EPOCH);
        let is_allocated = |assumed: &Assumed| {
            let objects = devices_of(&store, assumed, published_devices(&store));
            ["own", "free"]
                .map(|name| objects.claims[&ObjectKey::new("ns", name)].allocation.is_some())
        };
        assert_eq!(is_allocated(&assumed), [true, true], "it is being bound");
        assumed.reject(&pod.uid, assumed.id(&pod.uid).expect("it is in flight"));
        assert_eq!(is_allocated(&assumed), [false, true]);
    }
}
