//! Jobs of which no task fits anywhere are not tried again although pods come and go, and change no decision by that.

use kube_batch_framework::memory::Memory;
use kube_batch_tests::{
    random_cluster::{RandomCluster, Rng},
    seeds::seeds,
};

use super::{
    changes::Change,
    compare, cycle,
    history::{History, WITH_SHARES, delete_pod, group, node, pod, queue, running, what_waits},
    read, simulation,
};

/// Gangs of three pods that need more than the nodes have left, and pods that fit; the others run.
fn with_gangs(n_gangs: usize) -> History<'static> {
    let mut objects =
        vec![queue("default", "weight: 1"), node("n", "5"), node("m", "5"), node("l", "5")];
    objects.push(group("runs", "minMember: 1"));
    objects.extend(["n", "m", "l"].map(|node| running(&format!("on-{node}"), "runs", "3", node)));
    for gang in 0..n_gangs {
        let name = format!("gang-{gang}");
        objects.push(group(&name, "minMember: 3"));
        objects.extend((0..3).map(|n| pod(&format!("{name}-{n}"), &name, "3", "")));
    }
    for n in 0..3 {
        let name = format!("small-{n}");
        objects.push(group(&name, "minMember: 1"));
        objects.push(pod(&name, &name, "1", ""));
    }
    History { actions: "allocate, backfill", plugins: WITH_SHARES, gang: "", objects }
}

/// How many evaluations of nodes the cycles take in which small pods arrive, one in each.
fn work_of_arrivals(n_gangs: usize) -> u64 {
    let case = read(&with_gangs(n_gangs).text());
    let n_objects = case.objects.len();
    let is_small = |at: usize| at >= n_objects - 6;
    let mut simulation = simulation(&case, Memory::with_budget(u64::MAX), |at| !is_small(at));
    for _ in 0..3 {
        assert_eq!(cycle(&mut simulation).0.decisions, []);
    }
    let mut work = 0;
    for at in (n_objects - 6..n_objects).step_by(2) {
        for object in &case.objects[at..at + 2] {
            simulation.world.apply(object.value.clone()).expect("valid");
        }
        let (cycle, of_cycle) = cycle(&mut simulation);
        assert_eq!(cycle.decisions.len(), 1, "the pod is bound");
        work += of_cycle;
    }
    work
}

#[test]
fn gangs_that_fit_nowhere_take_nearly_no_work_while_pods_arrive() {
    let [few, many] = [5, 50].map(work_of_arrivals);
    // A try of one takes several evaluations, in each of the cycles.
    assert!(many - few < 3 * 45 * 4, "{few} and {many} evaluations");
}

#[test]
fn of_a_node_that_has_room_again() {
    let mut history = with_gangs(2);
    history.objects.truncate(history.objects.len() - 6);
    let cycles = history.cycles(8, |at, store| match at {
        3 => delete_pod(store, "on-n"),
        5 => ["on-m", "on-l"].into_iter().for_each(|name| delete_pod(store, name)),
        _ => {}
    });
    assert_ne!(what_waits(&cycles[2]), what_waits(&cycles[3]), "one pod fits");
    assert_eq!(cycles[5].decisions.len(), 3, "a gang starts");
}

/// 15: devices were reserved for a waiting pod that was deleted.
#[test]
fn what_is_remembered_of_jobs_that_fit_nowhere_changes_nothing() {
    let (mut with, mut without) = (0, 0);
    for seed in seeds(300).into_iter().chain([15]) {
        let mut rng = Rng::new(seed.rotate_left(16));
        let random =
            if rng.percent(50) { RandomCluster::new(seed) } else { RandomCluster::contended(seed) };
        let text = without_evictions(&random.case());
        let work = compare(seed, &read(&text), &mut rng, Change::of_any_object);
        (with, without) = (with + work.0, without + work.1);
    }
    // In most of these worlds, the tasks of a job differ.
    assert!(with * 100 < without * 96, "little was remembered: {with} of {without} evaluations");
}

/// The case with actions that evict nothing.
fn without_evictions(case: &str) -> String {
    let (head, rest) = case.split_once("actions: '").expect("a configuration");
    let (_, rest) = rest.split_once('\'').expect("actions");
    format!("{head}actions: 'allocate, backfill'{rest}")
}
