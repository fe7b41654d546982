//! Laws of random trees of queues, played with steady demand: evicted pods come again, and nothing ends.

use std::{collections::BTreeSet, ops::ControlFlow, sync::Arc};

use kube_batch_framework::report::QueueReport;
use kube_batch_model::{facts::pod::TaskFacts, resource::AmountsByName, status::TaskStatus};
use kube_batch_sim::simulation::Simulation;
use kube_batch_tests::{
    seeds::seeds,
    steady_world::{CONFIGURATION, LATER, Played, play_cases, play_until},
    streams::configuration,
    tree_world::{Kind, RandomJob, TreeWorld, job_of_pod},
};

/// Worlds of each law.
const N_WORLDS: u64 = 200;

/// Cycles until evictions must have ceased, and cycles without any.
const CYCLES: (usize, usize) = (60, 15);

/// The queues of the pods that hold a place, one for each pod: `(pod, queue)`.
fn placed(world: &TreeWorld, simulation: &Simulation) -> Vec<(String, usize)> {
    let pods = simulation.world.store.pods.values();
    let held = pods.filter(|pod| pod.node.is_some());
    held.map(|pod| pod.key.name.to_string())
        .map(|pod| (pod.clone(), world.queue_of(&pod)))
        .collect()
}

fn play(world: &TreeWorld, mut after: impl FnMut(&mut Simulation)) -> Vec<Played> {
    play_cases(&world.cases, CYCLES.0 + CYCLES.1, &mut |simulation| after(simulation))
}

/// Law 5: whatever sizes, resources and fields there are.
#[test]
fn evictions_cease() {
    let seeds = seeds(N_WORLDS);
    let (mut n_evictions, mut failed) = (0, Vec::new());
    for seed in &seeds {
        let kind = Kind {
            has_gpus: seed % 2 == 0,
            has_unit_pods: false,
            has_limits: seed % 3 == 0,
            has_ends: false,
        };
        let world = TreeWorld::new(CONFIGURATION, *seed, kind);
        let played = play(&world, |_| {});
        n_evictions += played.iter().map(|cycle| cycle.evicted.len()).sum::<usize>();
        if seeds.len() == 1 {
            for (at, cycle) in played.iter().enumerate() {
                let evicted = cycle.evicted.iter();
                let words = |of: &kube_batch_sim::world::Eviction| {
                    format!("{} {} for {}", of.cause.reason(), of.pod.name, of.cause.job().job)
                };
                println!(
                    "{at}: {:?}, evicts {:?}",
                    cycle.bound,
                    evicted.map(words).collect::<Vec<_>>()
                );
            }
        }
        if played[CYCLES.0..].iter().any(|cycle| !cycle.evicted.is_empty()) {
            failed.push(*seed);
        }
    }
    println!("{n_evictions} evictions in {} worlds", seeds.len());
    assert!(failed.is_empty(), "evictions do not cease with {} seeds: {failed:?}", failed.len());
    assert!(seeds.len() < 100 || n_evictions > seeds.len() / 2, "nothing is evicted");
}

/// Laws 6 and 7: nothing brings a queue above its limits, nothing starts where it may not, and nothing leaves a queue that
/// is not reclaimable for another one.
#[test]
fn limits_and_fences_hold() {
    for seed in seeds(N_WORLDS) {
        let kind = Kind {
            has_gpus: false,
            has_unit_pods: seed % 2 == 0,
            has_limits: true,
            has_ends: false,
        };
        let world = TreeWorld::new(CONFIGURATION, seed, kind);
        let played = play(&world, |simulation| {
            let placed = placed(&world, simulation);
            for (at, queue) in world.queues.iter().enumerate() {
                let below: Vec<&(String, usize)> = placed
                    .iter()
                    .filter(|(_, own)| world.path(*own).any(|above| above == at))
                    .collect();
                assert!(!queue.is_closed || below.is_empty(), "seed {seed}: q{at} is closed");
                let cpus: i64 = below
                    .iter()
                    .map(|(pod, _)| {
                        let mut pods = simulation.world.store.pods.values();
                        let facts = pods.find(|facts| facts.key.name.as_str() == pod);
                        facts.map_or(0, |facts| facts.template.request.get("cpu"))
                    })
                    .sum();
                let limit = queue.cpu_limit.map_or(i64::MAX, |limit| 1000 * limit as i64);
                assert!(cpus <= limit, "seed {seed}: q{at} holds {cpus}m of {limit}m");
                let jobs: BTreeSet<usize> = below.iter().map(|(pod, _)| job_of_pod(pod)).collect();
                let most = queue.max_running_jobs.unwrap_or(u64::MAX);
                assert!(jobs.len() as u64 <= most, "seed {seed}: {jobs:?} run in q{at}");
            }
            for (pod, queue) in &placed {
                let has_children = !world.is_leaf(*queue);
                assert!(!has_children, "seed {seed}: {pod} runs in q{queue}, which has children");
            }
        });
        for evicted in played.iter().flat_map(|cycle| &cycle.evicted) {
            let taker = job_of_pod(&evicted.cause.job().job.object().name);
            let (victim, taker) = (world.queue_of(&evicted.pod.name), world.jobs[taker].queue);
            let outside = |above: &usize| !world.path(taker).any(|own| own == *above);
            let side = world.path(victim).take_while(outside);
            let fenced: Vec<usize> = side.filter(|queue| world.queues[*queue].is_fenced).collect();
            assert!(fenced.is_empty(), "seed {seed}: {} leaves {fenced:?}", evicted.pod.name);
        }
    }
}

fn cpu(amounts: &AmountsByName) -> i64 {
    amounts.iter().find(|(name, _)| &***name == "cpu").map_or(0, |(_, amount)| *amount)
}

/// What is idle of the CPUs less what the queues at the top lack together of what they are guaranteed, with one task more
/// in a queue. Written from the rule (Q4), but for what queues are guaranteed.
fn slack(world: &TreeWorld, simulation: &Simulation, more: Option<(usize, i64)>) -> i64 {
    // A nominated pod holds what it is nominated for; its victims have ended by now.
    let has_place = |pod: &&Arc<TaskFacts>| pod.node.is_some() || pod.nominated_node.is_some();
    let pods = simulation.world.store.pods.values().filter(has_place);
    let used = pods.map(|pod| (world.queue_of(&pod.key.name), pod.template.request.get("cpu")));
    let used: Vec<(usize, i64)> = used.chain(more).collect();
    slack_beside(world, simulation, &used)
}

/// The same, if these pods held these CPUs, each in a queue.
fn slack_beside(world: &TreeWorld, simulation: &Simulation, used: &[(usize, i64)]) -> i64 {
    let reports = &simulation.last().expect("a cycle has run").cycle.queues;
    let guaranteed = |queue: usize| {
        let name = format!("q{queue}");
        let report = reports.iter().find(|report| *report.queue.name == *name);
        report.map_or(0, |report| cpu(&report.guaranteed))
    };
    let held = |queue: usize| -> i64 {
        let below = used.iter().filter(|(own, _)| world.path(*own).any(|above| above == queue));
        below.map(|(_, cpu)| cpu).sum()
    };
    let mut lacks = vec![0; world.queues.len()];
    // Children come after their parents.
    for queue in (0..world.queues.len()).rev() {
        let children =
            (0..world.queues.len()).filter(|own| world.queues[*own].parent == Some(queue));
        let below: i64 = children.map(|child| lacks[child]).sum();
        lacks[queue] = below.max(guaranteed(queue) - held(queue)).max(0);
    }
    let at_top = (0..world.queues.len()).filter(|queue| world.queues[*queue].parent.is_none());
    let lacking: i64 = at_top.map(|queue| lacks[queue]).sum();
    1000 * world.n_cpus() as i64 - used.iter().map(|(_, cpu)| cpu).sum::<i64>() - lacking
}

/// Law 6: whatever sizes and resources there are, in every action, nothing takes what is kept free.
#[test]
fn what_is_guaranteed_is_kept_free() {
    let seeds = seeds(N_WORLDS);
    let mut n_kept = 0;
    for seed in &seeds {
        let kind = Kind {
            has_gpus: seed % 2 == 0,
            has_unit_pods: seed % 3 == 0,
            has_limits: seed % 4 == 0,
            has_ends: false,
        };
        let world = TreeWorld::new(CONFIGURATION, *seed, kind);
        play(&world, |simulation| {
            let slack = slack(&world, simulation, None);
            assert!(slack >= 0, "seed {seed}: {slack}m of what is guaranteed is taken");
            let kept = |report: &QueueReport| cpu(&report.guaranteed) > cpu(&report.allocated);
            n_kept += usize::from(
                simulation.last().is_some_and(|last| last.cycle.queues.iter().any(kept)),
            );
        });
    }
    assert!(seeds.len() < 100 || n_kept > seeds.len(), "nothing is kept");
}

/// Cycles between two changes of queues, and how often they change.
const CHANGES: (usize, usize) = (12, 3);

/// Queues get other fields and parents while jobs run: what others lack is never lessened, nothing starts where it may not,
/// and evictions cease after the last change.
#[test]
fn queues_that_change_keep_the_rules() {
    let seeds = seeds(N_WORLDS);
    let (mut n_evictions, mut failed) = (0, Vec::new());
    for seed in &seeds {
        let kind = Kind {
            has_gpus: false,
            has_unit_pods: seed % 2 == 0,
            has_limits: true,
            has_ends: false,
        };
        let mut world = TreeWorld::new(CONFIGURATION, *seed, kind);
        let cases = world.cases.clone();
        let n_cycles = CHANGES.0 * CHANGES.1 + CYCLES.0 + CYCLES.1;
        let (mut at, mut before): (usize, Option<i64>) = Default::default();
        let mut bound: BTreeSet<String> = BTreeSet::new();
        let played = play_cases(&cases, n_cycles, &mut |simulation| {
            let slack = slack(&world, simulation, None);
            let now: BTreeSet<String> =
                placed(&world, simulation).into_iter().map(|(pod, _)| pod).collect();
            let is_kept = slack >= 0 || before.is_none_or(|before| slack >= before);
            assert!(is_kept, "seed {seed}, cycle {at}: {slack}m of what is guaranteed is taken");
            for pod in now.difference(&bound) {
                let queue = world.queue_of(pod);
                let is_closed = world.path(queue).any(|above| world.queues[above].is_closed);
                let has_children = !world.is_leaf(queue);
                assert!(
                    !is_closed && !has_children,
                    "seed {seed}, cycle {at}: {pod} starts in q{queue}"
                );
            }
            (bound, before) = (now, Some(slack));
            at += 1;
            if at % CHANGES.0 == 0 && at / CHANGES.0 <= CHANGES.1 {
                let change = world.change_queues(CONFIGURATION, seed ^ (at as u64) << 32, kind);
                for object in change.objects {
                    simulation.world.apply(object.value).expect("the object is valid");
                }
                before = None;
            }
        });
        n_evictions += played.iter().map(|cycle| cycle.evicted.len()).sum::<usize>();
        if played[n_cycles - CYCLES.1..].iter().any(|cycle| !cycle.evicted.is_empty()) {
            failed.push(*seed);
        }
    }
    assert!(failed.is_empty(), "evictions do not cease with {} seeds: {failed:?}", failed.len());
    assert!(seeds.len() < 100 || n_evictions > seeds.len() / 2, "nothing is evicted");
}

/// Law 8: one resource, pods of one unit, no limits: in the end nothing is idle that a pod could use without taking what
/// is kept free.
#[test]
fn nothing_stays_idle_that_a_pod_could_use() {
    let seeds = seeds(N_WORLDS);
    let (mut n_idle, mut failed) = (0, Vec::new());
    for seed in &seeds {
        let kind =
            Kind { has_gpus: false, has_unit_pods: true, has_limits: false, has_ends: false };
        let world = TreeWorld::new(CONFIGURATION, *seed, kind);
        let mut could_use = None;
        play(&world, |simulation| {
            let pods = || simulation.world.store.pods.values();
            let used: i64 = pods()
                .filter(|pod| pod.node.is_some())
                .map(|pod| pod.template.request.get("cpu"))
                .sum();
            let is_idle = used < 1000 * world.n_cpus() as i64;
            let mut waiting =
                pods().filter(|pod| pod.node.is_none()).map(|pod| world.queue_of(&pod.key.name));
            could_use = waiting.find(|queue| {
                is_idle
                    && world.is_leaf(*queue)
                    && slack(&world, simulation, Some((*queue, 1000))) >= 0
            });
            n_idle += usize::from(is_idle);
        });
        failed.extend(could_use.map(|queue| (*seed, queue)));
    }
    assert!(
        failed.is_empty(),
        "{} waiting queues could use what is idle: {failed:?}",
        failed.len()
    );
    assert!(seeds.len() < 100 || n_idle > seeds.len() / 2, "nothing is idle");
}

/// Law 4: one resource, pods of one unit, everything may move: in the end every leaf that waits holds what it deserves.
#[test]
fn every_leaf_that_waits_gets_what_it_deserves() {
    let seeds = seeds(N_WORLDS);
    let mut n_waiting = 0;
    for seed in &seeds {
        let kind =
            Kind { has_gpus: false, has_unit_pods: true, has_limits: false, has_ends: false };
        let world = TreeWorld::new(CONFIGURATION, *seed, kind);
        let mut last = Vec::new();
        play(&world, |simulation| {
            let cycle = simulation.last().expect("a cycle has run");
            last = cycle
                .cycle
                .queues
                .iter()
                .filter_map(|report| Some((report.queue.name.clone(), report.closing.clone()?)))
                .collect();
        });
        for (name, shares) in last {
            let at: usize = name.trim_start_matches('q').parse().unwrap_or(usize::MAX);
            let is_leaf = at < world.queues.len() && world.is_leaf(at);
            let cpu = kube_batch_model::column::Dim::CPU;
            if is_leaf && shares.pending[cpu] > 0 {
                n_waiting += 1;
                // A whole pod is 1000m.
                let (held, deserved) = (shares.allocated[cpu], shares.deserved[cpu]);
                assert!(
                    held + 999 >= deserved,
                    "seed {seed}: {name} holds {held}m of {deserved}m and waits"
                );
            }
        }
    }
    assert!(seeds.len() < 100 || n_waiting > seeds.len() / 2, "nothing waits");
}

/// Prints what was decided in a cycle, and which jobs wait for what.
fn print_waiting(simulation: &Simulation) {
    let record = &simulation.world.record;
    let evicted = record.evictions.iter().map(|own| (&*own.pod.name, own.cause.reason()));
    println!(
        "{}: binds {:?}, evicts {:?}, nominates {:?}",
        simulation.world.n_cycles(),
        record.binds.iter().map(|(pod, node)| (&*pod.name, &**node)).collect::<Vec<_>>(),
        evicted.collect::<Vec<_>>(),
        simulation
            .world
            .pipelined
            .iter()
            .map(|(pod, node)| (&*pod.name, &**node))
            .collect::<Vec<_>>()
    );
    for job in simulation.last().iter().flat_map(|last| last.cycle.jobs.iter()) {
        if let Some((reason, words)) = job.unschedulable_in_words() {
            println!("  {} waits: {reason} {words}", job.key);
        }
    }
}

/// Whether the pods that a job needs to start fit the nodes if no other job holds anything, beside what is kept free for
/// others. All are of one size.
fn fits_alone(world: &TreeWorld, simulation: &Simulation, job: &RandomJob) -> bool {
    let n_places: u64 = world.nodes.iter().map(|cpus| cpus / job.cpu).sum();
    let used = [(job.queue, 1000 * (job.min * job.cpu) as i64)];
    world.is_leaf(job.queue) && n_places >= job.min && slack_beside(world, simulation, &used) >= 0
}

/// What is kept free for queues, what is reserved for jobs that have waited long, and what pods are nominated for never
/// wait for each other: where every pod ends, every job that fits alone does too.
#[test]
fn guarantees_and_reservations_never_deadlock() {
    let seeds = seeds(N_WORLDS);
    let reservation =
        "reservation.after: 10s, reservation.patience: 1m, reservation.protection: 20s";
    let configuration = configuration(Some(reservation));
    let (mut n_kept, mut n_jobs, mut failed) = (0, 0, Vec::new());
    for seed in &seeds {
        let kind = Kind {
            has_gpus: false,
            has_unit_pods: seed % 4 == 0,
            has_limits: false,
            has_ends: true,
        };
        let world = TreeWorld::new(&configuration, *seed, kind);
        if seeds.len() == 1 {
            println!("{:?} {:?} {:?}", world.nodes, world.queues, world.jobs);
        }
        let mut waiting = Vec::new();
        let mut n_fitting = 0;
        // At most 64 pods run, for at most 8 seconds each, if need be one after the other.
        play_until(&world.cases, 600, &mut |simulation| {
            let kept = |report: &QueueReport| cpu(&report.guaranteed) > 0;
            n_kept += usize::from(
                simulation.last().is_some_and(|last| last.cycle.queues.iter().any(kept)),
            );
            let n_ended = |job: usize| {
                let pods = simulation.world.store.pods.values();
                let of_job = pods.filter(|pod| job_of_pod(&pod.key.name) == job);
                of_job.filter(|pod| pod.status == TaskStatus::Succeeded).count()
            };
            let all = world.jobs.iter().enumerate();
            let fitting = all.filter(|(_, job)| fits_alone(&world, simulation, job));
            n_fitting = fitting.clone().count();
            let unended = fitting.filter(|(at, job)| n_ended(*at) < job.n_pods as usize);
            waiting = unended.map(|(at, _)| at).collect();
            if seeds.len() == 1 {
                print_waiting(simulation);
            }
            let has_come = simulation.world.n_cycles() > LATER as u64;
            if has_come && waiting.is_empty() {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        n_jobs += n_fitting;
        if !waiting.is_empty() {
            failed.push((*seed, waiting));
        }
    }
    assert!(failed.is_empty(), "jobs never end with {} seeds: {failed:?}", failed.len());
    assert!(seeds.len() < 100 || n_kept > 0 && n_jobs > seeds.len(), "nothing is kept free");
}
