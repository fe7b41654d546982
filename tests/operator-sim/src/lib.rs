#![doc = include_str!("../README.md")]

mod changes;
mod checks;
mod configuration;
mod crds;
mod devices;
mod episode;
mod network;
mod nodes;
mod outages;
mod pods;
mod replicas;
mod report;
mod script;
mod server;
mod shared;
mod shrink;
mod traffic;
mod watch;
mod world;

use fastrand::Rng;
use kube_batch::Registry;

pub use self::report::{Counts, Failure, Summary};
use self::{episode::Ended, script::Script};

/// How many actions an episode has at most.
const MAX_ACTIONS: usize = 120;

/// Runs episodes until there were `n_steps` steps, and tells `progress` of each.
///
/// # Errors
///
/// The first episode in which a rule is broken.
pub fn simulate(
    seed: u64,
    n_steps: u64,
    mut progress: impl FnMut(&Summary),
) -> Result<Summary, Box<Failure>> {
    let mut summary = Summary::default();
    while summary.n_steps < n_steps {
        let ended = play(episode::seed_of(seed, summary.n_episodes))?;
        summary.n_episodes += 1;
        summary.n_steps += ended.n_steps;
        summary.counts += ended.counts;
        progress(&summary);
    }
    Ok(summary)
}

/// Runs the episode with this seed.
///
/// # Errors
///
/// If a rule is broken in it.
pub fn simulate_episode(seed: u64) -> Result<Summary, Box<Failure>> {
    let ended = play(seed)?;
    let Ended { n_steps, counts, .. } = ended;
    Ok(Summary { n_episodes: 1, n_steps, counts })
}

/// Runs the episode with this seed twice, and returns the first lines of the traces that differ.
pub fn difference(seed: u64) -> Option<(String, String)> {
    let run = || episode::run(seed, &script_of(seed), &Registry::builtin()).lines;
    let (l, r) = (run(), run());
    let n = l.iter().zip(&r).position(|(l, r)| l != r)?;
    let from = n.saturating_sub(12);
    eprintln!("{}\n---\n{}", l[from..n + 3].join("\n"), r[from..n + 3].join("\n"));
    Some((l[n].clone(), r[n].clone()))
}

/// Runs the episode with this seed, and returns a number that is different if anything happened
/// differently.
pub fn hash(seed: u64) -> u64 {
    episode::run(seed, &script_of(seed), &Registry::builtin()).hash
}

fn play(seed: u64) -> Result<Ended, Box<Failure>> {
    let (script, registry) = (script_of(seed), Registry::builtin());
    let ended = episode::run(seed, &script, &registry);
    match &ended.broken {
        None => Ok(ended),
        Some(_) => Err(Box::new(shrink::failure(seed, script, &registry))),
    }
}

fn script_of(seed: u64) -> Script {
    let mut rng = Rng::with_seed(seed ^ 0x5eed);
    let n = rng.usize(1..=MAX_ACTIONS);
    script::draw(&mut rng, n)
}
