//! Clusters for benchmarks; the name of a shape describes it completely.
//!
//! Nodes have 32 CPUs, 128 Gi and 110 pod slots, spread over ten zones; pods request 1 CPU and 2 Gi. For
//! pods with rules about other pods, nodes and pods are those of kube-scheduler's own benchmark: 4 CPUs and
//! 32 Gi in three zones, and 100m and 500Mi.
//! So are those of SP-GANG and SP-TAS, whose gangs are PodGroups of Kubernetes' own, and whose pods request
//! 100Mi.
//! Pending jobs are gangs, round-robin over the queues; running pods are in jobs of 100 with a
//! minimum of 1.

mod build;
mod devices;
pub mod kinds;
mod pods;

use std::mem;

use jiff::Timestamp;
use kube_batch_actions::{allocate, backfill, preempt, reclaim};
use kube_batch_cache::{
    assumed::Assumed,
    snapshot::{SnapshotOptions, take_snapshot},
    store::Store,
};
use kube_batch_framework::{
    arguments::ArgumentValue,
    candidates::Search,
    memory::Memory,
    report::Cycle,
    spec::{ActionSpec, PluginSpec},
};
use kube_batch_model::{facts::pod::TaskFacts, status::TaskStatus};
use kube_batch_plugins::{
    conformance, drf, gang, nodeorder, pdb, predicates, priority, proportion, reservation,
};
use kube_batch_scheduler::conf::{Conf, PluginConf};

use self::{
    build::{BASE, Build, DAY},
    devices::{ClaimKind, add_class, add_devices, add_partitions},
    kinds::{Kind, parse},
    pods::{PodKind, PodRule},
};

/// A cluster and its scheduler configuration.
pub struct Shape {
    /// The objects.
    pub store: Store,
    /// Actions and tiers.
    pub conf: Conf,
    next: Next,
}

impl Shape {
    /// Takes a snapshot and runs a cycle, as the first of a scheduler.
    // Not inlined, so that the instructions between its start and its end can be counted.
    #[inline(never)]
    pub fn first_cycle(&self) -> Cycle {
        let snapshot = take_snapshot(&self.store, &Assumed::default(), &SnapshotOptions::default());
        let (memory, now) = (&mut Memory::default(), Timestamp::MAX);
        self.conf.run_next_cycle(snapshot.cluster, now, Search::Index, memory, &mut |_| {}).0
    }

    /// What happens between two cycles, for the n-th time: in IDLE a pod in the middle finishes, in STEADY
    /// another gang arrives, in ARRIVE a pod does, and elsewhere nothing.
    ///
    /// # Panics
    ///
    /// If there are too few pods.
    pub fn change(&mut self, n: usize) {
        match self.next {
            Next::Nothing => {}
            Next::PodFinishes => {
                let running = self.store.pods.len() / 2 + n;
                let (key, facts) = self.store.pods.iter().nth(running).expect("there are pods");
                let facts = TaskFacts { status: TaskStatus::Succeeded, ..(**facts).clone() };
                self.store.pods.apply(key.clone(), facts);
            }
            Next::GangArrives => {
                let mut build = Build { store: mem::take(&mut self.store), ..Build::default() };
                let queue = format!("queue-{}", n % 4);
                build.pending_job(1 + n, 100, &queue, "low", &PodKind::default());
                self.store = build.store;
            }
            Next::PodArrives => {
                let mut build = Build { store: mem::take(&mut self.store), ..Build::default() };
                build.single_pod(&format!("new-{n}"), BASE + 2 * DAY + n as i64, None);
                self.store = build.store;
            }
        }
    }
}

/// What happens between two cycles.
#[derive(Clone, Copy, Debug, Default)]
enum Next {
    #[default]
    Nothing,
    PodFinishes,
    GangArrives,
    PodArrives,
}

/// Builds the shape with a name such as `FILL-1000-10000-100`.
pub fn shape(name: &str) -> Option<Shape> {
    let (Kind { name: kind, .. }, numbers) = parse(name)?;
    let mut build = Build::default();
    let (conf, next) = if let (Some(rule), [nodes]) = (PodRule::of(kind), numbers.as_slice()) {
        build.with_rule(*nodes, rule);
        (Conf::default(), Next::Nothing)
    } else if let Some(conf) = evicting(&mut build, kind, &numbers) {
        (conf, Next::Nothing)
    } else {
        placing(&mut build, kind, &numbers)?
    };
    Some(Shape { store: build.store, conf, next })
}

/// Builds a shape in which pods are only placed.
fn placing(build: &mut Build, kind: &str, numbers: &[usize]) -> Option<(Conf, Next)> {
    Some(match (kind, numbers) {
        ("FILL", [nodes, pods, gang]) => {
            build.nodes(*nodes);
            let queues = build.queues(&[1, 2, 3, 4]);
            build.pending(*pods, *gang, &queues, "low", |_| PodKind::default());
            (Conf::default(), Next::Nothing)
        }
        ("FILLMIX", [nodes, pods, gang]) => {
            build.nodes(*nodes);
            let queues = build.queues(&[1, 2, 3, 4]);
            build.pending(*pods, *gang, &queues, "low", |job| PodKind {
                cpu: format!("{}m", 100 + (7 * job) % 997),
                memory: format!("{}Ki", 256 * 1024 + (13 * job) % 4099),
                ..PodKind::default()
            });
            (Conf::default(), Next::Nothing)
        }
        ("UNLIKE" | "ALIKE", [nodes, gangs]) => {
            build.cpus = &["4", "8", "16", "32"];
            build.nodes(*nodes);
            let queues = build.queues(&[1, 2, 3, 4]);
            let of_cpu = |cpu: &str| PodKind { cpu: cpu.to_owned(), ..PodKind::default() };
            let (small, middle, large) = (of_cpu("1500m"), of_cpu("3500m"), of_cpu("7"));
            let mean = of_cpu("3375m");
            let kinds = match kind {
                "ALIKE" => vec![&mean; 16],
                _ => [vec![&small; 8], vec![&middle; 4], vec![&large; 4]].concat(),
            };
            for job in 0..*gangs {
                build.pending_job_of(job, &queues[job % queues.len()], "low", &kinds);
            }
            (Conf::default(), Next::Nothing)
        }
        ("FILLTAINT", [nodes, pods, gang]) => {
            build.tainted_every = 100;
            build.nodes(*nodes);
            let queues = build.queues(&[1, 2, 3, 4]);
            build.pending(*pods, *gang, &queues, "low", |job| PodKind {
                tolerates: job % 10 == 0,
                ..PodKind::default()
            });
            (Conf::default(), Next::Nothing)
        }
        ("SP-GANG" | "SP-TAS", [nodes, pods, gang]) => {
            if kind == "SP-TAS" {
                build.levels = vec![("rack", 50)];
                build.topology = Some("rack");
            }
            (build.cpu, build.memory, build.is_native) = ("4", "32Gi", true);
            build.nodes(*nodes);
            build.queue("default", 1);
            build.pending(*pods, *gang, &["default".to_owned()], "", |_| PodKind {
                cpu: "100m".to_owned(),
                memory: "100Mi".to_owned(),
                ..PodKind::default()
            });
            (Conf::default(), Next::Nothing)
        }
        ("KAI-GANG", [nodes]) => (kai_gang(build, *nodes), Next::Nothing),
        ("KAI-TOPO", [nodes]) => {
            build.levels = KAI_LEVELS.to_vec();
            build.topology = Some("rack");
            (with_levels(kai_gang(build, *nodes)), Next::Nothing)
        }
        ("DRA" | "DRA-MATCH" | "DRA-MIG", [nodes, pods, gang]) => {
            build.nodes(*nodes);
            add_class(&mut build.store);
            match kind {
                "DRA-MIG" => add_partitions(&mut build.store, *nodes),
                _ => add_devices(&mut build.store, *nodes),
            }
            let queues = build.queues(&[1, 2, 3, 4]);
            build.pending(*pods, *gang, &queues, "low", |job| PodKind {
                claim: Some(match kind {
                    "DRA" => ClaimKind::Plain,
                    "DRA-MATCH" => ClaimKind::Matching,
                    _ => ClaimKind::Partition(job),
                }),
                ..PodKind::default()
            });
            (Conf::default(), Next::Nothing)
        }
        ("FLAT" | "TREE", [nodes, pods, queues]) => {
            build.nodes(*nodes);
            let leaves = build.many_queues(*queues, kind == "TREE");
            build.pending(*pods, 1, &leaves, "low", |_| PodKind::default());
            let actions = [reclaim::SPEC, allocate::SPEC, backfill::SPEC, preempt::SPEC];
            (full(&actions), Next::Nothing)
        }
        ("SAT", [nodes, pods, gang]) => {
            build.saturated(*nodes, 32);
            let queues = build.queues(&[1, 1, 1, 1]);
            build.pending(*pods, *gang, &queues, "low", |_| PodKind::default());
            (Conf::default(), Next::Nothing)
        }
        ("STEADY", [nodes]) => {
            build.saturated(*nodes, 16);
            let queues = build.queues(&[1, 1, 1, 1]);
            build.pending(100, 100, &queues, "low", |_| PodKind::default());
            (Conf::default(), Next::GangArrives)
        }
        ("ARRIVE", [nodes, pods, gangs]) => {
            build.nodes(*nodes);
            build.queue("default", 1);
            for r in 0..*pods {
                let node = format!("node-{:05}", r % nodes);
                build.single_pod(&format!("run-{r:05}"), BASE + (r / 10) as i64, Some(node));
            }
            let of_a_node = |_| PodKind { cpu: "32".to_owned(), ..PodKind::default() };
            build.pending(gangs * 8, 8, &["default".to_owned()], "low", of_a_node);
            (Conf::default(), Next::PodArrives)
        }
        ("IDLE", [nodes]) => {
            build.saturated(*nodes, 32);
            build.queues(&[1, 1, 1, 1]);
            let actions = [reclaim::SPEC, allocate::SPEC, backfill::SPEC, preempt::SPEC];
            (full(&actions), Next::PodFinishes)
        }
        ("SCALE", [nodes]) => {
            build.saturated(*nodes, 10);
            let queues = build.queues(&[1, 1, 1, 1]);
            build.pending(10_000, 100, &queues, "low", |_| PodKind::default());
            (Conf::default(), Next::Nothing)
        }
        _ => return None,
    })
}

/// Builds a shape in which pods are evicted.
fn evicting(build: &mut Build, kind: &str, numbers: &[usize]) -> Option<Conf> {
    Some(match (kind, numbers) {
        ("PREEMPT", [nodes, gang]) => {
            build.nodes(*nodes);
            let queues = build.queues(&[1]);
            build.running(*nodes, 32, &queues[0]);
            build.pending(*gang, *gang, &queues, "high", |_| PodKind::default());
            full(&[allocate::SPEC, preempt::SPEC])
        }
        ("BUDGETPREEMPT", [nodes, gang]) => {
            build.nodes(*nodes);
            let queues = build.queues(&[1]);
            build.running_with_budgets(*nodes, &queues[0]);
            build.pending(*gang, *gang, &queues, "high", |_| PodKind::default());
            with_budgets(full(&[allocate::SPEC, preempt::SPEC]))
        }
        ("GANGPREEMPT", [nodes]) => {
            build.nodes(*nodes);
            let queues = build.queues(&[1]);
            build.running_gangs(*nodes, &queues[0]);
            build.pending(512, 512, &queues, "high", |_| PodKind::default());
            with_whole_gangs(full(&[allocate::SPEC, preempt::SPEC]))
        }
        ("DRA-PREEMPT", [nodes]) => {
            build.nodes(*nodes);
            add_class(&mut build.store);
            add_devices(&mut build.store, *nodes);
            let queues = build.queues(&[1]);
            let kind = PodKind { claim: Some(ClaimKind::WholeNode), ..PodKind::default() };
            build.running_gangs_of(*nodes, 64, &queues[0], &kind);
            build.pending(64, 64, &queues, "high", |_| kind.clone());
            with_whole_gangs(full(&[allocate::SPEC, preempt::SPEC]))
        }
        ("RECLAIM", [nodes, gang]) => {
            build.nodes(*nodes);
            let queues = build.queues(&[1, 1]);
            build.running(*nodes, 32, &queues[0]);
            build.pending(100, *gang, &queues[1..], "low", |_| PodKind::default());
            full(&[reclaim::SPEC])
        }
        ("KAIRECLAIM", [nodes]) => {
            build.gpus = 8;
            build.nodes(*nodes);
            build.queue("queue-0", 0);
            build.queue("queue-1", 1);
            build.gpu_singles(*nodes, "queue-0");
            let kind = || PodKind { gpus: 8, cpu: "8".to_owned(), ..PodKind::default() };
            let gang = (nodes / 10).max(1);
            build.pending(gang, gang, &["queue-1".to_owned()], "low", |_| kind());
            full(&[reclaim::SPEC])
        }
        _ => return None,
    })
}

/// The levels of KAI-TOPO, the broadest first, with the number of nodes in a domain of each.
const KAI_LEVELS: [(&str, usize); 3] = [("zone", 128), ("block", 16), ("rack", 2)];

fn kai_gang(build: &mut Build, nodes: usize) -> Conf {
    build.gpus = 8;
    build.nodes(nodes);
    build.queue("default", 1);
    let kind = || PodKind { gpus: 8, ..PodKind::default() };
    build.pending(nodes, nodes, &["default".to_owned()], "low", |_| kind());
    Conf::default()
}

/// Declares the levels of KAI-TOPO.
fn with_levels(mut conf: Conf) -> Conf {
    for plugin in conf.tiers.iter_mut().flatten().filter(|plugin| plugin.spec.name == "topology") {
        let levels = KAI_LEVELS.iter().map(|(key, _)| (*key).to_owned()).collect();
        plugin.arguments.set(&plugin.spec.arguments[0], ArgumentValue::List(levels));
    }
    conf
}

/// Adds the plugin that counts disruption budgets.
fn with_budgets(mut conf: Conf) -> Conf {
    conf.tiers[0].push(PluginConf::new(pdb::SPEC));
    conf
}

/// Lets gangs at their minimum be evicted as a whole.
fn with_whole_gangs(mut conf: Conf) -> Conf {
    for plugin in conf.tiers.iter_mut().flatten().filter(|plugin| plugin.spec.name == "gang") {
        let specs = plugin.spec.arguments.iter();
        for spec in specs.filter(|spec| spec.key == "gang.evictWholeGangs") {
            plugin.arguments.set(spec, ArgumentValue::Bool(true));
        }
    }
    conf
}

/// With the plugin `reservation`. The time of the shapes is the end of time, so every job has waited long.
#[must_use]
pub fn with_reservations(mut conf: Conf) -> Conf {
    conf.tiers[0].push(PluginConf::new(reservation::SPEC));
    conf
}

/// The sample configuration's tiers, with these actions.
pub fn full(actions: &[ActionSpec]) -> Conf {
    let first = [priority::SPEC, gang::SPEC, conformance::SPEC];
    let second = [drf::SPEC, predicates::SPEC, proportion::SPEC, nodeorder::SPEC];
    let tier = |specs: &[PluginSpec]| specs.iter().copied().map(PluginConf::new).collect();
    Conf { actions: actions.to_vec(), tiers: vec![tier(&first), tier(&second)] }
}
