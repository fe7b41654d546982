//! Decisions in flight: sent, or about to be sent, and not yet confirmed by the watch.
//!
//! They are kept apart from the facts and combined with them in the snapshot, so that a pod update
//! cannot erase a decision.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
    sync::Arc,
};

use jiff::Timestamp;
use kube_batch_model::{
    decision::{ClaimChoice, Decision, DeviceChoice, PodRef},
    facts::{
        device::{
            DeviceId,
            claim::{Allocation, Consumer, ResourceClaimFacts},
        },
        fact::Fact,
        pod::TaskFacts,
    },
    name::{Name, ObjectKey},
    status::TaskStatus,
};
use serde::{Deserialize, Serialize};

use crate::{
    changes::{Changes, Former},
    store::Store,
};

/// Labels that the API server copies to a pod from the node to which it is bound.
const COPIED_LABELS: [&str; 2] = ["topology.kubernetes.io/region", "topology.kubernetes.io/zone"];

/// A decision about a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum InFlight {
    /// It is being bound to a node.
    Bind {
        /// The node.
        node: Name,
        /// The queue of its job; `None` in dumps of earlier versions.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        queue: Option<Name>,
        /// The volumes of its claims.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        claims: Vec<ClaimChoice>,
        /// What is written to its claims for devices.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        devices: Vec<DeviceChoice>,
    },
    /// It is being deleted.
    Evict,
    /// A claim of it loses devices that can be used nowhere.
    Deallocate {
        /// The claim.
        claim: ObjectKey,
    },
    /// It is nominated for a node.
    Nominate {
        /// The node.
        node: Name,
        /// The devices chosen for it. No API object stores them.
        #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
        devices: Arc<[DeviceId]>,
    },
    /// The API server rejected its binding, and its back-off has ended: it waits, and its place is kept
    /// while its gang is incomplete.
    Rejected {
        /// The node it was to be bound to.
        node: Name,
    },
}

impl InFlight {
    /// What a binding writes to a claim for devices.
    fn choice_for(&self, claim: &ObjectKey) -> Option<&DeviceChoice> {
        match self {
            Self::Bind { devices, .. } => devices.iter().find(|choice| choice.claim == *claim),
            Self::Evict
            | Self::Deallocate { .. }
            | Self::Nominate { .. }
            | Self::Rejected { .. } => None,
        }
    }
}

/// What a pod does after the API server rejected its binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum AfterRejection {
    /// It waits for the end of its back-off, or to be bound again.
    Waits,
    /// It is being bound again, and there is no answer yet.
    Retries,
}

/// A decision in flight, to be written down.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WrittenDecision {
    uid: Name,
    pod: ObjectKey,
    since: Timestamp,
    decision: InFlight,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    after_rejection: Option<AfterRejection>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_held: bool,
}

/// What a change of the decisions in flight is about.
#[derive(Debug, Default)]
pub(crate) struct Touched {
    /// The pods.
    pub(crate) pods: BTreeSet<ObjectKey>,
    /// Whether one of the decisions chooses volumes or did.
    pub(crate) has_volumes: bool,
    /// The claims for devices that one of the decisions is or was about.
    pub(crate) claims: BTreeSet<ObjectKey>,
}

/// Identifies a decision: a later one about the same pod has another id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DecisionId(u64);

impl std::fmt::Display for DecisionId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// Decisions in flight, by pod uid.
#[derive(Clone, Debug, Default)]
pub struct Assumed {
    by_uid: BTreeMap<Name, Entry>,
    n_decisions: u64,
    changes: Changes<Name>,
    /// The decisions in flight before they changed.
    former: Former<Name, Entry>,
}

/// Equal if the same decisions are in flight, whatever their ids.
impl PartialEq for Assumed {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

#[derive(Clone, Debug)]
struct Entry {
    id: DecisionId,
    pod: ObjectKey,
    in_flight: InFlight,
    since: Timestamp,
    after_rejection: Option<AfterRejection>,
    /// Whether it stays although its pod is gone: its claims for devices are being written.
    is_held: bool,
}

impl Assumed {
    /// Records a decision before it is sent; returns whether it is in flight now. A nomination or a deallocation
    /// never replaces another decision.
    pub fn note(&mut self, decision: &Decision, now: Timestamp) -> bool {
        let (pod, in_flight) = match decision {
            Decision::Bind { pod, node, queue, claims, devices, .. } => {
                let (node, claims, devices) = (node.clone(), claims.clone(), devices.clone());
                (pod, InFlight::Bind { node, queue: Some(queue.clone()), claims, devices })
            }
            Decision::Evict { pod, .. } => (pod, InFlight::Evict),
            Decision::Nominate { pod, node, devices } if self.can_be_nominated(pod) => {
                let (node, devices) = (node.clone(), Arc::clone(devices));
                let in_flight = InFlight::Nominate { node, devices };
                if self.get(&pod.uid) == Some(&in_flight) {
                    return true;
                }
                (pod, in_flight)
            }
            Decision::Deallocate { pod, claim } if self.can_be_nominated(pod) => {
                (pod, InFlight::Deallocate { claim: claim.clone() })
            }
            Decision::Nominate { .. } | Decision::Deallocate { .. } => return false,
            Decision::Withdraw { pod } => {
                if self.can_be_nominated(pod) {
                    self.forget(&pod.uid);
                }
                return false;
            }
        };
        self.insert(pod.clone(), in_flight, now);
        true
    }

    /// Whether nothing but a nomination is in flight for the pod.
    fn can_be_nominated(&self, pod: &PodRef) -> bool {
        match self.get(&pod.uid) {
            None | Some(InFlight::Nominate { .. } | InFlight::Rejected { .. }) => true,
            Some(InFlight::Bind { .. } | InFlight::Evict | InFlight::Deallocate { .. }) => false,
        }
    }

    /// Removes the decision about a pod: it failed, or the pod is deleted.
    pub fn forget(&mut self, uid: &Name) {
        self.changes.add(uid);
        let before = self.by_uid.remove(uid);
        self.former.add(uid, before, self.by_uid.len());
    }

    /// Records from now on what changes, for [`Self::copy_changes`].
    pub fn record_changes(&mut self) {
        self.changes = Changes::recorded(self.by_uid.keys().cloned());
    }

    /// Copies at most `n` changes to decisions that have all earlier ones, and returns their number. If
    /// it is less than `n`, both are the same.
    pub fn copy_changes(&mut self, to: &mut Self, n: usize) -> usize {
        let Self { by_uid, changes, n_decisions, .. } = self;
        to.n_decisions = *n_decisions;
        changes.take(n, |uid| {
            let before = match by_uid.get(&uid) {
                Some(entry) => to.by_uid.insert(uid.clone(), entry.clone()),
                None => to.by_uid.remove(&uid),
            };
            to.former.add(&uid, before, to.by_uid.len());
        })
    }

    /// What changed since the last call. `None` if anything may have, as before the first call.
    pub(crate) fn take_touched(&mut self) -> Option<Touched> {
        let mut touched = Touched::default();
        for (uid, before) in self.former.take()? {
            for entry in before.iter().chain(self.by_uid.get(&uid)) {
                touched.pods.insert(entry.pod.clone());
                if let InFlight::Bind { claims, devices, .. } = &entry.in_flight {
                    touched.has_volumes |= !claims.is_empty();
                    touched.claims.extend(devices.iter().map(|choice| choice.claim.clone()));
                }
            }
        }
        Some(touched)
    }

    /// Keeps a decision in flight even if its pod is deleted: its claims for devices are being written, so that the
    /// devices must not be allocated to other claims. This ends when the binding is accepted or rejected, or with
    /// [`Self::let_go`].
    pub fn hold(&mut self, uid: &Name, id: DecisionId) {
        self.set_held(uid, id, true);
    }

    /// Ends that: the facts show what was written.
    pub fn let_go(&mut self, uid: &Name, id: DecisionId) {
        self.set_held(uid, id, false);
    }

    fn set_held(&mut self, uid: &Name, id: DecisionId, is_held: bool) {
        if let Some(entry) = self.by_uid.get_mut(uid).filter(|entry| entry.id == id) {
            entry.is_held = is_held;
        }
    }

    /// Records that the API server rejected a binding. It stays in flight until its back-off ends.
    pub fn reject(&mut self, uid: &Name, id: DecisionId) {
        self.set_after_rejection(uid, id, Some(AfterRejection::Waits));
    }

    /// Records that the API server accepted a binding.
    pub fn accept(&mut self, uid: &Name, id: DecisionId) {
        self.set_after_rejection(uid, id, None);
    }

    fn set_after_rejection(&mut self, uid: &Name, id: DecisionId, to: Option<AfterRejection>) {
        if let Some(entry) = self.by_uid.get_mut(uid).filter(|entry| entry.id == id) {
            let before = entry.clone();
            entry.after_rejection = to;
            entry.is_held = false;
            self.changes.add(uid);
            self.former.add(uid, Some(before), self.by_uid.len());
        }
    }

    /// Ends the back-off of a rejected decision, unless there is a later one: a binding leaves its place
    /// behind, anything else is removed. Returns whether it was in flight.
    pub fn end_back_off(&mut self, uid: &Name, id: DecisionId) -> bool {
        let Some(entry) = self.by_uid.get_mut(uid).filter(|entry| entry.id == id) else {
            return false;
        };
        if let InFlight::Bind { node, .. } = &entry.in_flight {
            let left = InFlight::Rejected { node: node.clone() };
            let before =
                Entry { in_flight: std::mem::replace(&mut entry.in_flight, left), ..entry.clone() };
            self.changes.add(uid);
            self.former.add(uid, Some(before), self.by_uid.len());
        } else {
            self.forget(uid);
        }
        true
    }

    /// What a pod does after the API server rejected its binding; `None` if it did not.
    pub fn after_rejection(&self, uid: &Name) -> Option<AfterRejection> {
        self.by_uid.get(uid)?.after_rejection
    }

    /// Removes a decision about a pod, but not a later one; returns whether it was in flight.
    pub fn forget_decision(&mut self, uid: &Name, id: DecisionId) -> bool {
        let is_in_flight = self.id(uid) == Some(id);
        if is_in_flight {
            self.forget(uid);
        }
        is_in_flight
    }

    /// The queue from which a pod was bound, if its binding to the node that it has is in flight.
    pub fn bound_queue(&self, facts: &TaskFacts) -> Option<Name> {
        match self.get(&facts.uid)? {
            InFlight::Bind { node, queue, .. } if facts.node.as_ref() == Some(node) => {
                queue.clone()
            }
            InFlight::Bind { .. }
            | InFlight::Evict
            | InFlight::Deallocate { .. }
            | InFlight::Nominate { .. }
            | InFlight::Rejected { .. } => None,
        }
    }

    /// The id of the decision in flight for a pod.
    pub fn id(&self, uid: &Name) -> Option<DecisionId> {
        self.by_uid.get(uid).map(|entry| entry.id)
    }

    /// Removes all decisions. Their ids are not used again.
    pub fn clear(&mut self) {
        for (uid, entry) in std::mem::take(&mut self.by_uid) {
            self.changes.add(&uid);
            self.former.add(&uid, Some(entry), 0);
        }
    }

    /// The decision in flight for a pod.
    pub fn get(&self, uid: &Name) -> Option<&InFlight> {
        self.by_uid.get(uid).map(|entry| &entry.in_flight)
    }

    /// Records the decision in flight for a pod, and its time.
    pub fn insert(&mut self, pod: PodRef, in_flight: InFlight, since: Timestamp) {
        let id = DecisionId(self.n_decisions);
        self.n_decisions += 1;
        let rejected = self.after_rejection(&pod.uid);
        let after_rejection = rejected.and(match in_flight {
            InFlight::Bind { .. } => Some(AfterRejection::Retries),
            InFlight::Nominate { .. } | InFlight::Rejected { .. } | InFlight::Deallocate { .. } => {
                Some(AfterRejection::Waits)
            }
            InFlight::Evict => None,
        });
        let (pod, uid) = (pod.key, pod.uid);
        let entry = Entry { id, pod, in_flight, since, after_rejection, is_held: false };
        self.changes.add(&uid);
        let before = self.by_uid.insert(uid.clone(), entry);
        self.former.add(&uid, before, self.by_uid.len());
    }

    /// Pods in order of their uid, with the decision in flight and its time.
    pub fn iter(&self) -> impl Iterator<Item = (PodRef, &InFlight, Timestamp)> {
        self.by_uid.iter().map(|(uid, Entry { pod, in_flight, since, .. })| {
            (PodRef { uid: uid.clone(), key: pod.clone() }, in_flight, *since)
        })
    }

    /// All decisions in flight, to be written down: everything but their ids, which identify them only among the writes
    /// of one process.
    pub(crate) fn written(&self) -> impl Iterator<Item = WrittenDecision> {
        self.by_uid.iter().map(|(uid, entry)| WrittenDecision {
            uid: uid.clone(),
            pod: entry.pod.clone(),
            since: entry.since,
            decision: entry.in_flight.clone(),
            after_rejection: entry.after_rejection,
            is_held: entry.is_held,
        })
    }

    /// Records a decision that was written down.
    pub(crate) fn restore(&mut self, written: WrittenDecision) {
        let WrittenDecision { uid, pod, since, decision, after_rejection, is_held } = written;
        self.insert(PodRef { uid: uid.clone(), key: pod }, decision, since);
        let entry = self.by_uid.get_mut(&uid).expect("it was inserted");
        (entry.after_rejection, entry.is_held) = (after_rejection, is_held);
    }

    /// The pods whose bindings the API server rejected.
    pub(crate) fn rejected(&self) -> impl Iterator<Item = (&Name, &ObjectKey)> {
        let rejected = self.by_uid.iter().filter(|(_, entry)| entry.after_rejection.is_some());
        rejected.map(|(uid, entry)| (uid, &entry.pod))
    }

    /// Number of decisions in flight.
    pub fn len(&self) -> usize {
        self.by_uid.len()
    }

    /// Whether nothing is in flight.
    pub fn is_empty(&self) -> bool {
        self.by_uid.is_empty()
    }

    /// Whether a change of a pod's facts only confirms the decision about it: it is bound to the
    /// assumed node, and has that node's topology labels.
    pub fn foresaw(&self, before: &TaskFacts, after: &TaskFacts) -> bool {
        let Some(InFlight::Bind { node, queue, claims, .. }) = self.get(&after.uid) else {
            return false;
        };
        let bound = TaskFacts {
            node: Some(node.clone()),
            bound_queue: queue.clone(),
            bound_at: after.bound_at,
            bound_minimum: after.bound_minimum,
            protected_until: after.protected_until,
            status: TaskStatus::Bound,
            labels: after.labels.clone(),
            ..before.clone()
        };
        claims.is_empty() && bound.decides_like(after) && own_labels(before).eq(own_labels(after))
    }

    /// Whether a change of a claim for devices only confirms decisions: it was given the devices that one of
    /// them gives it, and names pods as its users that are being bound.
    pub fn foresaw_claim(&self, before: &ResourceClaimFacts, after: &ResourceClaimFacts) -> bool {
        let is_new = |user: &&Consumer| !before.reserved_for.contains(user);
        let users: Vec<&Consumer> = after.reserved_for.iter().filter(is_new).collect();
        let choices: Option<Vec<&DeviceChoice>> =
            users.iter().map(|user| self.choice(user, &after.key)).collect();
        let Some(choices) = choices else { return false };
        let has_devices = |choice: &&DeviceChoice| {
            let ids = |from: &Option<Allocation>| {
                let results = from.iter().flat_map(|allocation| &allocation.results);
                results.map(|result| result.id.clone()).collect::<Vec<_>>()
            };
            choice.allocation.is_some() && ids(&choice.allocation) == ids(&after.allocation)
        };
        let was_given = before.allocation.is_none() && after.allocation.is_some();
        if was_given && !choices.iter().any(has_devices) {
            return false;
        }
        let mut expected = before.clone();
        expected.reserved_for.extend(users.into_iter().cloned());
        if was_given {
            expected.allocation.clone_from(&after.allocation);
        }
        if before.allocation.is_none() {
            expected.is_protected |= after.is_protected;
        }
        expected == *after
    }

    /// What the binding of a pod writes to a claim for devices.
    fn choice(&self, user: &Consumer, claim: &ObjectKey) -> Option<&DeviceChoice> {
        if user.is_pod() {
            let own = self.get(&user.uid)?.choice_for(claim)?;
            return own.group.is_none().then_some(own);
        }
        // Several pods use it for the group, and the first of them allocates it.
        let all = self.by_uid.values().filter_map(|entry| entry.in_flight.choice_for(claim));
        let of_group = all.filter(|choice| choice.group.as_ref() == Some(user));
        of_group.max_by_key(|choice| choice.allocation.is_some())
    }

    /// The devices that a binding in flight gives a claim.
    pub fn allocation_of(&self, claim: &ObjectKey) -> Option<Allocation> {
        let mut all = self.by_uid.values();
        all.find_map(|entry| entry.in_flight.choice_for(claim)?.allocation.clone())
    }

    /// Removes decisions that the facts confirm or contradict.
    pub fn settle(&mut self, store: &Store) {
        self.settle_some(store, None, usize::MAX);
    }

    /// Does so for the first `n` decisions after a uid, or from the start. Returns the uids of those that
    /// are removed, and the uid after which to continue; `None` after the last one.
    pub fn settle_some(
        &mut self,
        store: &Store,
        after: Option<&Name>,
        n: usize,
    ) -> (Vec<Name>, Option<Name>) {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let range = self.by_uid.range::<Name, _>((start, Bound::Unbounded)).take(n);
        let (mut settled, mut last, mut n_seen) = (Vec::new(), None, 0);
        for (uid, entry) in range {
            if entry.is_settled(uid, store) {
                settled.push(uid.clone());
            }
            (last, n_seen) = (Some(uid), n_seen + 1);
        }
        let next = last.filter(|_| n_seen == n).cloned();
        settled.iter().for_each(|uid| self.forget(uid));
        (settled, next)
    }

    /// Removes the decision about a pod if the facts confirm or contradict it; returns whether it did.
    pub fn settle_pod(&mut self, uid: &Name, store: &Store) -> bool {
        let is_settled = self.by_uid.get(uid).is_some_and(|entry| entry.is_settled(uid, store));
        if is_settled {
            self.forget(uid);
        }
        is_settled
    }

    /// Whether the facts confirm or contradict a decision, or it is not in flight.
    pub fn is_settled(&self, uid: &Name, id: DecisionId, store: &Store) -> bool {
        let entry = self.by_uid.get(uid).filter(|entry| entry.id == id);
        entry.is_none_or(|entry| entry.is_settled(uid, store))
    }
}

impl Entry {
    fn is_settled(&self, uid: &Name, store: &Store) -> bool {
        let known = store.pods.get(&self.pod).filter(|facts| facts.uid == *uid);
        let Some(facts) = known else { return !self.is_held };
        let waits = facts.node.is_none() && facts.status == TaskStatus::Pending;
        match &self.in_flight {
            InFlight::Bind { node, claims, devices, .. } => {
                let is_done = matches!(facts.status, TaskStatus::Succeeded | TaskStatus::Failed);
                !waits
                    && claims.iter().all(|choice| is_settled(store, choice, node))
                    && (is_done || devices.iter().all(|choice| is_reserved(store, choice, uid)))
            }
            InFlight::Rejected { .. } => !waits,
            InFlight::Deallocate { claim } => {
                let claim = store.resource_claims.get(claim);
                !waits || claim.is_none_or(|claim| claim.allocation.is_none())
            }
            InFlight::Nominate { .. } if !waits => true,
            InFlight::Nominate { node, devices } if devices.is_empty() => {
                facts.nominated_node.as_ref() == Some(node)
            }
            InFlight::Nominate { node, .. } => store.nodes.get(node).is_none(),
            InFlight::Evict => !matches!(facts.status, TaskStatus::Running | TaskStatus::Bound),
        }
    }
}

/// Whether the facts show the volume of a claim, or the claim is deleted.
fn is_settled(store: &Store, choice: &ClaimChoice, node: &Name) -> bool {
    store.claims.get(&choice.claim).is_none_or(|claim| match &choice.volume {
        Some(_) => claim.volume.is_some(),
        None => claim.volume.is_some() || claim.selected_node.as_ref() == Some(choice.node(node)),
    })
}

/// Whether the facts show that a pod or its group uses a claim for devices, or the claim is deleted.
fn is_reserved(store: &Store, choice: &DeviceChoice, pod: &Name) -> bool {
    let uid = choice.group.as_ref().map_or(pod, |group| &group.uid);
    store.resource_claims.get(&choice.claim).is_none_or(|claim| {
        claim.allocation.is_some() && claim.reserved_for.iter().any(|user| user.uid == *uid)
    })
}

/// Labels that do not come from a node.
fn own_labels(facts: &TaskFacts) -> impl Iterator<Item = (&Name, &Name)> {
    facts.labels.iter().filter(|(key, _)| !COPIED_LABELS.contains(&&***key))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use kube_batch_model::intern::InternTable;
    use serde_json::json;

    use super::*;

    fn pod() -> PodRef {
        PodRef { uid: "p".into(), key: ObjectKey::new("ns", "p") }
    }

    /// A store with the pod, which is nominated for `nominated` in the API server.
    fn store(nominated: Option<&str>) -> Store {
        let mut store = Store::default();
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "p", "namespace": "ns", "uid": "p"},
            "spec": {"schedulerName": "kube-batch", "containers": [{"name": "c"}]},
            "status": {"phase": "Pending", "nominatedNodeName": nominated},
        });
        store.put_pod(pod);
        store
    }

    #[test]
    fn only_the_decided_binding_is_expected() {
        let assumed = recorded(&[Decision::Bind {
            minimum: 1,
            protected_until: None,
            queue: "q".into(),
            pod: pod(),
            node: "n".into(),
            claims: vec![],
            devices: vec![],
        }]);
        let before = Arc::clone(store(None).pods.get(&pod().key).expect("the pod"));
        let bound = TaskFacts {
            node: Some("n".into()),
            bound_queue: Some("q".into()),
            status: TaskStatus::Bound,
            unscheduled: Some(("a".into(), "b".into())),
            ..(*before).clone()
        };
        assert!(assumed.foresaw(&before, &bound));
        let labelled = |key: &str| {
            let labels = BTreeMap::from([(Name::from(key), Name::from("z"))]);
            TaskFacts { labels: InternTable::default().intern(labels.into()), ..bound.clone() }
        };
        assert!(assumed.foresaw(&before, &labelled("topology.kubernetes.io/zone")));
        for other in [
            TaskFacts { node: Some("m".into()), ..bound.clone() },
            TaskFacts { status: TaskStatus::Running, ..bound.clone() },
            TaskFacts { priority: 1, ..bound.clone() },
            TaskFacts { uid: "q".into(), ..bound.clone() },
            TaskFacts { bound_queue: Some("r".into()), ..bound.clone() },
            labelled("app"),
        ] {
            assert!(!assumed.foresaw(&before, &other), "{other:?}");
        }
        assert!(!Assumed::default().foresaw(&before, &bound));
    }

    fn recorded(decisions: &[Decision]) -> Assumed {
        let mut assumed = Assumed::default();
        for decision in decisions {
            assumed.note(decision, Timestamp::UNIX_EPOCH);
        }
        assumed
    }

    fn nominate(node: &str) -> Decision {
        Decision::Nominate { pod: pod(), node: node.into(), devices: [].into() }
    }

    #[test]
    fn a_nomination_is_settled_when_the_facts_show_it() {
        let mut assumed = recorded(&[nominate("n")]);
        for nominated in [None, Some("other")] {
            assumed.settle(&store(nominated));
            assert_eq!(assumed.len(), 1);
        }
        assumed.settle(&store(Some("n")));
        assert!(assumed.is_empty());
    }

    #[test]
    fn a_nomination_with_devices_lasts_as_long_as_the_pod_waits() {
        let device =
            |name: &str| DeviceId { driver: "d".into(), pool: "n".into(), device: name.into() };
        let nominate = |name: &str| Decision::Nominate {
            pod: pod(),
            node: "n".into(),
            devices: [device(name)].into(),
        };
        let mut assumed = recorded(&[nominate("gpu-0"), nominate("gpu-1")]);
        let mut store = store(Some("n"));
        let node = json!({"metadata": {"name": "n"}, "status": {"allocatable": {}}});
        store.put_node(node);
        assumed.settle(&store);
        let InFlight::Nominate { devices, .. } = assumed.get(&pod().uid).expect("in flight") else {
            panic!("it is a nomination");
        };
        assert_eq!(**devices, [device("gpu-1")]);
        let id = assumed.id(&pod().uid);
        assert!(assumed.note(&nominate("gpu-1"), Timestamp::UNIX_EPOCH));
        assert_eq!(assumed.id(&pod().uid), id, "nothing has changed");
        let mut without_node = assumed.clone();
        without_node.settle(&self::store(Some("n")));
        assert!(without_node.is_empty(), "the node is gone");
        assumed.settle(&Store::default());
        assert!(assumed.is_empty(), "the pod is gone");
    }

    /// Adds a claim for devices to a store, allocated and reserved for a user.
    fn add_claim(store: &mut Store, user: &serde_json::Value) -> Arc<ResourceClaimFacts> {
        let result = json!({"request": "gpu", "driver": "d", "pool": "n", "device": "gpu-0"});
        let claim = json!({
            "metadata": {"name": "c", "namespace": "ns", "uid": "c"},
            "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}},
            "status": {"allocation": {"devices": {"results": [result]}}, "reservedFor": [user]},
        });
        store.put_resource_claim(claim);
        Arc::clone(store.resource_claims.get(&ObjectKey::new("ns", "c")).expect("the claim"))
    }

    #[test]
    fn a_claim_of_a_group_is_reserved_for_the_group() {
        let mut store = store(None);
        let group = json!({"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "g"});
        let after = add_claim(&mut store, &group);
        let choice = DeviceChoice {
            claim: after.key.clone(),
            allocation: after.allocation.clone(),
            new: None,
            group: Some(Consumer::group(&"g".into(), &"g".into())),
        };
        let bind = |choice: DeviceChoice| {
            let (claims, devices) = (vec![], vec![choice]);
            recorded(&[Decision::Bind {
                minimum: 1,
                protected_until: None,
                queue: "q".into(),
                pod: pod(),
                node: "n".into(),
                claims,
                devices,
            }])
        };
        let before =
            ResourceClaimFacts { allocation: None, reserved_for: vec![], ..(*after).clone() };
        let mut assumed = bind(choice.clone());
        assert!(assumed.foresaw_claim(&before, &after));
        assert!(!bind(DeviceChoice { group: None, ..choice }).foresaw_claim(&before, &after));
        let bound = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "p", "namespace": "ns", "uid": "p"},
            "spec": {"schedulerName": "kube-batch", "nodeName": "n", "containers": [{"name": "c"}]},
            "status": {"phase": "Pending"},
        });
        store.put_pod(bound);
        assumed.settle(&store);
        assert!(assumed.is_empty(), "the facts show all of the binding");
    }

    #[test]
    fn a_binding_replaces_a_nomination() {
        let bind = Decision::Bind {
            minimum: 1,
            protected_until: None,
            queue: "q".into(),
            pod: pod(),
            node: "n".into(),
            claims: Vec::new(),
            devices: Vec::new(),
        };
        let bound = Some(&InFlight::Bind {
            queue: Some("q".into()),
            node: "n".into(),
            claims: Vec::new(),
            devices: Vec::new(),
        });
        assert_eq!(recorded(&[nominate("n"), bind.clone()]).get(&pod().uid), bound);
        let withdraw = Decision::Withdraw { pod: pod() };
        assert_eq!(recorded(&[bind, nominate("m"), withdraw]).get(&pod().uid), bound);
    }

    #[test]
    fn a_later_decision_is_not_removed_with_an_earlier_one() {
        let mut assumed = recorded(&[nominate("n")]);
        let first = assumed.id(&pod().uid).expect("a decision");
        assumed.clear();
        assumed.note(&nominate("m"), Timestamp::UNIX_EPOCH);
        assert!(!assumed.forget_decision(&pod().uid, first));
        let second = assumed.id(&pod().uid).expect("a decision");
        assert!(assumed.forget_decision(&pod().uid, second) && assumed.is_empty());
    }

    #[test]
    fn a_rejected_binding_leaves_its_place_behind_until_the_next_decision() {
        let bind = Decision::Bind {
            minimum: 1,
            protected_until: None,
            queue: "q".into(),
            pod: pod(),
            node: "n".into(),
            claims: Vec::new(),
            devices: Vec::new(),
        };
        let uid = pod().uid;
        let mut assumed = recorded(std::slice::from_ref(&bind));
        let first = assumed.id(&uid).expect("a decision");
        assumed.reject(&uid, first);
        assert_eq!(assumed.after_rejection(&uid), Some(AfterRejection::Waits));
        assert!(matches!(assumed.get(&uid), Some(InFlight::Bind { .. })), "its back-off");
        assert!(assumed.end_back_off(&uid, first));
        assumed.settle(&store(None));
        assert_eq!(assumed.get(&uid), Some(&InFlight::Rejected { node: "n".into() }));
        assumed.note(&bind, Timestamp::UNIX_EPOCH);
        assert_eq!(assumed.after_rejection(&uid), Some(AfterRejection::Retries));
        assert!(!assumed.end_back_off(&uid, first), "there is a later decision");
        let second = assumed.id(&uid).expect("a decision");
        assumed.accept(&uid, second);
        assert_eq!(assumed.after_rejection(&uid), None);
        assumed.note(&Decision::Withdraw { pod: pod() }, Timestamp::UNIX_EPOCH);
        assert_eq!(assumed.len(), 1, "a binding is not withdrawn");
    }

    #[test]
    fn a_withdrawn_nomination_is_not_in_flight() {
        assert!(recorded(&[nominate("n"), Decision::Withdraw { pod: pod() }]).is_empty());
    }
}
