//! One episode: a cluster, a script, and then a calm time after which everything must be in order.

use std::sync::{Arc, atomic::Ordering};

use fastrand::Rng;
use kube_batch::Registry;
use serde_json::{Value, json};
use tokio::{
    task::LocalSet,
    time::{Duration, Instant, sleep, sleep_until},
};

use crate::{
    checks,
    network::Shared,
    replicas::{Offset, Process},
    script::{Action, Hostility, N_REPLICAS, Script},
    server::{
        CLAIMS, GROUPS, Key, NAMESPACES, NODES, PODS, PRIORITY_CLASSES, QUEUES, STORAGE_CLASSES,
    },
    traffic::Faults,
    world::{Chore, World},
};

/// How long the calm time takes: longer than every deadline and back-off of the scheduler.
const CALM: Duration = Duration::from_secs(900);
/// In this time at the end nothing may be written.
const QUIET: Duration = Duration::from_secs(120);
/// The namespace of all objects.
const NAMESPACE: &str = "tenant";

/// How an episode ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// The rule that was broken.
    pub(crate) broken: Option<String>,
    pub(crate) n_steps: u64,
    pub(crate) n_bindings: u64,
    pub(crate) n_evictions: u64,
    pub(crate) hash: u64,
    /// The last lines of the trace.
    pub(crate) lines: Vec<String>,
}

/// Runs an episode.
pub(crate) fn run(seed: u64, script: &Script, registry: &Registry) -> Ended {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    let _guard = runtime.enter();
    let shared = Shared::new(World::new(seed));
    let set = LocalSet::new();
    let script = script.clone();
    let (world, registry) = (shared.clone(), registry.clone());
    set.block_on(&runtime, async move { Episode::new(world, registry).play(&script).await });
    let world = shared.lock();
    Ended {
        broken: world.broken().map(str::to_owned),
        n_steps: world.n_steps(),
        n_bindings: world.n_bindings,
        n_evictions: world.n_evictions,
        hash: world.hash(),
        lines: world.lines().map(str::to_owned).collect(),
    }
}

struct Episode {
    shared: Shared,
    registry: Registry,
    processes: Vec<Process>,
    offsets: Vec<Offset>,
    n_started: usize,
    n_created: usize,
    /// What ends at a time: faults and frozen replicas.
    ends: Vec<(Instant, End)>,
}

#[derive(Clone, Copy, Debug)]
enum End {
    Faults(usize),
    Freeze(usize),
}

impl Episode {
    fn new(shared: Shared, registry: Registry) -> Self {
        let offsets = (0..N_REPLICAS).map(|_| Arc::default()).collect();
        let (processes, ends) = (Vec::new(), Vec::new());
        Self { shared, registry, processes, offsets, n_started: 0, n_created: 0, ends }
    }

    async fn play(mut self, script: &Script) {
        self.create_cluster();
        for replica in 0..N_REPLICAS {
            let process = self.start_process(replica);
            self.processes.push(process);
        }
        let mut time = Instant::now();
        for (pause, action) in script {
            time += *pause;
            self.wait_until(time).await;
            if self.shared.lock().broken().is_some() {
                return;
            }
            self.act(*action);
            self.shared.notify();
        }
        self.calm_down();
        self.wait_until(Instant::now() + CALM).await;
        if self.shared.lock().broken().is_none() {
            checks::at_the_end(&self.shared, &self.processes, QUIET, &self.registry);
        }
        for process in &self.processes {
            process.kill();
        }
        sleep(Duration::from_millis(1)).await;
    }

    /// Lets time pass, in which chores are done and faults end.
    async fn wait_until(&mut self, time: Instant) {
        loop {
            let chore = self.shared.lock().next_chore();
            let end = self.ends.iter().map(|(at, _)| *at).min();
            // Chores that others cause meanwhile are seen in time.
            let soon = Instant::now() + Duration::from_millis(50);
            let next = [Some(time), chore, end, Some(soon)].into_iter().flatten().min();
            sleep_until(next.expect("a time")).await;
            if self.shared.lock().do_chores() {
                self.shared.notify();
            }
            self.end_what_is_due();
            self.replace_ended();
            if Instant::now() >= time {
                return;
            }
        }
    }

    fn end_what_is_due(&mut self) {
        let now = Instant::now();
        let due: Vec<End> =
            self.ends.iter().filter(|(at, _)| *at <= now).map(|(_, end)| *end).collect();
        self.ends.retain(|(at, _)| *at > now);
        for end in due {
            match end {
                End::Faults(replica) => self.set_faults(replica, Faults::default()),
                End::Freeze(replica) => self.processes[replica].thaw(),
            }
        }
    }

    /// A process that has ended is replaced, as a Deployment does.
    fn replace_ended(&mut self) {
        for replica in 0..self.processes.len() {
            if self.processes[replica].has_ended() {
                self.processes[replica] = self.start_process(replica);
            }
        }
    }

    fn start_process(&mut self, replica: usize) -> Process {
        self.n_started += 1;
        let identity = format!("replica-{replica}-{}", self.n_started);
        Process::start(&self.shared, &self.registry, &identity, &self.offsets[replica])
    }

    fn set_faults(&self, replica: usize, faults: Faults) {
        let mut world = self.shared.lock();
        world.log(&format!("replica {replica} has {faults:?}"));
        world.set_faults(self.processes[replica].number, faults);
    }

    fn calm_down(&mut self) {
        self.ends.clear();
        for replica in 0..self.processes.len() {
            self.set_faults(replica, Faults::default());
            self.processes[replica].thaw();
        }
        self.shared.lock().log("calm");
    }

    fn create_cluster(&self) {
        let mut world = self.shared.lock();
        let cluster = |name: &str| (String::new(), name.to_owned());
        for name in [NAMESPACE, "kube-batch-system"] {
            world.server.put(NAMESPACES, &cluster(name), json!({"metadata": {}}));
        }
        for (n, name) in ["default", "one", "two"].iter().enumerate() {
            let queue = json!({"metadata": {}, "spec": {"weight": n + 1}});
            world.server.put(QUEUES, &cluster(name), queue);
        }
        let class = json!({
            "metadata": {}, "provisioner": "example.com/slow",
            "volumeBindingMode": "WaitForFirstConsumer",
        });
        world.server.put(STORAGE_CLASSES, &cluster("slow"), class);
        for (value, name) in [(10, "low"), (1_000, "high")] {
            let class = json!({"metadata": {}, "value": value});
            world.server.put(PRIORITY_CLASSES, &cluster(name), class);
        }
        let n_nodes = world.rng.usize(2..6);
        for n in 0..n_nodes {
            let cpu = world.rng.u32(2..9);
            world.server.put(NODES, &cluster(&format!("node-{n}")), node(cpu));
        }
    }

    fn act(&mut self, action: Action) {
        {
            let mut world = self.shared.lock();
            world.step();
            world.log(&format!("{action:?}"));
        }
        match action {
            Action::Faults { replica, faults, millis } => {
                self.set_faults(replica, faults);
                self.ends
                    .push((Instant::now() + Duration::from_millis(millis), End::Faults(replica)));
            }
            Action::Reset(replica) => {
                self.shared.lock().reset(self.processes[replica].number);
            }
            Action::Freeze { replica, millis } => {
                self.processes[replica].freeze();
                self.ends
                    .push((Instant::now() + Duration::from_millis(millis), End::Freeze(replica)));
            }
            Action::Kill(replica) => self.processes[replica].kill(),
            Action::Terminate(replica) => self.processes[replica].terminate(),
            Action::SetClock { replica, seconds } => {
                self.offsets[replica].store(seconds, Ordering::Relaxed);
            }
            Action::Compact => {
                let mut world = self.shared.lock();
                let version = world.server.version();
                world.server.compact(version);
            }
            action => self.change(action),
        }
    }

    /// What users and administrators do.
    fn change(&mut self, action: Action) {
        self.n_created += 1;
        let mut world = self.shared.lock();
        match action {
            Action::CreateGang { .. }
            | Action::CreatePod { .. }
            | Action::CreatePodWithClaim { .. }
            | Action::RefillGang(_) => create(&mut world, action, self.n_created),
            Action::AddNode { .. }
            | Action::DeleteNode(_)
            | Action::Cordon(_)
            | Action::Uncordon(_)
            | Action::ResizeNode(..)
            | Action::ForeignPod(..) => change_nodes(&mut world, action, self.n_created),
            Action::Hostile(hostility) => hostile(&mut world, hostility, self.n_created),
            _ => change_jobs(&mut world, action),
        }
    }
}

/// The key of an object in the namespace of all.
fn key(name: String) -> Key {
    (NAMESPACE.to_owned(), name)
}

/// Creates jobs, or pods of one.
fn create(world: &mut World, action: Action, n_created: usize) {
    match action {
        Action::CreateGang { queue, n, min, cpu, priority } => {
            let name = format!("gang-{n_created}");
            let queue = ["default", "one", "two"][queue];
            let mut spec = json!({"minMember": min, "queue": queue});
            if let Some(class) = [None, Some("low"), Some("high")][priority] {
                spec["priorityClassName"] = json!(class);
            }
            let annotations = json!({"n": n.to_string(), "cpu": cpu.to_string()});
            let group = json!({"metadata": {"annotations": annotations}, "spec": spec});
            world.server.put(GROUPS, &key(name.clone()), group);
            for n in 0..n {
                world.server.put(PODS, &key(format!("{name}-{n}")), pod(Some(&name), cpu));
            }
        }
        Action::CreatePod { cpu } => {
            world.server.put(PODS, &key(format!("pod-{n_created}")), pod(None, cpu));
        }
        Action::CreatePodWithClaim { cpu } => {
            let name = format!("claim-{n_created}");
            world.server.put(CLAIMS, &key(name.clone()), claim());
            let mut pod = pod(None, cpu);
            pod["spec"]["volumes"] =
                json!([{"name": "v", "persistentVolumeClaim": {"claimName": name}}]);
            world.server.put(PODS, &key(format!("pod-{n_created}")), pod);
        }
        Action::RefillGang(n) => {
            if let Some(group) = nth(world, GROUPS, n) {
                refill(world, &group, n_created);
            }
        }
        other => unreachable!("{other:?} creates nothing"),
    }
}

fn claim() -> Value {
    json!({
        "metadata": {"annotations": {}},
        "spec": {
            "storageClassName": "slow", "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
        "status": {"phase": "Pending"},
    })
}

/// Changes or deletes jobs, pods or queues.
fn change_jobs(world: &mut World, action: Action) {
    match action {
        Action::DeletePod(n) => {
            if let Some(key) = nth(world, PODS, n) {
                delete_pod(world, &key);
            }
        }
        Action::DeleteGang(n) => {
            if let Some(key) = nth(world, GROUPS, n) {
                for pod in members(world, &key.1) {
                    delete_pod(world, &pod);
                }
                world.server.remove(GROUPS, &key);
            }
        }
        Action::ChangeMinimum(n, min) => {
            if let Some(key) = nth(world, GROUPS, n) {
                world.server.change_object(GROUPS, &key, |group| {
                    group["spec"]["minMember"] = json!(min);
                });
            }
        }
        Action::ChangeWeight(n, weight) => {
            if let Some(key) = nth(world, QUEUES, n) {
                world.server.change_object(QUEUES, &key, |queue| {
                    queue["spec"]["weight"] = json!(weight);
                });
            }
        }
        Action::FinishPod(n) => {
            let runs = |pod: &Value| pod["status"]["phase"] == "Running";
            let running = nth(world, PODS, n)
                .filter(|key| world.server.get(PODS, key).is_some_and(|pod| runs(pod)));
            if let Some(key) = running {
                world.server.change_object(PODS, &key, |pod| {
                    pod["status"]["phase"] = json!("Succeeded");
                });
            }
        }
        other => unreachable!("{other:?} changes no job"),
    }
}

fn change_nodes(world: &mut World, action: Action, n_created: usize) {
    match action {
        Action::AddNode { cpu } => {
            let key = (String::new(), format!("node-{n_created}"));
            world.server.put(NODES, &key, node(cpu));
        }
        Action::DeleteNode(n) => {
            let n_nodes = world.server.all(NODES).count();
            if let Some(key) = nth(world, NODES, n).filter(|_| n_nodes > 1) {
                world.disturb(&key.1);
                world.server.remove(NODES, &key);
                world.later(2_000, 20_000, Chore::Collect(key.1));
            }
        }
        Action::Cordon(n) | Action::Uncordon(n) => {
            let is_cordon = matches!(action, Action::Cordon(_));
            if let Some(key) = nth(world, NODES, n) {
                world.server.change_object(NODES, &key, |node| {
                    node["spec"]["unschedulable"] = json!(is_cordon);
                });
            }
        }
        Action::ResizeNode(n, cpu) => {
            if let Some(key) = nth(world, NODES, n) {
                world.disturb(&key.1);
                world.server.change_object(NODES, &key, |known| {
                    known["status"]["allocatable"]["cpu"] = json!(cpu.to_string());
                });
            }
        }
        Action::ForeignPod(n, cpu) => {
            if let Some(node) = nth(world, NODES, n) {
                world.disturb(&node.1);
                let mut foreign = pod(None, cpu);
                foreign["spec"]["schedulerName"] = json!("default-scheduler");
                foreign["spec"]["nodeName"] = json!(node.1);
                foreign["status"]["phase"] = json!("Running");
                world.server.put(PODS, &key(format!("foreign-{n_created}")), foreign);
            }
        }
        other => unreachable!("{other:?} changes no node"),
    }
}

fn hostile(world: &mut World, hostility: Hostility, n: usize) {
    let key = (NAMESPACE.to_owned(), format!("hostile-{n}"));
    let mut pod = pod(None, 1);
    match hostility {
        Hostility::ManyResources => {
            let requests = &mut pod["spec"]["containers"][0]["resources"]["requests"];
            for n in 0..50 {
                requests[format!("hostile.example/r{n}")] = json!("1");
            }
        }
        Hostility::BadAnnotation => {
            pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"] = json!("Not A Name");
        }
        Hostility::ForeignNomination(n) => {
            let Some(node) = nth(world, NODES, n) else { return };
            pod["status"]["nominatedNodeName"] = json!(node.1);
            pod["metadata"]["managedFields"] = json!([{
                "manager": "other", "operation": "Update", "subresource": "status",
                "fieldsType": "FieldsV1", "fieldsV1": {"f:status": {"f:nominatedNodeName": {}}},
            }]);
        }
        Hostility::HugeMinimum => {
            let group = json!({"metadata": {}, "spec": {"minMember": i32::MAX, "queue": "one"}});
            world.server.put(GROUPS, &key, group);
            pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"] = json!(key.1);
        }
    }
    world.server.put(PODS, &key, pod);
}

/// The key of an object of a kind, by any number.
fn nth(world: &World, kind: crate::server::Kind, n: usize) -> Option<Key> {
    let n_objects = world.server.all(kind).count();
    let n = n.checked_rem(n_objects)?;
    world.server.all(kind).nth(n).map(|(key, _)| key.clone())
}

/// Keys of the pods of a group.
fn members(world: &World, group: &str) -> Vec<Key> {
    let annotation =
        |pod: &Value| pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == *group;
    world.server.all(PODS).filter(|(_, pod)| annotation(pod)).map(|(key, _)| key.clone()).collect()
}

fn delete_pod(world: &mut World, key: &Key) {
    let Some(pod) = world.server.get(PODS, key) else { return };
    let uid = pod["metadata"]["uid"].clone();
    world.server.delete_object(PODS, key);
    world.stops(key, &uid);
}

/// Creates the pods that a gang lacks.
fn refill(world: &mut World, group: &Key, n_created: usize) {
    let Some(object) = world.server.get(GROUPS, group) else { return };
    let annotation = |name: &str| -> u32 {
        let text = object["metadata"]["annotations"][name].as_str();
        text.and_then(|text| text.parse().ok()).unwrap_or(0)
    };
    let (n, cpu) = (annotation("n") as usize, annotation("cpu"));
    let n_known = members(world, &group.1).len();
    for n in n_known..n {
        let key = (group.0.clone(), format!("{}-again-{n_created}-{n}", group.1));
        world.server.put(PODS, &key, pod(Some(&group.1), cpu));
    }
}

fn node(cpu: u32) -> Value {
    let resources = json!({"cpu": cpu.to_string(), "memory": "64Gi", "pods": "20"});
    json!({
        "metadata": {}, "spec": {},
        "status": {
            "allocatable": resources, "capacity": resources,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    })
}

fn pod(group: Option<&str>, cpu: u32) -> Value {
    let mut pod = json!({
        "metadata": {"annotations": {}, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {
            "schedulerName": "kube-batch",
            "containers": [{"name": "c", "resources": {"requests": {}}}],
        },
        "status": {"phase": "Pending"},
    });
    if cpu > 0 {
        pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!(cpu.to_string());
    }
    if let Some(group) = group {
        pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"] = json!(group);
    }
    pod
}

/// A seed that follows from another.
pub(crate) fn seed_of(seed: u64, episode: u64) -> u64 {
    let mut rng = Rng::with_seed(seed);
    let first = rng.u64(..);
    first ^ episode.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
