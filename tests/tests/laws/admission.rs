//! Law: what counts against the capability of a queue never exceeds it because a PodGroup is admitted or starts
//! (docs/parity.md#k2). Of a PodGroup that counts, that is the larger of its `minResources` and of what it holds; of
//! all others, what they hold.
//!
//! Controllers create PodGroups, and pods once these are `Inqueue` or before, and delete them; pods finish, and are
//! preempted; time passes. The model follows what an API server shows: phases, and which pods have a node.
//!
//! `KUBE_BATCH_SEEDS=20000 cargo test -p kube-batch-tests --test laws admission::` runs more histories.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::{
    core::v1::{self, Node},
    scheduling::v1::PriorityClass,
};
use kube_batch_api::{dialect::RawObject, kind::ApplyObject as _};
use kube_batch_cache::snapshot::SnapshotOptions;
use kube_batch_framework::{memory::Memory, report::next_group_status};
use kube_batch_model::{
    decision::Decision, dialect::Transition, group_version::GroupVersion, name::ObjectKey,
};
use kube_batch_tests::{leader::Leader, random_cluster::Rng, seeds::seeds};
use serde_json::{Value, json};

/// Queues, and how much CPU each may use.
const QUEUES: [(&str, u64); 2] = [("a", 6), ("b", 4)];
const STEPS: u32 = 150;
const VERSION: GroupVersion = GroupVersion::Volcano;

const CONFIGURATION: &str = "actions: reclaim, allocate, backfill, preempt
tiers:
- plugins: [{name: priority}, {name: gang, arguments: {gang.evictWholeGangs: true}}]
- plugins: [{name: drf}, {name: predicates}, {name: proportion}, {name: nodeorder}]
";

#[test]
fn no_admission_and_no_start_makes_a_queue_count_more_than_its_capability() {
    let seeds = seeds(150);
    let mut seen = BTreeMap::new();
    for seed in &seeds {
        let mut world = World::new(*seed);
        for step in 0..STEPS {
            world.step();
            if let Some(excess) = world.cycle() {
                panic!("SEED={seed}, step {step}: {excess}");
            }
        }
        for (kind, n) in world.seen {
            *seen.entry(kind).or_insert(0) += n;
        }
    }
    println!("{seen:?} in {} histories", seeds.len());
    for kind in ["admitted", "refused", "started", "held all", "lapsed", "waits to start"] {
        let is_enough = seen.get(kind).is_some_and(|n| *n > seeds.len() as u64 / 4);
        assert!(seeds.len() < 100 || is_enough, "too few: {kind} in {seen:?}");
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// Since then; whether one of its pods has had a node.
    Counts(Timestamp, bool),
    Lapsed,
    Done,
}

#[derive(Debug)]
struct Group {
    queue: usize,
    /// 0 if it has no `minResources`.
    min: u64,
    object: Value,
    state: State,
}

#[derive(Debug)]
struct Pod {
    group: String,
    cpu: u64,
    created: Timestamp,
    is_bound: bool,
    is_finished: bool,
    object: Value,
}

struct World {
    rng: Rng,
    groups: BTreeMap<String, Group>,
    pods: BTreeMap<String, Pod>,
    n_created: u64,
    leader: Leader,
    now: Timestamp,
    seen: BTreeMap<&'static str, u64>,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut world = Self {
            rng: Rng::new(seed),
            groups: BTreeMap::new(),
            pods: BTreeMap::new(),
            n_created: 0,
            leader: Leader::new(CONFIGURATION, SnapshotOptions::default(), Memory::default()),
            now: "2025-01-01T00:00:00Z".parse().expect("a timestamp"),
            seen: BTreeMap::new(),
        };
        let node = json!({
            "metadata": {"name": "n0"}, "status": {"allocatable": {"cpu": "8", "pods": "99"}},
        });
        world
            .leader
            .store
            .apply::<Node>(&serde_json::from_value(node).expect("a node"))
            .expect("facts");
        for (name, limit) in QUEUES {
            let spec = json!({"weight": 1, "capability": {"cpu": limit.to_string()}});
            let queue = json!({"metadata": {"name": name}, "spec": spec});
            let queue: RawObject = serde_json::from_value(queue).expect("an object");
            world.leader.store.apply_queue(VERSION, &queue).expect("facts");
        }
        let class = json!({"metadata": {"name": "high"}, "value": 10});
        let class: PriorityClass = serde_json::from_value(class).expect("a class");
        world.leader.store.apply(&class).expect("facts");
        world
    }

    fn count(&mut self, kind: &'static str) {
        *self.seen.entry(kind).or_default() += 1;
    }

    fn step(&mut self) {
        let pause = if self.rng.percent(8) { self.rng.below(400) as i64 } else { 1 };
        self.now += SignedDuration::from_secs(pause);
        let group = format!("g{}", self.rng.below(6));
        match self.rng.below(10) {
            0 | 1 if !self.groups.contains_key(&group) => self.create_group(group),
            2 if self.rng.percent(20) => self.delete_group(&group),
            // Controllers create pods when they may, and some before.
            3..7 => {
                let phase = self.groups.get(&group).map(|group| phase(&group.object).to_owned());
                let may = phase.is_some_and(|phase| phase != "Pending" && !phase.is_empty());
                if may || self.rng.percent(15) {
                    self.create_pod(group);
                }
            }
            7 | 8 => self.end_pod(),
            _ => {}
        }
    }

    fn create_group(&mut self, name: String) {
        self.n_created += 1;
        let queue = self.rng.below(2) as usize;
        let min = if self.rng.percent(80) { 1 + self.rng.below(5) } else { 0 };
        let mut spec = json!({"minMember": 1 + self.rng.below(2), "queue": QUEUES[queue].0});
        if min > 0 {
            // As the controller of Volcano writes it.
            spec["minResources"] = json!({"cpu": min.to_string(), "requests.cpu": min.to_string()});
        }
        if self.rng.percent(20) {
            spec["priorityClassName"] = json!("high");
        }
        let meta = self.meta(&name);
        let object = json!({"metadata": meta, "spec": spec, "status": {"phase": "Pending"}});
        self.apply_group(&object);
        self.groups.insert(name, Group { queue, min, object, state: State::Open });
    }

    fn meta(&self, name: &str) -> Value {
        json!({
            "name": name, "namespace": "ns", "creationTimestamp": self.now.to_string(),
            "uid": format!("{name}-{}", self.n_created),
        })
    }

    fn apply_group(&mut self, object: &Value) {
        let object: RawObject = serde_json::from_value(object.clone()).expect("an object");
        self.leader.store.apply_group(VERSION, &object).expect("facts");
    }

    fn delete_group(&mut self, name: &str) {
        if self.groups.remove(name).is_none() {
            return;
        }
        self.leader.store.groups.delete(&(ObjectKey::new("ns", name), VERSION));
        let own = self.pods.iter().filter(|(_, pod)| pod.group == name);
        for pod in own.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
            self.remove_pod(&pod);
        }
    }

    fn create_pod(&mut self, group: String) {
        if !self.groups.contains_key(&group) {
            return;
        }
        self.n_created += 1;
        let name = format!("p{}", self.n_created);
        let cpu = 1 + self.rng.below(2);
        let mut meta = self.meta(&name);
        meta["annotations"] = json!({"scheduling.k8s.io/group-name": group});
        let spec = json!({
            "schedulerName": "kube-batch",
            "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu.to_string()}}}],
        });
        let object = json!({"metadata": meta, "spec": spec, "status": {"phase": "Pending"}});
        let created = self.now;
        let pod = Pod { group, cpu, created, is_bound: false, is_finished: false, object };
        self.pods.insert(name.clone(), pod);
        self.apply_pod(&name);
    }

    fn apply_pod(&mut self, name: &str) {
        let pod: v1::Pod = serde_json::from_value(self.pods[name].object.clone()).expect("a pod");
        self.leader.store.apply(&pod).expect("facts");
    }

    fn remove_pod(&mut self, name: &str) {
        self.pods.remove(name);
        self.leader.store.pods.delete(&ObjectKey::new("ns", name));
    }

    fn end_pod(&mut self) {
        let names: Vec<String> = self.pods.keys().cloned().collect();
        if names.is_empty() {
            return;
        }
        let name = &names[self.rng.below(names.len() as u64) as usize];
        if self.pods[name].is_bound && self.rng.percent(60) {
            let pod = self.pods.get_mut(name).expect("it is there");
            pod.is_finished = true;
            pod.object["status"]["phase"] = json!("Succeeded");
            self.apply_pod(name);
        } else {
            self.remove_pod(name);
        }
    }

    fn own_pods<'w>(&'w self, group: &'w str) -> impl Iterator<Item = &'w Pod> {
        self.pods.values().filter(move |pod| pod.group == group)
    }

    fn held(&self, group: &str) -> u64 {
        let held = self.own_pods(group).filter(|pod| pod.is_bound && !pod.is_finished);
        held.map(|pod| pod.cpu).sum()
    }

    /// What counts against the capability of a queue.
    fn counted(&self, queue: usize) -> u64 {
        let groups = self.groups.iter().filter(|(_, group)| group.queue == queue);
        let counted = groups.map(|(name, group)| match group.state {
            State::Counts(..) => group.min.max(self.held(name)),
            State::Open | State::Lapsed | State::Done => self.held(name),
        });
        counted.sum()
    }

    /// Follows what has changed since the last cycle.
    fn follow(&mut self) {
        for name in self.groups.keys().cloned().collect::<Vec<_>>() {
            let created = self.own_pods(&name).map(|pod| pod.created).max();
            let has_pods = created.is_some();
            let is_finished = has_pods && self.own_pods(&name).all(|pod| pod.is_finished);
            let holds = self.held(&name) > 0;
            let group = &self.groups[&name];
            let state = match group.state {
                State::Done if has_pods => State::Done,
                State::Counts(_, true) if !holds => State::Open,
                _ if is_finished => State::Open,
                State::Counts(since, has_started) => {
                    let last = created.map_or(since, |created| created.max(since));
                    match self.now >= last + SignedDuration::from_mins(10) {
                        false => State::Counts(since, has_started),
                        true if has_started => State::Done,
                        true if has_pods => State::Open,
                        true => State::Lapsed,
                    }
                }
                State::Lapsed if !has_pods && phase(&group.object) == "Inqueue" => State::Lapsed,
                State::Open | State::Lapsed | State::Done => State::Open,
            };
            if state == State::Lapsed && group.state != state {
                self.count("lapsed");
            }
            self.groups.get_mut(&name).expect("it is there").state = state;
        }
    }

    /// Follows what a cycle has done.
    fn follow_cycle(&mut self) {
        for name in self.groups.keys().cloned().collect::<Vec<_>>() {
            let (held, has_pods) = (self.held(&name), self.own_pods(&name).next().is_some());
            let Group { min, state, ref object, .. } = self.groups[&name];
            let is_inqueue = phase(object) == "Inqueue";
            let (next, kind) = match state {
                _ if min == 0 => (state, None),
                State::Open | State::Counts(..) if held >= min => (State::Done, Some("held all")),
                State::Open if held > 0 => (State::Counts(self.now, true), Some("started")),
                // It was preempted as a whole.
                State::Counts(_, true) if held == 0 => (State::Open, None),
                State::Counts(_, false) if held > 0 => (State::Counts(self.now, true), None),
                State::Open if !has_pods && is_inqueue => {
                    (State::Counts(self.now, false), Some("admitted"))
                }
                State::Open if !has_pods => (state, Some("refused")),
                State::Open => (state, Some("waits to start")),
                State::Lapsed if !is_inqueue => (State::Open, None),
                State::Counts(..) | State::Lapsed | State::Done => (state, None),
            };
            self.groups.get_mut(&name).expect("it is there").state = next;
            if let Some(kind) = kind {
                self.count(kind);
            }
        }
    }

    /// Runs a cycle, and carries out what it decides. Returns what contradicts the law.
    fn cycle(&mut self) -> Option<String> {
        self.follow();
        let before = [0, 1].map(|queue| self.counted(queue));
        let cycle = self.leader.cycle(self.now);
        let decided = cycle.decisions.clone();
        for decision in &cycle.decisions {
            let name = decision.pod().key.name.to_string();
            match decision {
                Decision::Bind { .. } => {
                    let started = self.now.to_string();
                    let pod = self.pods.get_mut(&name).expect("it is there");
                    pod.is_bound = true;
                    pod.object["spec"]["nodeName"] = json!("n0");
                    pod.object["status"] = json!({"phase": "Running", "startTime": started});
                    self.apply_pod(&name);
                }
                Decision::Evict { .. } => {
                    self.remove_pod(&name);
                    self.count("evicted");
                }
                Decision::Nominate { .. }
                | Decision::Withdraw { .. }
                | Decision::Deallocate { .. } => {}
            }
        }
        for report in cycle.jobs.iter() {
            let at = Transition { cycle_id: "c", now: self.now };
            if let Some(status) = next_group_status(report, at) {
                let name = report.key.object().name.to_string();
                let group = self.groups.get_mut(&name).expect("it is there");
                group.object["status"] = json!({"phase": status.phase});
                let object = group.object.clone();
                self.apply_group(&object);
            }
        }
        self.follow_cycle();
        (0..QUEUES.len()).find_map(|queue| {
            let (name, limit) = QUEUES[queue];
            let after = self.counted(queue);
            (after > limit.max(before[queue])).then(|| {
                format!(
                    "{after} CPUs count in queue {name}, which may use {limit}, and {} before: {:#?}\n{:#?}\n{decided:?}",
                    before[queue], self.groups, self.pods.iter().map(|(n, p)| (n, &p.group, p.cpu, p.is_bound, p.is_finished)).collect::<Vec<_>>()
                )
            })
        })
    }
}

fn phase(object: &Value) -> &str {
    object["status"]["phase"].as_str().unwrap_or_default()
}
