//! The same seed gives the same run.

use kube_batch_operator_sim::{difference, hash};

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in [5305159690912850182, 1, 2, 3, 4, 5, 6, 7, 8, 9] {
        assert_eq!(difference(seed), None, "{seed}");
    }
    assert_ne!(hash(1), hash(2));
}
