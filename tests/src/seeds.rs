//! Which random worlds a test plays.

/// The seeds of a test: those below `usual`, or below `KUBE_BATCH_SEEDS`, or only `KUBE_BATCH_SEED`.
pub fn seeds(usual: u64) -> Vec<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    match number("KUBE_BATCH_SEED") {
        Some(seed) => vec![seed],
        None => (0..number("KUBE_BATCH_SEEDS").unwrap_or(usual)).collect(),
    }
}

/// Whether a law means something: what it is about happened in more than one world of `of`. Few worlds cannot tell.
pub fn is_often(n_times: usize, seeds: &[u64], of: usize) -> bool {
    seeds.len() < 100 || n_times > seeds.len() / of
}
