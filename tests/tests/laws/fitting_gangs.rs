//! What random gangs of several kinds have in common: one starts if its tasks can be placed, and only then.

use std::fmt::Debug;

use kube_batch_tests::seeds::seeds;

/// What became of a gang.
pub(crate) struct Played<K> {
    pub(crate) kind: K,
    /// Whether its tasks can be placed: found by trying everything.
    pub(crate) fits: bool,
    pub(crate) starts: bool,
    /// A rule that its places break.
    pub(crate) broken_rule: Option<String>,
}

/// Plays random gangs of all kinds. `play` is called with a seed, and whether the setting is to be printed.
pub(crate) fn start_exactly_if_they_fit<K: Debug + PartialEq>(
    kinds: &[K],
    play: impl Fn(u64, bool) -> Played<K>,
) {
    let seeds = seeds(1_000);
    let mut failed = Vec::new();
    let mut n_fitting = vec![(0_usize, 0_usize); kinds.len()];
    for seed in &seeds {
        let Played { kind, fits, starts, broken_rule } = play(*seed, seeds.len() == 1);
        let at = kinds.iter().position(|one| *one == kind).expect("one of them");
        n_fitting[at].0 += usize::from(fits);
        n_fitting[at].1 += usize::from(starts);
        if let Some(why) = broken_rule {
            failed.push(format!("seed {seed}: {kind:?}: {why}"));
        } else if fits && !starts {
            failed.push(format!("seed {seed}: {kind:?} fits, and waits"));
        } else if starts && !fits {
            failed.push(format!("seed {seed}: {kind:?} starts, and does not fit"));
        }
    }
    println!("fitting and starting by kind, of {}: {n_fitting:?} {kinds:?}", seeds.len());
    assert!(failed.is_empty(), "{} failed: {failed:#?}", failed.len());
    assert!(
        seeds.len() < 100 || n_fitting.iter().all(|(fits, _)| *fits > seeds.len() / 50),
        "{n_fitting:?}"
    );
}
