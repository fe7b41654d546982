//! Times one cycle over each shape, and the next one if the first decides nothing:
//! `cargo bench -p kube-batch-tests -- [SHAPE…]`.

use std::time::Instant;

use jiff::Timestamp;
use kube_batch_api::decision::Decision;
use kube_batch_cache::{
    assumed::Assumed,
    snapshot::{SnapshotOptions, take_snapshot},
};
use kube_batch_framework::{candidates::Search, memory::Memory};
use kube_batch_tests::shapes::shape;

/// The shapes that run if none is named.
const STANDARD: [&str; 23] = [
    "FILL-1000-10000-100",
    "FILL-1000-10000-1",
    "FILL-5000-50000-100",
    "FILL-10000-100000-100",
    "FILL-10000-100000-1",
    "FILLMIX-10000-100000-100",
    "FILLTAINT-5000-50000-100",
    "SAT-5000-10000-100",
    "SAT-5000-10000-1",
    "STEADY-5000",
    "IDLE-5000",
    "PREEMPT-5000-100",
    "PREEMPT-5000-1000",
    "GANGPREEMPT-5000",
    "RECLAIM-5000-1",
    "KAIRECLAIM-1000",
    "KAIRECLAIM-10000",
    "AFF-ZONE-5000",
    "AFF-HOST-5000",
    "SPREAD-5000",
    "PREF-AFF-ZONE-5000",
    "PREF-AFF-HOST-5000",
    "PREF-SPREAD-5000",
];

/// Runs of each shape; the fastest and the median are shown.
const RUNS: usize = 5;

fn main() {
    let mut names: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    if names.is_empty() {
        names = STANDARD.map(str::to_owned).to_vec();
    }
    println!(
        "{:<28} {:>11} {:>18} {:>8} {:>7} {:>7} {:>11}",
        "shape", "snapshot ms", "cycle ms min/med", "next ms", "binds", "evicts", "nominations"
    );
    for name in names {
        let Some(shape) = shape(&name) else {
            eprintln!("unknown shape {name}");
            std::process::exit(2);
        };
        let mut snapshots = Vec::new();
        let mut cycles = Vec::new();
        let mut again = Vec::new();
        let mut counts = [0; 3];
        for _ in 0..RUNS {
            let snapshot = || {
                take_snapshot(&shape.store, &Assumed::default(), &SnapshotOptions::default())
                    .cluster
            };
            let start = Instant::now();
            let cluster = snapshot();
            snapshots.push(start.elapsed().as_secs_f64() * 1e3);
            let mut memory = Memory::default();
            let mut run = |cluster| {
                memory.set_generation(1);
                let start = Instant::now();
                let (cycle, _) = shape.conf.run_next_cycle(
                    cluster,
                    Timestamp::MAX,
                    Search::Index,
                    &mut memory,
                    &mut |_| {},
                );
                (cycle, start.elapsed().as_secs_f64() * 1e3)
            };
            let (cycle, took) = run(cluster);
            cycles.push(took);
            // What it decided is not done here.
            if cycle.decisions.is_empty() {
                again.push(run(snapshot()).1);
            }
            counts = [0; 3];
            for decision in &cycle.decisions {
                match decision {
                    Decision::Bind { .. } => counts[0] += 1,
                    Decision::Evict { .. } => counts[1] += 1,
                    Decision::Nominate { .. } => counts[2] += 1,
                    Decision::Withdraw { .. } => {}
                }
            }
            if cycles.iter().sum::<f64>() > 20e3 {
                break;
            }
        }
        snapshots.sort_by(f64::total_cmp);
        cycles.sort_by(f64::total_cmp);
        again.sort_by(f64::total_cmp);
        println!(
            "{name:<28} {:>11.1} {:>9.1}/{:>8.1} {:>8} {:>7} {:>7} {:>11}",
            snapshots[0],
            cycles[0],
            cycles[cycles.len() / 2],
            again.first().map_or("-".to_owned(), |took| format!("{took:.1}")),
            counts[0],
            counts[1],
            counts[2]
        );
    }
}
