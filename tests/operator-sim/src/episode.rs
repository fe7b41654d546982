//! One episode: a cluster, a script, and then a calm time after which everything must be in order.

mod faults;

use std::sync::Arc;

use fastrand::Rng;
use kube_batch::Registry;
use serde_json::json;
use tokio::{
    task::LocalSet,
    time::{Duration, Instant, sleep, sleep_until},
};

use crate::{
    changes, checks,
    devices::slice,
    outages::Requests,
    pods::RESOURCE,
    replicas::{Offset, Process},
    report::Counts,
    script::{Action, N_REPLICAS, Script, TENANTS},
    server::{
        DEVICE_CLASSES, Kind, NAMESPACES, NODES, PRIORITY_CLASSES, QUEUES, SLICES, STORAGE_CLASSES,
    },
    shared::Shared,
    world::World,
};

/// How long the calm time takes: longer than every deadline and back-off of the scheduler.
const CALM: Duration = Duration::from_secs(900);
/// In this time at the end nothing may be written.
const QUIET: Duration = Duration::from_secs(120);

/// How an episode ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// The rule that was broken.
    pub(crate) broken: Option<String>,
    pub(crate) n_steps: u64,
    pub(crate) counts: Counts,
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
        counts: world.counts,
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

/// What ends.
#[derive(Clone, Copy, Debug)]
enum End {
    Faults(usize),
    Freeze(usize),
    Admission(usize),
    Outage(Requests),
    Watches(Kind),
    JumpClocks(i64),
    Configure(usize),
    DeleteCrd(Kind),
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

    /// A process that has ended is replaced, as a Deployment does. It does not start while its configuration is not
    /// valid.
    fn replace_ended(&mut self) {
        for replica in 0..self.processes.len() {
            let is_valid = self.shared.lock().configuration(replica).is_valid();
            if self.processes[replica].has_ended() && is_valid {
                self.processes[replica] = self.start_process(replica);
            }
        }
    }

    fn start_process(&mut self, replica: usize) -> Process {
        self.n_started += 1;
        let identity = format!("replica-{replica}-{}", self.n_started);
        Process::start(&self.shared, &self.registry, (replica, &identity), &self.offsets[replica])
    }

    fn create_cluster(&self) {
        let mut world = self.shared.lock();
        let cluster = |name: &str| (String::new(), name.to_owned());
        for name in TENANTS.into_iter().chain(["kube-batch-system"]) {
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
            let name = format!("node-{n}");
            world.server.put(NODES, &cluster(&name), changes::node(cpu));
            world.server.put(SLICES, &cluster(&name), slice(&name));
        }
        let class = json!({"metadata": {}, "spec": {"extendedResourceName": RESOURCE}});
        world.server.put(DEVICE_CLASSES, &cluster("gpu"), class);
    }

    fn act(&mut self, action: Action) {
        {
            let mut world = self.shared.lock();
            world.step();
            world.log(&format!("{action:?}"));
        }
        match action {
            Action::Fault(fault) => self.begin(fault),
            change => self.change(change),
        }
    }

    /// What users and administrators do.
    fn change(&mut self, action: Action) {
        self.n_created += 1;
        changes::apply(&mut self.shared.lock(), action, self.n_created);
    }
}

/// A seed that follows from another.
pub(crate) fn seed_of(seed: u64, episode: u64) -> u64 {
    let mut rng = Rng::with_seed(seed);
    let first = rng.u64(..);
    first ^ episode.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
