//! Makes a failure smaller: leaves out what it does not need.

use kube_batch::Registry;

use crate::{episode, report::Failure, script::Script};

/// How often an episode is run again at most.
const MAX_RUNS: usize = 300;

/// The failure of an episode, with the smallest script found that breaks a rule too.
pub(crate) fn failure(seed: u64, script: Script, registry: &Registry) -> Failure {
    let breaks = |script: &Script| episode::run(seed, script, registry).broken.is_some();
    let mut smallest = script;
    let (mut n_runs, mut part) = (0, smallest.len().div_ceil(2));
    while part > 0 && n_runs < MAX_RUNS {
        let mut start = 0;
        while start < smallest.len() && n_runs < MAX_RUNS {
            let end = (start + part).min(smallest.len());
            let mut shorter = smallest.clone();
            shorter.drain(start..end);
            n_runs += 1;
            if breaks(&shorter) {
                smallest = shorter;
            } else {
                start = end;
            }
        }
        part /= 2;
    }
    let ended = episode::run(seed, &smallest, registry);
    Failure {
        seed,
        broken: ended.broken.unwrap_or_else(|| "nothing, when it was run again".to_owned()),
        script: smallest.iter().map(|(pause, action)| format!("{pause:?} {action:?}\n")).collect(),
        lines: ended.lines,
    }
}
