//! Law: with steady demand, evictions cease. Pods that are evicted come again, nothing ends, and lending is on
//! (docs/parity.md#c7, docs/parity.md#c8).
//!
//! Random queues, single pods and gangs of one or two resources, played with the plugins of the shipped configuration.
//! `KUBE_BATCH_SEEDS=20000 cargo test -p kube-batch-tests --test laws steady_demand::` plays more worlds, and
//! `KUBE_BATCH_SEED=7` one, whose evictions it prints.

use kube_batch_sim::world::Eviction;
use kube_batch_tests::{
    seeds::seeds,
    steady_world::{CONFIGURATION, LATER, Played, play},
};

/// Cycles until evictions must have ceased, and cycles without any.
const CYCLES: (usize, usize) = (60, 20);

#[test]
fn evictions_cease() {
    let seeds = seeds(500);
    let (mut n_evictions, mut failed) = (0, Vec::new());
    for seed in &seeds {
        let played = play(CONFIGURATION, *seed, CYCLES.0 + CYCLES.1);
        let by_cycle: Vec<Vec<String>> = played.iter().map(in_words).collect();
        n_evictions += by_cycle.iter().map(Vec::len).sum::<usize>();
        if seeds.len() == 1 {
            by_cycle.iter().enumerate().for_each(|(at, evicted)| println!("{at}: {evicted:?}"));
        }
        if by_cycle[CYCLES.0..].iter().any(|evicted| !evicted.is_empty()) {
            failed.push(*seed);
        }
    }
    println!("{n_evictions} evictions in {} worlds", seeds.len());
    assert!(failed.is_empty(), "evictions do not cease with {} seeds: {failed:?}", failed.len());
    assert!(seeds.len() < 100 || n_evictions > seeds.len() / 2, "nothing is evicted");
}

/// The evictions of a cycle, as text.
fn in_words(played: &Played) -> Vec<String> {
    let evicted = played.evicted.iter();
    evicted
        .map(|of| format!("{} {} for {}", of.cause.reason(), of.pod.name, of.cause.job().job))
        .collect()
}

/// Nothing starts only to be evicted: where no pod has come or gone since a pod started, it is not evicted. Evictions
/// that need two jobs together are not foreseen, so at most one world in 250 may break this (docs/parity.md#p14).
#[test]
fn no_pod_is_evicted_that_started_since_the_last_change() {
    let seeds = seeds(500);
    let (mut n_started, mut failed) = (0, Vec::new());
    for seed in &seeds {
        let played = play(CONFIGURATION, *seed, CYCLES.0);
        if seeds.len() == 1 {
            for (at, cycle) in played.iter().enumerate() {
                println!("{at}: {:?}, evicts {:?}", cycle.bound, in_words(cycle));
            }
        }
        let periods = [&played[..LATER], &played[LATER..]];
        n_started += played.iter().map(|cycle| cycle.bound.len()).sum::<usize>();
        if let Some(why) = periods.into_iter().find_map(started_in_vain) {
            failed.push((*seed, why));
        }
    }
    println!("{n_started} pods started in {} worlds", seeds.len());
    for (seed, why) in &failed {
        println!("seed {seed}: {why}");
    }
    let most = seeds.len().div_ceil(250);
    assert!(failed.len() <= most, "pods start only to be evicted in {} worlds", failed.len());
    assert!(seeds.len() < 100 || n_started > 5 * seeds.len(), "nothing starts");
}

/// A pod that is evicted in the same period in which it started.
fn started_in_vain(period: &[Played]) -> Option<String> {
    let mut started: Vec<(usize, &str)> = Vec::new();
    for (at, cycle) in period.iter().enumerate() {
        if cycle.has_changed {
            started.clear();
        }
        let young = |pod: &str| started.iter().find(|(_, name)| *name == pod);
        let evicted = cycle.evicted.iter();
        let words = |of: &Eviction| {
            let (since, pod) = young(&of.pod.name)?;
            Some(format!(
                "{pod} starts in cycle {since}, in cycle {at} {} for {}",
                of.cause.reason(),
                of.cause.job().job
            ))
        };
        if let Some(why) = evicted.map(words).find_map(|why| why) {
            return Some(why);
        }
        started.extend(cycle.bound.iter().map(|pod| (at, pod.as_str())));
    }
    None
}
