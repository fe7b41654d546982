//! Properties that hold for random clusters.

use jiff::Timestamp;
use kube_batch_cache::{assumed::Assumed, dump, snapshot::take_snapshot};
use kube_batch_framework::{candidates::Search, plugin::Capacity, session::Session};
use kube_batch_model::{
    cluster::Cluster,
    column::{JobIdx, NodeIdx, Ordinal, QueueIdx, TaskIdx},
    decision::EvictReason,
    resource::Share,
    status::TaskStatus,
};
use kube_batch_scheduler::registry::Registry;
use kube_batch_sim::{case::Case, simulation::Simulation, world::World};
use kube_batch_tests::{
    random_cluster::{RandomCluster, Rng},
    seeds::seeds,
};
use kube_batch_yaml::{Limits, parse};

/// Worlds of each law.
const N_CLUSTERS: u64 = 300;

fn case(seed: u64) -> Case {
    let text = RandomCluster::new(seed).case();
    let document = parse(&text, &Limits::default()).expect("a random cluster is YAML");
    Case::read(&document, &Registry::builtin()).expect("a random cluster is a case")
}

fn world(case: &Case, order: &[usize]) -> World {
    let mut world =
        World::new(case.environment, case.options.clone(), case.conf.metadata_prefixes());
    for at in order {
        world.apply(case.objects[*at].value.clone()).expect("objects are valid");
    }
    world
}

#[test]
fn the_snapshot_does_not_depend_on_the_order_of_events() {
    for seed in seeds(N_CLUSTERS) {
        let case = case(seed);
        let mut order: Vec<usize> = (0..case.objects.len()).collect();
        let straight = world(&case, &order).snapshot().cluster;
        let mut rng = Rng::new(seed);
        for at in (1..order.len()).rev() {
            order.swap(at, rng.below(at as u64 + 1) as usize);
        }
        // Some events arrive twice.
        order.extend_from_within(..order.len() / 2);
        let shuffled = world(&case, &order).snapshot().cluster;
        assert!(straight == shuffled, "seed {seed}");
    }
}

#[test]
fn a_dump_gives_the_same_snapshot() {
    for seed in seeds(N_CLUSTERS) {
        let case = case(seed);
        let order: Vec<usize> = (0..case.objects.len()).collect();
        let world = world(&case, &order);
        let mut bytes = Vec::new();
        dump::write(&world.store, &Assumed::default(), world.now(), &mut bytes)
            .expect("writing to memory does not fail");
        let read = dump::read(&bytes).expect("the dump can be read");
        let snapshot = take_snapshot(&read.store, &read.assumed, world.options()).cluster;
        assert!(snapshot == world.snapshot().cluster, "seed {seed}");
    }
}

/// The answers to all queries of actions that a move can change.
#[derive(Debug, PartialEq)]
struct Answers {
    cluster: Cluster,
    ready: Vec<(bool, bool)>,
    overused: Vec<(bool, Share)>,
    job_order: Vec<JobIdx>,
    queue_order: Vec<QueueIdx>,
    fits: Vec<bool>,
    best: Vec<Option<NodeIdx>>,
}

fn answers(session: &mut Session) -> Answers {
    let cluster = session.cluster().clone();
    let mut job_order: Vec<JobIdx> = cluster.jobs.key.ids().collect();
    job_order.sort_by(|l, r| session.plugins().job_order(*l, *r));
    let mut queue_order: Vec<QueueIdx> = cluster.queues.facts.ids().collect();
    queue_order.sort_by(|l, r| session.plugins().queue_order(*l, *r));
    let waiting: Vec<TaskIdx> =
        cluster.tasks.facts.ids().filter(|task| cluster.is_waiting(*task)).collect();
    let mut fits = Vec::new();
    let mut best = Vec::new();
    for task in waiting {
        let class = cluster.tasks.class[task];
        for capacity in [Capacity::Idle, Capacity::FutureIdle] {
            fits.extend(
                cluster.nodes.facts.ids().map(|node| session.search().fits(class, node, capacity)),
            );
            best.push(session.search().best_node_in(class, capacity).map(|choice| choice.node));
        }
    }
    let jobs = cluster.jobs.key.ids();
    let queues = cluster.queues.facts.ids();
    Answers {
        ready: jobs
            .map(|job| (session.plugins().job_ready(job), session.plugins().job_pipelined(job)))
            .collect(),
        overused: queues
            .map(|q| (session.plugins().overused(q), session.plugins().queue_share(q, &[])))
            .collect(),
        cluster,
        job_order,
        queue_order,
        fits,
        best,
    }
}

#[test]
fn a_dropped_statement_restores_the_session() {
    let seeds = seeds(N_CLUSTERS);
    let mut n_moves = 0;
    for seed in seeds.iter().copied() {
        let case = case(seed);
        let order: Vec<usize> = (0..case.objects.len()).collect();
        let cluster = world(&case, &order).snapshot().cluster;
        if cluster.jobs.key.is_empty() || cluster.nodes.facts.is_empty() {
            continue;
        }
        let policy = case.conf.policy();
        let mut session = Session::open(cluster, Timestamp::MAX, policy, Search::Index);
        let before = answers(&mut session);
        let mut rng = Rng::new(seed);
        let mut statement = session.statement(JobIdx::new(0));
        let mut savepoint = statement.savepoint();
        for _ in 0..40 {
            let cluster = statement.session().cluster();
            let task = TaskIdx::new(rng.below(cluster.tasks.facts.len() as u64) as usize);
            let node = NodeIdx::new(rng.below(cluster.nodes.facts.len() as u64) as usize);
            let (runs, waits) =
                (cluster.status(task) == TaskStatus::Running, cluster.is_waiting(task));
            let placed = cluster.tasks.placement[task].node.is_some();
            let class = cluster.tasks.class[task];
            // Only devices are not given without a check.
            let needs_devices = !cluster.classes.devices[class].is_empty();
            let mut may_have = |capacity| {
                waits && (!needs_devices || statement.search().fits(class, node, capacity))
            };
            let is_moved = match rng.below(6) {
                0 if may_have(Capacity::Idle) => statement.allocate(task, node).is_ok(),
                1 if may_have(Capacity::FutureIdle) => statement.pipeline(task, node).is_ok(),
                2 if runs && placed => statement.evict(task, EvictReason::Preempt).is_ok(),
                3 => {
                    savepoint = statement.savepoint();
                    false
                }
                4 if rng.percent(20) => {
                    statement.rollback_to(savepoint);
                    false
                }
                // Queries in between, so that caches are tested too.
                5 => {
                    if waits {
                        statement.search().best_node(class);
                    }
                    false
                }
                _ => false,
            };
            n_moves += usize::from(is_moved);
        }
        drop(statement);
        let after = answers(&mut session);
        assert!(before == after, "seed {seed}: {before:#?}\n{after:#?}");
    }
    assert!(n_moves > 3 * seeds.len(), "only {n_moves} tasks were moved");
}

#[test]
fn decisions_stop_in_an_unchanged_cluster() {
    // Enough for each pod to be bound and evicted once, with some idle cycles in between.
    const MAX_CYCLES: u32 = 200;
    for seed in seeds(N_CLUSTERS) {
        let case = case(seed);
        let order: Vec<usize> = (0..case.objects.len()).collect();
        let mut simulation =
            Simulation::new(world(&case, &order), case.conf.clone(), Search::Index);
        let mut quiet = 0;
        for _ in 0..MAX_CYCLES {
            let decisions = &simulation.cycle(&mut |_| {}).cycle.decisions;
            let is_quiet = decisions.is_empty() && !simulation.world.is_in_motion();
            quiet = if is_quiet { quiet + 1 } else { 0 };
            if quiet == 3 {
                break;
            }
            // Incomplete gangs become stale after five minutes.
            simulation.world.skip_idle_cycles(1000);
        }
        let text = || RandomCluster::new(seed).case();
        assert!(quiet > 0, "seed {seed}: decisions do not stop:\n{}", text());
        let n_events = simulation.world.record.events.len();
        let decisions = &simulation.cycle(&mut |_| {}).cycle.decisions;
        assert!(decisions.is_empty(), "seed {seed}: {decisions:?}");
        assert_eq!(
            simulation.world.record.events.len(),
            n_events,
            "seed {seed}: events do not stop"
        );
    }
}
