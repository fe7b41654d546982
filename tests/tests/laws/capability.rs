//! Law: whatever the users of a namespace change, and whenever the scheduler sees it, the amounts that it bound
//! from a queue never exceed the capability of the queue (docs/parity.md#d6, docs/parity.md#a7).
//!
//! Users create, gate, delete and finish pods, move them between PodGroups, give PodGroups other queues, delete
//! them, and write the annotation that records the queue. Watch events come late, some not at all; bindings are
//! carried out late. With the admission policy, leaders change. An administrator deletes and creates a queue.
//! The model knows nothing of jobs: it adds up what was bound.
//!
//! `KUBE_BATCH_SEEDS=20000 cargo test -p kube-batch-tests --test laws capability::` runs more histories.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube_batch_api::{
    dialect::RawObject,
    kind::{ApplyObject as _, WatchedKind as _},
};
use kube_batch_cache::snapshot::SnapshotOptions;
use kube_batch_framework::memory::Memory;
use kube_batch_model::{
    decision::Decision,
    group_version::GroupVersion,
    membership::BOUND_QUEUE_ANNOTATION,
    name::{Name, ObjectKey},
};
use kube_batch_tests::{leader::Leader, random_cluster::Rng, seeds::seeds};
use serde_json::{Value, json};

/// Queues, and how much CPU each may use.
const QUEUES: [(&str, u64); 3] = [("a", 6), ("b", 4), ("free", u64::MAX)];
/// The queues that users name; the last one does not exist.
const NAMED: [&str; 4] = ["a", "b", "free", "nowhere"];
const GROUPS: [&str; 3] = ["g0", "g1", "g2"];
const STEPS: u32 = 150;

/// Shares are computed with the first; there are no shares with the second.
const CONFIGURATIONS: [&str; 2] = [
    "actions: reclaim, allocate, backfill, preempt
tiers:
- plugins: [{name: priority}, {name: gang, arguments: {gang.evictWholeGangs: true}}]
- plugins: [{name: drf}, {name: predicates}, {name: proportion}, {name: nodeorder}]
",
    "actions: allocate, preempt
tiers:
- plugins: [{name: priority}, {name: gang}, {name: predicates}]
",
];

#[test]
fn what_was_bound_from_a_queue_never_exceeds_its_capability() {
    let seeds = seeds(1_000);
    let (mut n_bound, mut n_full) = (0, 0);
    for seed in &seeds {
        let mut world = World::new(*seed);
        for step in 0..STEPS {
            world.step();
            if let Some(excess) = world.excess() {
                panic!("SEED={seed}, step {step}: {excess}");
            }
        }
        n_bound += world.n_bound;
        n_full += u64::from(world.was_full);
    }
    let n_seeds = seeds.len() as u64;
    println!("{n_bound} pods bound in {n_seeds} histories; in {n_full} a queue was full");
    let test_enough = n_bound > 4 * n_seeds && n_full > n_seeds / 6;
    assert!(n_seeds < 100 || test_enough, "the histories test too little");
}

/// A change that the scheduler has not seen yet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Pod(String),
    Group(&'static str),
    NativeGroup(&'static str),
    Queue(&'static str),
}

struct World {
    rng: Rng,
    /// Whether the annotation that records the queue is protected; otherwise the leader never changes.
    has_policy: bool,
    configuration: &'static str,
    /// The API server.
    pods: BTreeMap<String, Value>,
    groups: BTreeMap<&'static str, Value>,
    native_groups: BTreeMap<&'static str, Value>,
    queues: BTreeSet<&'static str>,
    n_created: u64,
    /// The model: the queue and the CPU of each pod that was bound, by uid.
    bound: BTreeMap<String, (String, u64)>,
    n_bound: u64,
    was_full: bool,
    /// The scheduler.
    unseen: BTreeSet<Key>,
    to_send: Vec<Decision>,
    leader: Leader,
    now: Timestamp,
}

fn leader(configuration: &str) -> Leader {
    let options = SnapshotOptions { default_queue: "free".into(), ..SnapshotOptions::default() };
    Leader::new(configuration, options, Memory::none())
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let configuration = CONFIGURATIONS[rng.below(2) as usize];
        let mut world = Self {
            has_policy: rng.percent(50),
            configuration,
            pods: BTreeMap::new(),
            groups: BTreeMap::new(),
            native_groups: BTreeMap::new(),
            queues: QUEUES.map(|(name, _)| name).into(),
            n_created: 0,
            bound: BTreeMap::new(),
            n_bound: 0,
            was_full: false,
            unseen: BTreeSet::new(),
            to_send: Vec::new(),
            leader: leader(configuration),
            now: "2025-01-01T00:00:00Z".parse().expect("a timestamp"),
            rng,
        };
        for group in GROUPS {
            world.write_group(group);
        }
        world.list();
        world
    }

    fn step(&mut self) {
        self.now += SignedDuration::from_secs(1);
        match self.rng.below(24) {
            0..5 => self.create_pod(),
            5..10 => self.change_pod(),
            10 => {
                let group = self.group();
                self.write_group(group);
            }
            11 => {
                let group = self.group();
                self.groups.remove(group);
                self.unseen.insert(Key::Group(group));
            }
            12 => {
                let group = self.group();
                self.native_groups.remove(group);
                self.unseen.insert(Key::NativeGroup(group));
            }
            13 if self.rng.percent(20) => {
                if !self.queues.remove("b") {
                    self.queues.insert("b");
                }
                self.unseen.insert(Key::Queue("b"));
            }
            14 if self.has_policy && self.rng.percent(30) => self.change_leader(),
            15..17 => self.send_some(),
            _ => self.cycle(),
        }
        self.deliver(50);
    }

    fn group(&mut self) -> &'static str {
        GROUPS[self.rng.below(GROUPS.len() as u64) as usize]
    }

    fn queue(&mut self) -> &'static str {
        NAMED[self.rng.below(NAMED.len() as u64) as usize]
    }

    fn write_group(&mut self, group: &'static str) {
        let queue = self.queue();
        let min = 1 + self.rng.below(3);
        if self.rng.percent(50) {
            let spec = json!({"minMember": min, "queue": queue});
            self.groups.insert(group, json!({"metadata": self.meta(group), "spec": spec}));
            self.unseen.insert(Key::Group(group));
        } else {
            let mut meta = self.meta(group);
            meta["labels"] = json!({"scheduling.sigs.dev/queue": queue});
            // Composite PodGroups do not exist here.
            let parent = self.rng.percent(20).then_some("missing");
            let spec = json!({
                "schedulingPolicy": {"gang": {"minCount": min}}, "priority": 0,
                "parentCompositePodGroupName": parent,
            });
            self.native_groups.insert(group, json!({"metadata": meta, "spec": spec}));
            self.unseen.insert(Key::NativeGroup(group));
        }
    }

    fn meta(&self, name: &str) -> Value {
        json!({"name": name, "namespace": "ns", "creationTimestamp": self.now.to_string()})
    }

    fn create_pod(&mut self) {
        let name = format!("p{}", self.rng.below(16));
        if self.pods.contains_key(&name) {
            return;
        }
        self.n_created += 1;
        let mut meta = self.meta(&name);
        meta["uid"] = json!(format!("{name}-{}", self.n_created));
        meta["annotations"] = self.annotations();
        meta["labels"] = json!({"scheduling.sigs.dev/queue": self.queue()});
        let cpu = 1 + self.rng.below(2);
        let group = self.group();
        let mut spec = json!({
            "schedulerName": if self.rng.percent(90) { "kube-batch" } else { "other" },
            "priority": if self.rng.percent(80) { 0 } else { 5 },
            "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu.to_string()}}}],
        });
        if self.rng.percent(20) {
            spec["schedulingGates"] = json!([{"name": "gate"}]);
        }
        if self.rng.percent(40) {
            spec["schedulingGroup"] = json!({"podGroupName": group});
        }
        let pod = json!({"metadata": meta, "spec": spec, "status": {"phase": "Pending"}});
        self.write_pod(name, pod);
    }

    /// Annotations as a user writes them.
    fn annotations(&mut self) -> Value {
        let mut annotations = json!({});
        if self.rng.percent(40) {
            annotations["scheduling.k8s.io/group-name"] = json!(self.group());
        }
        if !self.has_policy && self.rng.percent(30) {
            annotations[BOUND_QUEUE_ANNOTATION] = json!(self.queue());
        }
        annotations
    }

    fn change_pod(&mut self) {
        let names: Vec<String> = self.pods.keys().cloned().collect();
        if names.is_empty() {
            return;
        }
        let name = names[self.rng.below(names.len() as u64) as usize].clone();
        let mut pod = self.pods[&name].clone();
        let is_bound = pod["spec"]["nodeName"].is_string();
        match self.rng.below(8) {
            // A pod that is being terminated ends too.
            0 if is_bound => {
                let ending = ["Succeeded", "Failed"][self.rng.below(2) as usize];
                pod["status"]["phase"] = json!(ending);
            }
            1 => {
                let is_over = !is_bound
                    || ["Succeeded", "Failed"]
                        .contains(&pod["status"]["phase"].as_str().unwrap_or_default())
                    || pod["metadata"]["deletionTimestamp"].is_string() && self.rng.percent(50);
                if is_over {
                    self.remove_pod(name);
                    return;
                }
                pod["metadata"]["deletionTimestamp"] =
                    json!((self.now + SignedDuration::from_secs(30)).to_string());
                pod["metadata"]["deletionGracePeriodSeconds"] = json!(30);
            }
            2 => drop(pod["spec"].as_object_mut().expect("an object").remove("schedulingGates")),
            3 => pod["metadata"]["labels"] = json!({"scheduling.sigs.dev/queue": self.queue()}),
            _ => {
                let known = pod["metadata"]["annotations"][BOUND_QUEUE_ANNOTATION].clone();
                pod["metadata"]["annotations"] = self.annotations();
                if self.has_policy && known.is_string() {
                    pod["metadata"]["annotations"][BOUND_QUEUE_ANNOTATION] = known;
                }
            }
        }
        self.write_pod(name, pod);
    }

    fn write_pod(&mut self, name: String, pod: Value) {
        let phase = pod["status"]["phase"].as_str().unwrap_or_default();
        if ["Succeeded", "Failed"].contains(&phase) {
            self.bound.remove(pod["metadata"]["uid"].as_str().expect("a uid"));
        }
        self.unseen.insert(Key::Pod(name.clone()));
        self.pods.insert(name, pod);
    }

    fn remove_pod(&mut self, name: String) {
        if let Some(pod) = self.pods.remove(&name) {
            self.bound.remove(pod["metadata"]["uid"].as_str().expect("a uid"));
        }
        self.unseen.insert(Key::Pod(name));
    }

    /// Shows some changes to the scheduler, each object as it is now: what it was between is lost, as after a
    /// watch broke.
    fn deliver(&mut self, percent: u64) {
        for key in self.unseen.clone() {
            if self.rng.percent(percent) {
                self.unseen.remove(&key);
                self.show(&key);
            }
        }
    }

    fn show(&mut self, key: &Key) {
        match key {
            Key::Pod(name) => match self.pods.get(name) {
                Some(pod) => {
                    let pod: Pod = serde_json::from_value(pod.clone()).expect("a pod");
                    let Leader { store, assumed, .. } = &mut self.leader;
                    let mut facts = pod.facts(store.interner_mut()).expect("facts");
                    if let Some(queue) = assumed.bound_queue(&facts) {
                        facts.bound_queue = Some(queue);
                    }
                    store.put(facts);
                }
                None => drop(self.leader.store.pods.delete(&ObjectKey::new("ns", name.as_str()))),
            },
            Key::Group(name) => {
                let object = self.groups.get(name).cloned();
                self.show_group(name, GroupVersion::V1Alpha2, object);
            }
            Key::NativeGroup(name) => {
                let object = self.native_groups.get(name).cloned();
                self.show_group(name, GroupVersion::Kubernetes, object);
            }
            Key::Queue(name) => self.show_queue(name),
        }
    }

    fn show_group(&mut self, name: &str, version: GroupVersion, object: Option<Value>) {
        match object {
            Some(object) => {
                let object: RawObject = serde_json::from_value(object).expect("an object");
                self.leader.store.apply_group(version, &object).expect("facts");
            }
            None => drop(self.leader.store.groups.delete(&(ObjectKey::new("ns", name), version))),
        }
    }

    fn show_queue(&mut self, name: &str) {
        let version = GroupVersion::V1Alpha2;
        if !self.queues.contains(name) {
            self.leader.store.queues.delete(&(Name::from(name), version));
            return;
        }
        let limit =
            QUEUES.iter().find(|(own, _)| *own == name).map_or(u64::MAX, |(_, limit)| *limit);
        let capability =
            if limit == u64::MAX { json!({}) } else { json!({"cpu": limit.to_string()}) };
        let queue = json!({
            "metadata": {"name": name}, "spec": {"weight": 1, "capability": capability},
        });
        let queue: RawObject = serde_json::from_value(queue).expect("an object");
        self.leader.store.apply_queue(version, &queue).expect("facts");
    }

    /// Shows everything that exists to an empty store.
    fn list(&mut self) {
        self.unseen.clear();
        self.leader.store.set_served(GroupVersion::Kubernetes, true);
        let node = json!({
            "metadata": {"name": "n0"}, "status": {"allocatable": {"cpu": "20", "pods": "99"}},
        });
        self.leader
            .store
            .apply::<Node>(&serde_json::from_value(node).expect("a node"))
            .expect("facts");
        let queues = QUEUES.iter().map(|(name, _)| Key::Queue(name));
        let groups = GROUPS.iter().flat_map(|name| [Key::Group(name), Key::NativeGroup(name)]);
        let pods = self.pods.keys().cloned().map(Key::Pod);
        for key in queues.chain(groups).chain(pods).collect::<Vec<_>>() {
            self.show(&key);
        }
    }

    /// The next leader knows what the API server has; what was on its way arrives before or never.
    fn change_leader(&mut self) {
        for decision in std::mem::take(&mut self.to_send) {
            if self.rng.percent(50) {
                self.carry_out(&decision);
            }
        }
        self.leader = leader(self.configuration);
        self.list();
    }

    fn cycle(&mut self) {
        let cycle = self.leader.cycle(self.now);
        for decision in cycle.decisions {
            if self.leader.assumed.note(&decision, self.now) {
                self.to_send.push(decision);
            }
        }
    }

    fn send_some(&mut self) {
        for decision in std::mem::take(&mut self.to_send) {
            if self.rng.percent(70) {
                self.carry_out(&decision);
            } else {
                self.to_send.push(decision);
            }
        }
    }

    /// What the API server does with a decision.
    fn carry_out(&mut self, decision: &Decision) {
        let pod = decision.pod();
        let name = pod.key.name.to_string();
        let known = self.pods.get(&name).cloned();
        let Some(mut object) = known.filter(|known| known["metadata"]["uid"] == json!(&*pod.uid))
        else {
            return self.leader.assumed.forget(&pod.uid);
        };
        let is_deleted = object["metadata"]["deletionTimestamp"].is_string();
        match decision {
            Decision::Bind { queue, node, .. } => {
                if object["spec"]["nodeName"].is_string() || is_deleted {
                    return self.leader.assumed.forget(&pod.uid);
                }
                object["spec"]["nodeName"] = json!(&**node);
                object["metadata"]["annotations"][BOUND_QUEUE_ANNOTATION] = json!(&**queue);
                object["status"]["phase"] = json!("Running");
                let cpu = object["spec"]["containers"][0]["resources"]["requests"]["cpu"].as_str();
                let cpu = cpu.and_then(|cpu| cpu.parse().ok()).expect("CPUs");
                self.bound.insert(pod.uid.to_string(), (queue.to_string(), cpu));
                self.n_bound += 1;
            }
            Decision::Evict { .. } => {
                object["metadata"]["deletionTimestamp"] =
                    json!((self.now + SignedDuration::from_secs(30)).to_string());
                object["metadata"]["deletionGracePeriodSeconds"] = json!(30);
            }
            Decision::Nominate { .. } | Decision::Withdraw { .. } | Decision::Deallocate { .. } => {
                return;
            }
        }
        self.write_pod(name, object);
    }

    /// What is bound from a queue beyond its capability.
    fn excess(&mut self) -> Option<String> {
        for (queue, limit) in QUEUES {
            let used: u64 =
                self.bound.values().filter(|(own, _)| own == queue).map(|(_, cpu)| cpu).sum();
            self.was_full |= used == limit;
            if used > limit {
                return Some(format!(
                    "{used} CPUs were bound from queue {queue}, which may use {limit}"
                ));
            }
        }
        None
    }
}
