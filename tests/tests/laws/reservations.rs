//! Large jobs start behind streams of small ones (docs/parity.md#a12).
//!
//! `KUBE_BATCH_SEEDS=1000 cargo test -p kube-batch-tests --test laws reservations::` plays more streams, `KUBE_BATCH_SEED=7` one.
//! `cargo run -p kube-batch-tests --example waits` prints the table of docs/reservations.md.

use kube_batch_tests::{
    random_cluster::Rng,
    seeds::seeds,
    streams::{Arrival, Stream, configuration, small_jobs},
};

/// What the tests of this file configure: everything in seconds instead of minutes and hours.
const ARGUMENTS: &str =
    "reservation.after: 30s, reservation.patience: 5m, reservation.protection: 1m";

/// How long a stream is played, in seconds.
const LONGEST: u64 = 600;

/// When the job comes that is looked at.
const ARRIVAL: u64 = 60;

/// A random stream, and the place of a job in it that fits the cluster without the others.
fn random_stream(rng: &mut Rng) -> (Stream, usize) {
    let nodes: Vec<u64> = (0..1 + rng.below(4)).map(|_| [4, 4, 8][rng.below(3) as usize]).collect();
    let total: u64 = nodes.iter().sum();
    let weights: Vec<u64> = (0..1 + rng.below(3)).map(|_| 1 + rng.below(3)).collect();
    let mut arrivals = Vec::new();
    let percent = [60, 90, 100, 120][rng.below(4) as usize];
    for queue in 0..weights.len() as u64 {
        let percent = percent / weights.len() as u64;
        arrivals.extend(small_jobs(rng, queue, total, percent, LONGEST));
    }
    // Small jobs need at most 4 CPUs, so each fits on each node. Of the large one at most half of the pods of this size
    // fit on the cluster, or all of them.
    let cpus = 1 + rng.below(4);
    let most: u64 = nodes.iter().map(|node| node / cpus).sum();
    let n_pods = if rng.percent(50) { most } else { most.div_ceil(2) };
    let queue = rng.below(weights.len() as u64);
    let (seconds, is_declared) = (20 + rng.below(40), rng.percent(50));
    let large = Arrival {
        name: "large".to_owned(),
        at: ARRIVAL,
        queue,
        n_pods,
        cpus,
        seconds,
        is_declared,
    };
    arrivals.push(large);
    arrivals.sort_by_key(|arrival| arrival.at);
    let at = arrivals.iter().position(|arrival| arrival.name == "large").expect("it was added");
    (Stream { weights, nodes, arrivals }, at)
}

/// Where run times are finite, no job waits indefinitely.
#[test]
fn a_job_that_fits_the_cluster_starts() {
    let seeds = seeds(100);
    let (mut n_late, mut failed) = (0, Vec::new());
    for seed in &seeds {
        let (stream, at) = random_stream(&mut Rng::new(*seed));
        let wait = stream.play(&configuration(Some(ARGUMENTS)), LONGEST, Some(at))[at];
        if seeds.len() == 1 {
            println!("{:?} of {:?} waits for {wait:?}", stream.arrivals[at], stream.nodes);
        }
        match wait {
            None => failed.push(*seed),
            Some(wait) if wait > 30 => n_late += 1,
            Some(_) => {}
        }
    }
    println!("{n_late} of {} jobs started after they got a reservation", seeds.len());
    assert!(failed.is_empty(), "the large job never starts with these seeds: {failed:?}");
    assert!(seeds.len() < 20 || n_late > seeds.len() / 4, "no job needs a reservation");
}
