//! A simulated cluster: objects, a virtual clock, kubelets and controllers.
//!
//! It keeps the objects of an API server as facts, takes snapshots for the scheduler, and applies
//! the decisions of a cycle as the API server, kubelets and controllers would. It uses neither the
//! real clock nor random numbers: the same objects and cycles give the same results.

use std::{collections::BTreeMap, sync::Arc};

use jiff::{SignedDuration, Timestamp};
use kube_batch_cache::{
    assumed::{Assumed, InFlight},
    dump::Dump,
    snapshot::{Snapshot, SnapshotOptions, take_snapshot},
    store::Store,
};
use kube_batch_framework::report::Cycle;
use kube_batch_manifest::object::{Kind, Served};
use kube_batch_model::{
    decision::{ClaimChoice, Decision, EvictionCause},
    facts::{
        group::GroupFacts,
        metadata::MetadataPrefixes,
        pod::TaskFacts,
        queue::QueueFacts,
        storage::{ClaimFacts, VolumeFacts},
    },
    group_version::ServedApis,
    name::{Name, ObjectKey},
    selector::{Labels, NodeTerm, Requirement},
    status::TaskStatus,
};
use kube_batch_scheduler::{
    core::{CycleInput, CycleResult, Writes},
    writes::{self, Nomination, StatusWrite, Waits},
};

use crate::{
    admission::{UnknownClasses, admit},
    arrivals::Arrivals,
    claim_templates::ClaimTemplates,
    controllers::{Controllers, PodTimer},
    kubelet,
};

/// The grace period of simulated pods: the default of Kubernetes.
const GRACE_PERIOD: SignedDuration = SignedDuration::from_secs(30);

/// How kubelets behave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Environment {
    /// Number of cycles after which a bound pod runs.
    pub start_cycles: u32,
    /// Number of cycles after which a terminating pod is deleted.
    pub termination_cycles: u32,
    /// Whether bound pods ever run.
    pub kubelet: bool,
}

impl Default for Environment {
    /// Pods start and terminate at once.
    fn default() -> Self {
        Self { start_cycles: 0, termination_cycles: 0, kubelet: true }
    }
}

/// An event, as `kubectl get events` would show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedEvent {
    /// Kind, namespace and name.
    pub object: String,
    /// `Normal` or `Warning`.
    pub type_: &'static str,
    /// The reason, one word.
    pub reason: &'static str,
    /// The message.
    pub message: String,
}

/// Bindings, evictions and events since the record was cleared.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// Pods bound, and where, in order.
    pub binds: Vec<(ObjectKey, Name)>,
    /// Pods evicted, from where, why, and for which job, in order.
    pub evictions: Vec<Eviction>,
    /// Events, in order.
    pub events: Vec<RecordedEvent>,
}

impl Record {
    /// Clears the record.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

/// A pod evicted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Eviction {
    /// The pod.
    pub pod: ObjectKey,
    /// Its node.
    pub node: Name,
    /// Why.
    pub cause: EvictionCause,
}

/// A simulated cluster.
#[derive(Debug)]
pub struct World {
    /// The objects of the API server.
    pub store: Store,
    /// Jobs and ReplicaSets.
    pub controllers: Controllers,
    /// How kubelets behave.
    pub environment: Environment,
    options: SnapshotOptions,
    now: Timestamp,
    n_cycles: u64,
    /// Number of cycles for which each pod has been bound or terminating.
    waited: BTreeMap<ObjectKey, u32>,
    /// Bindings, evictions and events since the record was cleared.
    pub record: Record,
    /// Nominations of the last cycle.
    pub pipelined: Vec<(ObjectKey, Name)>,
    /// When pods end, and when each started to run.
    timers: BTreeMap<ObjectKey, (PodTimer, Option<Timestamp>)>,
    /// Objects whose manifests have no creation time, until the simulation begins.
    pub(crate) undated: Vec<(Kind, Served, ObjectKey)>,
    /// Pods whose manifests have no priority, until they are admitted.
    pub(crate) unadmitted: Vec<ObjectKey>,
    /// Pods that name a PriorityClass that does not exist.
    pub unknown_classes: UnknownClasses,
    /// When each pod was bound that was bound here.
    bound: BTreeMap<ObjectKey, Timestamp>,
    /// How long each pod that was bound had waited, in order.
    pub waits: Vec<SignedDuration>,
    /// The job of each pod that was bound or evicted, as the pods may be deleted.
    group_of: BTreeMap<ObjectKey, ObjectKey>,
    /// Nominations with devices. Nothing else is in flight: what a cycle decides is done at once.
    in_flight: Assumed,
    /// When the next gang becomes stale.
    next_due: Option<Timestamp>,
    /// Objects that are created later.
    pub(crate) arrivals: Arrivals,
    pub(crate) claim_templates: ClaimTemplates,
}

impl World {
    /// An empty cluster at 2025-01-01T00:00:00Z.
    ///
    /// Of labels and annotations that only plugins read, it keeps those under `prefixes`.
    pub fn new(
        environment: Environment,
        options: SnapshotOptions,
        prefixes: MetadataPrefixes,
    ) -> Self {
        Self {
            store: Store::new(prefixes),
            controllers: Controllers::default(),
            environment,
            options,
            now: "2025-01-01T00:00:00Z".parse().expect("a timestamp"),
            n_cycles: 0,
            waited: BTreeMap::new(),
            record: Record::default(),
            pipelined: Vec::new(),
            timers: BTreeMap::new(),
            undated: Vec::new(),
            unadmitted: Vec::new(),
            unknown_classes: UnknownClasses::default(),
            bound: BTreeMap::new(),
            waits: Vec::new(),
            group_of: BTreeMap::new(),
            in_flight: Assumed::default(),
            next_due: None,
            arrivals: Arrivals::default(),
            claim_templates: ClaimTemplates::default(),
        }
    }

    /// The virtual time.
    pub const fn now(&self) -> Timestamp {
        self.now
    }

    /// Whether an object of this kind and name is created later.
    pub fn expects(&self, kind: Kind, key: &ObjectKey) -> bool {
        self.arrivals.expects(kind, key)
    }

    /// Whether any object is created later.
    pub const fn expects_objects(&self) -> bool {
        !self.arrivals.is_empty()
    }

    /// Options of the scheduler.
    pub const fn options(&self) -> &SnapshotOptions {
        &self.options
    }

    /// Advances the clock by one second. Pods and Jobs whose time is over by then end, and objects arrive.
    pub fn tick(&mut self) {
        self.now += SignedDuration::from_secs(1);
        let mut has_changed = self.finish_pods();
        while let Some(object) = self.arrivals.pop(self.now) {
            // Its problems were found when it was read.
            has_changed |= self.apply(object).is_ok();
        }
        let next = self.controllers.next_change();
        if has_changed || next.is_some_and(|next| next <= self.now) {
            self.run_controllers();
        }
    }

    /// Advances the clock by as many cycles as nothing happens in, if nothing but time changes
    /// anything: up to the cycle before the next pod or Job ends. Returns their number, at most
    /// `limit`.
    pub fn skip_idle_cycles(&mut self, limit: u64) -> u64 {
        let Some(next) = self.next_end().filter(|_| !self.has_pods_in_transition()) else {
            return 0;
        };
        let nanos = next.duration_since(self.now).as_nanos();
        let whole = u64::try_from((nanos - 1).max(0) / 1_000_000_000).unwrap_or(u64::MAX);
        let skipped = whole.min(limit);
        let seconds = i64::try_from(skipped).unwrap_or(i64::MAX);
        let Ok(later) = self.now.checked_add(SignedDuration::from_secs(seconds)) else { return 0 };
        self.now = later;
        self.n_cycles += skipped;
        skipped
    }

    /// When the next pod or Job ends, an object arrives, or a gang becomes stale.
    fn next_end(&self) -> Option<Timestamp> {
        let ends = self.timers.values().filter_map(|(timer, since)| end_of(timer, *since));
        let changes = self.controllers.next_change().into_iter().chain(self.arrivals.next());
        ends.chain(changes).chain(self.next_due).min()
    }

    /// Changes the facts of a pod, if it exists.
    pub fn change_pod(&mut self, key: &ObjectKey, change: impl FnOnce(&mut TaskFacts)) {
        if let Some(facts) = self.store.pods.get(key) {
            let mut facts = TaskFacts::clone(facts);
            change(&mut facts);
            self.store.pods.apply(key.clone(), facts);
        }
    }

    /// Deletes a pod at once.
    pub fn remove_pod(&mut self, key: &ObjectKey) {
        let uid = self.store.pods.get(key).map(|facts| facts.uid.clone());
        self.store.pods.delete(key);
        // Now, because a pod that is created again with the same name has the same uid here.
        uid.iter().for_each(|uid| _ = self.in_flight.settle_pod(uid, &self.store));
        self.waited.remove(key);
        self.timers.remove(key);
        self.bound.remove(key);
    }

    /// Gives the pods that were applied their priority. It depends on PriorityClasses that may come
    /// after the pods.
    fn admit_pods(&mut self) {
        for key in std::mem::take(&mut self.unadmitted) {
            let Some(facts) = self.store.pods.get(&key) else { continue };
            let class = facts.priority_class.clone();
            let admitted = admit(class.as_deref(), &self.store);
            self.change_pod(&key, |facts| {
                facts.priority = admitted.priority;
                facts.never_preempts |= admitted.never_preempts;
            });
            if let Some(class) = class.filter(|_| admitted.is_unknown) {
                self.unknown_classes.add(class, &key);
            }
        }
    }

    /// Lets controllers create their missing pods and stop those of Jobs that have ended.
    pub fn run_controllers(&mut self) {
        self.admit_pods();
        let changes = self.controllers.run(&mut self.store, self.now);
        for (pod, timer) in changes.created {
            let class = self.store.pods.get(&pod).and_then(|facts| facts.priority_class.clone());
            if let Some(class) = class.filter(|class| admit(Some(class), &self.store).is_unknown) {
                self.unknown_classes.add(class, &pod);
            }
            self.waited.remove(&pod);
            self.set_timer(pod, timer);
        }
        for pod in changes.deleted {
            self.terminate_pod(&pod);
        }
        self.run_claim_controllers();
    }

    /// Deletes a pod after the time that its termination takes.
    pub(crate) fn terminate_pod(&mut self, key: &ObjectKey) {
        self.waited.remove(key);
        if self.environment.termination_cycles == 0 {
            self.remove_pod(key);
        } else {
            let end = self.now + GRACE_PERIOD;
            self.change_pod(key, |facts| {
                facts.status = TaskStatus::Releasing;
                facts.terminates_at = Some(end);
            });
        }
    }

    /// Restores the state of a scheduler from a dump, including its time; decisions in flight have
    /// been applied.
    pub fn restore(&mut self, dump: Dump) {
        let Dump { taken, store, assumed } = dump;
        self.now = self.now.max(taken);
        self.store.absorb(store);
        for (pod, in_flight, since) in assumed.iter() {
            if matches!(in_flight, InFlight::Nominate { devices, .. } if !devices.is_empty()) {
                self.in_flight.insert(pod.clone(), in_flight.clone(), since);
            }
            if let InFlight::Bind { node, claims, devices, .. } = in_flight {
                self.bind_claims(claims, node);
                self.reserve_devices(devices, &pod);
            }
            self.change_pod(&pod.key, |facts| match in_flight {
                _ if facts.uid != pod.uid => {}
                InFlight::Bind { node, queue, .. } => {
                    if facts.status == TaskStatus::Pending {
                        facts.node = Some(node.clone());
                        facts.bound_queue.clone_from(queue);
                        facts.status = TaskStatus::Bound;
                    }
                }
                InFlight::Evict => facts.status = TaskStatus::Releasing,
                InFlight::Nominate { node, .. } => facts.nominated_node = Some(node.clone()),
                InFlight::Rejected { .. } | InFlight::Deallocate { .. } => {}
            });
        }
    }

    /// Moves the clock to the second after the creation of the youngest object. Objects without a
    /// creation time are created then: a job that is added to a cluster is younger than those in it.
    pub fn begin(&mut self) {
        let pods = self.store.pods.values().map(|facts| facts.created);
        let groups = self.store.groups.values().map(|facts| facts.created);
        let queues = self.store.queues.values().map(|facts| facts.created);
        let all = pods.chain(groups).chain(queues).chain(self.controllers.last_created());
        // The second after, so that they come after it in every order.
        let next = |last: Timestamp| last.checked_add(SignedDuration::from_secs(1)).ok();
        let start = all.max().filter(|last| *last > self.now).and_then(next).unwrap_or(self.now);
        self.now = start;
        self.arrivals.begin(start);
        self.timers.values_mut().filter_map(|(_, since)| since.as_mut()).for_each(|t| *t = start);
        macro_rules! redate {
            ($table:ident, $key:expr) => {
                if let Some(facts) = self.store.$table.get(&$key) {
                    let mut facts = (**facts).clone();
                    facts.created = start;
                    self.store.$table.apply($key, facts);
                }
            };
        }
        for (kind, served, key) in std::mem::take(&mut self.undated) {
            match (kind, served) {
                (Kind::Pod, _) => redate!(pods, key.clone()),
                (Kind::PodGroup, Served::Custom(version)) => {
                    redate!(groups, (key.clone(), version));
                }
                (Kind::Queue, Served::Custom(version)) => {
                    redate!(queues, (key.name.clone(), version));
                }
                _ => self.controllers.redate(kind.name(), &key, start),
            }
        }
    }

    /// Number of cycles whose decisions were applied.
    pub const fn n_cycles(&self) -> u64 {
        self.n_cycles
    }

    /// Whether time alone will change something: pods that will start, terminate or finish.
    pub fn is_in_motion(&self) -> bool {
        self.next_end().is_some() || self.has_pods_in_transition()
    }

    /// Whether pods will start or terminate.
    fn has_pods_in_transition(&self) -> bool {
        let Environment { kubelet, .. } = self.environment;
        self.store.pods.values().any(|facts| match facts.status {
            _ if facts.ended_in_deletion => true,
            TaskStatus::Releasing => true,
            TaskStatus::Bound => kubelet && self.has_node(facts),
            TaskStatus::Pending
            | TaskStatus::Allocated
            | TaskStatus::Pipelined
            | TaskStatus::Binding
            | TaskStatus::Running
            | TaskStatus::Succeeded
            | TaskStatus::Failed
            | TaskStatus::Stuck
            | TaskStatus::Unknown => false,
        })
    }

    /// Takes a snapshot of the current state.
    pub fn snapshot(&self) -> Snapshot {
        take_snapshot(&self.store, &self.in_flight, &self.options)
    }

    /// What the next cycle depends on. Kubelets have admitted the pods that are new on their nodes.
    pub(crate) fn begin_cycle(&mut self) -> CycleInput<'_> {
        self.admit_to_nodes();
        let Self { store, in_flight: assumed, now, .. } = self;
        let elapsed = now.duration_since(Timestamp::UNIX_EPOCH).unsigned_abs();
        CycleInput { store, assumed, now: *now, elapsed }
    }

    /// Applies the decisions of a cycle.
    pub(crate) fn apply_cycle(&mut self, outcome: &CycleResult) {
        let cycle = &outcome.cycle;
        self.n_cycles += 1;
        self.age_pods();
        self.pipelined = nominated(cycle);
        let now = self.now;
        self.next_due = cycle.next_due.and_then(|after| now.checked_add(after).ok());
        let cycle_id = format!("cycle-{}", self.n_cycles);
        let mut evictions = writes::eviction_events(&cycle.decisions, &self.store);
        let Writes { statuses, .. } =
            outcome.writes(&self.store, &self.in_flight, &cycle_id, self.now);
        for decision in &cycle.decisions {
            let events = match decision {
                Decision::Evict { pod, .. } => evictions.remove(&pod.uid).unwrap_or_default(),
                Decision::Bind { .. }
                | Decision::Nominate { .. }
                | Decision::Withdraw { .. }
                | Decision::Deallocate { .. } => Vec::new(),
            };
            self.apply_decision(decision, events);
        }
        statuses.into_iter().for_each(|write| self.apply_status(write));
        self.remember_nominations(&cycle.decisions);
        self.run_controllers();
    }

    /// Remembers the devices that were chosen for nominated pods: no object shows them.
    fn remember_nominations(&mut self, decisions: &[Decision]) {
        for decision in decisions {
            if matches!(decision, Decision::Nominate { .. } | Decision::Withdraw { .. }) {
                self.in_flight.note(decision, self.now);
            }
        }
        self.in_flight.settle(&self.store);
    }

    /// Lets the kubelets admit the pods whose creator named their node, or refuse them.
    fn admit_to_nodes(&mut self) {
        if !self.environment.kubelet {
            return;
        }
        for pod in kubelet::new_pods(&self.store) {
            let Some(has_room) = kubelet::has_room(&self.store, &pod) else { continue };
            self.change_pod(&pod.key, |facts| {
                facts.not_admitted = false;
                if !has_room {
                    facts.status = TaskStatus::Failed;
                }
            });
        }
    }

    /// Whether the node of a pod exists.
    fn has_node(&self, facts: &TaskFacts) -> bool {
        facts.node.as_ref().is_some_and(|node| self.store.nodes.get(node).is_some())
    }

    /// Deletes terminating pods and starts bound pods that have waited long enough.
    fn age_pods(&mut self) {
        let Environment { start_cycles, termination_cycles, kubelet } = self.environment;
        let waiting: Vec<(ObjectKey, TaskStatus)> = self
            .store
            .pods
            .values()
            .filter(|facts| {
                facts.status == TaskStatus::Releasing
                    || facts.status == TaskStatus::Bound && self.has_node(facts)
                    || facts.ended_in_deletion
            })
            .map(|facts| (facts.key.clone(), facts.status))
            .collect();
        for (key, status) in waiting {
            let waited = self.waited.entry(key.clone()).or_insert(0);
            *waited += 1;
            let waited = *waited;
            if status == TaskStatus::Bound {
                if kubelet && waited >= start_cycles {
                    self.start_pod(&key);
                }
            } else if waited >= termination_cycles {
                self.remove_pod(&key);
            }
        }
    }

    /// Lets a pod end when its time is over; one that runs starts to count now.
    pub(crate) fn set_timer(&mut self, key: ObjectKey, timer: Option<PodTimer>) {
        let Some(timer) = timer else {
            self.timers.remove(&key);
            return;
        };
        let runs = self.store.pods.get(&key).is_some_and(|f| f.status == TaskStatus::Running);
        self.timers.insert(key, (timer, runs.then_some(self.now)));
    }

    /// Ends pods whose time is over. Returns whether there were any.
    fn finish_pods(&mut self) -> bool {
        let now = self.now;
        let is_over = |since: Option<Timestamp>, timer: &PodTimer| {
            end_of(timer, since).is_some_and(|end| end <= now)
        };
        let finished: Vec<(ObjectKey, TaskStatus)> = self
            .timers
            .iter()
            .filter(|(_, (timer, since))| is_over(*since, timer))
            .map(|(key, (timer, _))| (key.clone(), timer.status))
            .collect();
        for (key, status) in &finished {
            self.timers.remove(key);
            self.change_pod(key, |facts| {
                if facts.status == TaskStatus::Running {
                    facts.status = *status;
                }
            });
        }
        !finished.is_empty()
    }

    fn start_pod(&mut self, key: &ObjectKey) {
        self.waited.remove(key);
        if let Some((_, since)) = self.timers.get_mut(key) {
            *since = Some(self.now);
        }
        let now = self.now;
        self.change_pod(key, |facts| {
            facts.status = TaskStatus::Running;
            facts.started = Some(now);
            facts.bound_at = None;
            facts.not_admitted = false;
        });
    }

    fn apply_decision(&mut self, decision: &Decision, events: Vec<writes::Event>) {
        match decision {
            Decision::Bind { pod, node, queue, minimum, claims, devices, protected_until } => {
                self.remember_group(&pod.key);
                self.record_wait(&pod.key);
                self.bind_claims(claims, node);
                self.reserve_devices(devices, pod);
                let now = self.now;
                self.change_pod(&pod.key, |facts| {
                    facts.node = Some(node.clone());
                    facts.bound_at = Some(now);
                    facts.bound_queue = Some(queue.clone());
                    facts.bound_minimum = Some(*minimum);
                    facts.protected_until = *protected_until;
                    facts.status = TaskStatus::Bound;
                    facts.nominated_node = None;
                    facts.unscheduled = None;
                });
                if self.environment.kubelet && self.environment.start_cycles == 0 {
                    self.start_pod(&pod.key);
                }
                self.emit(&writes::scheduled(pod, node));
                self.record.binds.push((pod.key.clone(), node.clone()));
            }
            Decision::Evict { pod, node, cause } => {
                self.remember_group(&pod.key);
                self.controllers.evict(pod.key.clone());
                self.terminate_pod(&pod.key);
                events.iter().for_each(|event| self.emit(event));
                let (pod, node, cause) = (pod.key.clone(), node.clone(), cause.clone());
                self.record.evictions.push(Eviction { pod, node, cause });
            }
            Decision::Deallocate { claim, .. } => self.deallocate(claim),
            // The status of the pod has it.
            Decision::Nominate { .. } | Decision::Withdraw { .. } => {}
        }
    }

    fn apply_status(&mut self, write: StatusWrite) {
        match write {
            StatusWrite::Pod { pod, nomination, waits } => {
                self.change_pod(&pod.key, |facts| match nomination {
                    Nomination::Unchanged => {}
                    Nomination::Clear => facts.nominated_node = None,
                    Nomination::Set(node) => facts.nominated_node = Some(node),
                });
                if let Some(Waits { reason, message, event, .. }) = waits {
                    let condition = (Name::from(reason), Name::from(message));
                    self.change_pod(&pod.key, |facts| facts.unscheduled = Some(condition));
                    event.iter().for_each(|event| self.emit(event));
                }
            }
            StatusWrite::Group { group, next, events, .. } => {
                let facts = GroupFacts { status: next, ..(*group).clone() };
                self.store.groups.apply((facts.key.clone(), facts.version), facts);
                events.iter().for_each(|event| self.emit(event));
            }
            StatusWrite::Queue { queue, next, events, .. } => {
                events.iter().for_each(|event| self.emit(event));
                let facts = QueueFacts { status: next, ..(*queue).clone() };
                self.store.queues.apply((facts.name.clone(), facts.version), facts);
            }
        }
    }

    /// Binds claims to volumes, as the volume controller and provisioners would.
    fn bind_claims(&mut self, claims: &[ClaimChoice], node: &Name) {
        for choice in claims {
            let claim = self.store.claims.get(&choice.claim);
            let Some(claim) = claim.filter(|claim| !claim.is_bound()) else { continue };
            let mut claim = ClaimFacts::clone(claim);
            let known = choice.volume.as_ref().and_then(|volume| self.store.volumes.get(volume));
            let mut volume = match known {
                Some(volume) => VolumeFacts::clone(volume),
                None => self.provision(&claim, choice.node(node)),
            };
            volume.claim = Some((claim.key.clone(), Some(claim.uid.clone())));
            volume.available = false;
            claim.volume = Some(volume.name.clone());
            claim.bind_completed = true;
            self.store.volumes.apply(volume.name.clone(), volume);
            self.store.claims.apply(claim.key.clone(), claim);
        }
    }

    /// A volume provisioned for a claim; the driver on the node, or else its class determines the topology.
    fn provision(&self, claim: &ClaimFacts, node: &Name) -> VolumeFacts {
        let class = claim.class.clone().unwrap_or_default();
        let name = Name::from(format!("pvc-{}", claim.uid));
        let facts = self.store.storage_classes.get(&class);
        let labels = self.store.nodes.get(node).map(|node| &node.labels);
        let mut places: Vec<NodeTerm> = Vec::new();
        let driver = facts.map(|class| &class.provisioner);
        let keys = driver.and_then(|driver| {
            self.store.csi_nodes.get(node).and_then(|node| node.topology_keys.get(driver))
        });
        if let Some((keys, labels)) = keys.zip(labels) {
            let value = |key: &Name| labels.get(key).cloned();
            let same =
                keys.iter().filter_map(|key| Some(Requirement::equals(key.clone(), value(key)?)));
            places.push(NodeTerm::of_labels(&same.collect::<Vec<_>>()));
        } else {
            for place in facts.iter().flat_map(|class| &class.topologies) {
                if labels.is_some_and(|labels| place.matches(labels)) {
                    places.push(NodeTerm::of_labels(place.requirements()));
                }
            }
        }
        VolumeFacts {
            labels: Labels::default(),
            capacity_bytes: claim.request_bytes,
            access_modes: claim.access_modes.clone(),
            volume_mode: claim.volume_mode.clone(),
            node_affinity: (!places.is_empty()).then_some(places),
            claim: None,
            available: true,
            csi: facts.map(|class| (class.provisioner.clone(), name.clone())),
            class,
            name,
        }
    }

    fn emit(&mut self, event: &writes::Event) {
        self.record.events.push(RecordedEvent {
            object: event.regarding.to_string(),
            type_: event.type_.name(),
            reason: event.reason,
            message: event.message.clone(),
        });
    }

    fn record_wait(&mut self, pod: &ObjectKey) {
        if let Some(facts) = self.store.pods.get(pod) {
            self.waits.push(self.now.duration_since(facts.created));
            self.bound.insert(pod.clone(), self.now);
        }
    }

    /// When the pod was bound, if that was in the simulation.
    pub fn bound_at(&self, pod: &ObjectKey) -> Option<Timestamp> {
        self.bound.get(pod).copied()
    }

    fn remember_group(&mut self, pod: &ObjectKey) {
        if let Some(facts) = self.store.pods.get(pod) {
            let group = group_of(facts, self.store.served());
            self.group_of.insert(pod.clone(), group);
        }
    }

    /// The group of a pod: its PodGroup, else its controller, else the pod itself.
    pub fn group_of(&self, pod: &ObjectKey) -> ObjectKey {
        let alive = self.store.pods.get(pod).map(|facts| group_of(facts, self.store.served()));
        alive.or_else(|| self.group_of.get(pod).cloned()).unwrap_or_else(|| pod.clone())
    }

    /// All pods, in order of namespace and name.
    pub fn pods(&self) -> impl Iterator<Item = &Arc<TaskFacts>> {
        self.store.pods.values()
    }
}

/// When a pod ends that has run since this time.
fn end_of(timer: &PodTimer, since: Option<Timestamp>) -> Option<Timestamp> {
    // A time beyond the calendar is never.
    since?.checked_add(timer.after).ok()
}

fn group_of(facts: &TaskFacts, served: ServedApis) -> ObjectKey {
    facts.job_key(served).object().clone()
}

/// Pods that have a place they must wait for, and where.
fn nominated(cycle: &Cycle) -> Vec<(ObjectKey, Name)> {
    let nominated = cycle.decisions.iter().filter_map(|decision| match decision {
        Decision::Nominate { pod, node, .. } => Some((pod.key.clone(), node.clone())),
        Decision::Bind { .. }
        | Decision::Evict { .. }
        | Decision::Deallocate { .. }
        | Decision::Withdraw { .. } => None,
    });
    nominated.collect()
}
