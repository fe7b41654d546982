//! Simulates the operator, and prints the first failure.

use std::{process::ExitCode, time::Instant};

use clap::Parser;
use kube_batch_operator_sim::{Failure, simulate, simulate_episode};

/// Simulates replicas of the scheduler against a model of the API server, with faults.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100)]
struct Args {
    /// Where to begin; other seeds are other episodes.
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    /// How many steps to simulate at least: requests, events of watches, and actions.
    #[arg(long, default_value_t = 100_000, value_name = "N")]
    steps: u64,
    /// Run only the episode with this seed, as it is printed for a failure.
    #[arg(long, value_name = "SEED", conflicts_with_all = ["seed", "steps"])]
    episode: Option<u64>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let started = Instant::now();
    let mut shown = Instant::now();
    let result = match args.episode {
        Some(seed) => simulate_episode(seed),
        None => simulate(args.seed, args.steps, |summary| {
            if shown.elapsed().as_secs() >= 30 {
                shown = Instant::now();
                eprintln!("{} steps in {} episodes", summary.n_steps, summary.n_episodes);
            }
        }),
    };
    match result {
        Ok(summary) => {
            println!(
                "{} steps in {} episodes, {} bindings, {} evictions, {} claims made, {} deallocated, \
                 {:.0} s: no rule was broken",
                summary.n_steps,
                summary.n_episodes,
                summary.counts.n_bindings,
                summary.counts.n_evictions,
                summary.counts.n_claims,
                summary.counts.n_deallocations,
                started.elapsed().as_secs_f64()
            );
            ExitCode::SUCCESS
        }
        Err(failure) => {
            print(&failure);
            ExitCode::FAILURE
        }
    }
}

fn print(failure: &Failure) {
    println!("The last lines of the trace:\n");
    failure.lines.iter().for_each(|line| println!("{line}"));
    println!("\nThe actions, as far as the failure needs them:\n\n{}", failure.script);
    println!("Broken: {}\nSeed of the episode: --episode {}", failure.broken, failure.seed);
}
