//! Hostile objects of one namespace leave the decisions and the work of everyone else as they are. What
//! they cost in time and memory is measured by `cargo xtask hostile`.

use std::collections::BTreeSet;

use jiff::Timestamp;
use kube_batch_actions::{allocate, backfill, preempt, reclaim};
use kube_batch_cache::{
    assumed::Assumed,
    snapshot::{SnapshotOptions, take_snapshot},
    store::Store,
};
use kube_batch_framework::{candidates::Search, memory::Memory, report::Cycle, session::Session};
use kube_batch_model::{column::ClassIdx, why::Worded};
use kube_batch_scheduler::conf::Conf;
use kube_batch_tests::{
    hostile::{Kind, NAMESPACE, Size, Variant, contents::kinds, decisions_about_others},
    shapes::full,
};

const SMALL: Size = Size { nodes: 50, jobs: 25, divisor: 20 };

fn conf() -> Conf {
    full(&[reclaim::SPEC, allocate::SPEC, backfill::SPEC, preempt::SPEC])
}

fn decisions(store: &Store) -> Vec<String> {
    let snapshot = take_snapshot(store, &Assumed::default(), &SnapshotOptions::default());
    let cycle = conf().run_cycle(snapshot.cluster, Timestamp::MAX, Search::Index, &mut |_| {});
    decisions_about_others(&cycle.decisions)
}

#[test]
fn hostile_objects_change_no_decision_about_others() {
    for kind in kinds() {
        let plain = decisions(&kind.store(SMALL, Variant::Plain));
        assert!(!plain.is_empty(), "{}", kind.name);
        assert_eq!(decisions(&kind.store(SMALL, Variant::Hostile)), plain, "{}", kind.name);
    }
}

/// The classes of waiting pods of others, and how many of them are placed with the index.
fn classes_of_others(kind: &Kind, variant: Variant) -> (usize, usize) {
    let store = kind.store(SMALL, variant);
    let snapshot = take_snapshot(&store, &Assumed::default(), &SnapshotOptions::default());
    let mut session =
        Session::open(snapshot.cluster, Timestamp::MAX, conf().policy(), Search::Index);
    let cluster = session.cluster();
    let tasks =
        cluster.tasks.facts.iter().filter(|(task, facts)| {
            *facts.key.namespace != *NAMESPACE && cluster.is_waiting(*task)
        });
    let classes: BTreeSet<ClassIdx> = tasks.map(|(task, _)| cluster.tasks.class[task]).collect();
    let n_indexable = classes.iter().filter(|class| session.search().is_indexable(**class)).count();
    (classes.len(), n_indexable)
}

/// The kinds with selectors that tell the pods of others apart: these are placed with the index, but
/// are more classes.
const SPLITTING: [&str; 2] = ["anti-split", "anti-pending-split"];

#[test]
fn pods_of_others_stay_one_class_that_has_an_index() {
    for kind in kinds() {
        assert_eq!(classes_of_others(&kind, Variant::Plain), (1, 1), "{}", kind.name);
        let (n_classes, n_indexable) = classes_of_others(&kind, Variant::Hostile);
        assert_eq!(n_indexable, n_classes, "{}", kind.name);
        assert!(n_classes == 1 || SPLITTING.contains(&kind.name), "{}: {n_classes}", kind.name);
    }
}

/// The evaluations that the searches of one turn may take.
const SEARCHES: i64 = 200_000;

/// How often a turn evaluates a class on a node, or compares it with another class: for what is idle, and for what will be.
const EVALUATIONS: i64 = 2;

/// A cycle in which every job gets its turns, however large they are.
fn whole_cycle(kind: &Kind, size: Size, variant: Variant) -> Cycle {
    let snapshot =
        take_snapshot(&kind.store(size, variant), &Assumed::default(), &SnapshotOptions::default());
    let memory = &mut Memory::with_budget(u64::MAX);
    let conf = conf();
    let search = Search::Index;
    conf.run_next_cycle(snapshot.cluster, Timestamp::MAX, search, memory, &mut |_| {}).0
}

fn work(kind: &Kind, size: Size, variant: Variant) -> i64 {
    whole_cycle(kind, size, variant).work as i64
}

/// The kinds whose pods have more claims than are read, and what is said of them.
const ABOVE_BOUNDS: [(&str, &str); 2] = [
    ("device-requests-8000", "8000 requests, kube-batch reads at most 500"),
    ("unbound-claims-500", "500 volume claims that are not bound, kube-batch reads at most 100"),
];

#[test]
fn pods_with_more_claims_than_are_read_say_so_and_are_not_searched_for() {
    for (name, message) in ABOVE_BOUNDS {
        let kinds = kinds();
        let kind = kinds.iter().find(|kind| kind.name == name).expect("a kind");
        let cycle = whole_cycle(kind, SMALL, Variant::Hostile);
        let of_pods = cycle.jobs.iter().filter(|job| &*job.key.object().namespace == NAMESPACE);
        let unschedulable = of_pods.filter_map(|job| job.unschedulable.as_ref());
        let messages: Vec<&str> = unschedulable.map(Worded::words).collect();
        assert!(!messages.is_empty(), "{name}");
        assert!(messages.iter().all(|own| own.contains(message)), "{name}: {messages:?}");
        let more = cycle.work as i64 - work(kind, SMALL, Variant::Plain);
        // What is looked at before claims are; a search for one claim takes more.
        assert!(more <= 40 * SMALL.nodes as i64, "{name}: {more} evaluations");
    }
}

/// What one pod at the bounds takes on a node, in evaluations: devices and volumes are looked at once, whatever the
/// number of claims that want the same.
const OF_POD_ON_NODE: i64 = 150;

#[test]
fn the_turns_of_pods_with_many_claims_have_a_bound() {
    for kind in kinds().iter().filter(|kind| OF_CLAIMS.contains(&kind.name)) {
        for (nodes, divisor) in [(50, 20), (100, 20), (100, 5)] {
            let size = Size { nodes, jobs: nodes / 2, divisor };
            let more = work(kind, size, Variant::Hostile) - work(kind, size, Variant::Plain);
            let bound = OF_POD_ON_NODE * nodes as i64 * (200 / divisor as i64);
            assert!(more <= bound, "{}: {more} of {bound} on {nodes}", kind.name);
        }
    }
}

/// The kinds with many claims that want the same.
const OF_CLAIMS: [&str; 2] = ["device-requests", "unbound-claims"];

#[test]
fn the_turns_of_a_gang_of_many_templates_have_a_bound() {
    for kind in kinds().iter().filter(|kind| kind.name.starts_with("unlike")) {
        for (nodes, divisor) in [(50, 40), (50, 10), (100, 40), (100, 5), (200, 20), (200, 10)] {
            let size = Size { nodes, jobs: nodes / 2, divisor };
            let more = work(kind, size, Variant::Hostile) - work(kind, size, Variant::Plain);
            let (classes, nodes) = (2_000 / divisor as i64, nodes as i64);
            let bound = 4 * (SEARCHES + EVALUATIONS * classes * (nodes + classes));
            assert!(more <= bound, "{}: {more} of {bound}, {classes} on {nodes}", kind.name);
        }
    }
}
