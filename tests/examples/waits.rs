//! Prints the table of docs/reservations.md: how long small and large jobs of one queue wait at several loads, without
//! and with the plugin `reservation`. Takes some minutes.

use kube_batch_tests::{
    random_cluster::Rng,
    streams::{Arrival, Stream, configuration, small_jobs},
};

const ARGUMENTS: &str = "reservation.after: 60s";

fn main() {
    println!("load   plugin   small: mean  99 %   most   large: mean   most  not started");
    for percent in [60, 90, 100] {
        for arguments in [None, Some(ARGUMENTS)] {
            print_waits(percent, arguments);
        }
    }
}

fn print_waits(percent: u64, arguments: Option<&str>) {
    let (mut small, mut large, mut n_waiting) = (Vec::new(), Vec::new(), 0);
    for seed in 0..4 {
        let mut rng = Rng::new(seed);
        let nodes = vec![8; 8];
        let mut arrivals = small_jobs(&mut rng, 0, 64, percent * 3 / 4, 1_200);
        for number in 0..4 {
            // A quarter of the load: half of the cluster for a while.
            let seconds = 300 * percent / 100 / 2;
            arrivals.push(Arrival {
                name: format!("large{number}"),
                at: 100 + 300 * number,
                queue: 0,
                n_pods: 4,
                cpus: 8,
                seconds,
                is_declared: true,
            });
        }
        arrivals.sort_by_key(|arrival| arrival.at);
        let stream = Stream { weights: vec![1], nodes, arrivals };
        let waits = stream.play(&configuration(arguments), 1_500, None);
        for (arrival, wait) in stream.arrivals.iter().zip(waits) {
            let waits = if arrival.name.starts_with("large") { &mut large } else { &mut small };
            match wait {
                Some(wait) => waits.push(wait),
                None => n_waiting += 1,
            }
        }
    }
    small.sort_unstable();
    large.sort_unstable();
    let mean = |waits: &[u64]| waits.iter().sum::<u64>() / waits.len().max(1) as u64;
    let most = |waits: &[u64]| waits.last().copied().unwrap_or(0);
    let near_most = small.get(small.len() * 99 / 100).copied().unwrap_or(0);
    println!(
        "{percent:>3} %  {:<7} {:>12} {near_most:>5} {:>6} {:>13} {:>6} {n_waiting:>12}",
        if arguments.is_some() { "with" } else { "without" },
        mean(&small),
        most(&small),
        mean(&large),
        most(&large),
    );
}
