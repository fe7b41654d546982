//! Episodes in which a rule was broken once.
//!
//! What an episode does follows from its seed only as long as nothing is drawn in another way.

use kube_batch_operator_sim::simulate_episode;

/// A job had no turn in one action, because its last one there still held, and in another action it was found in this
/// cycle that `gang.maxLoss` protects the gang that could make room: the report of the last cycle does not name it.
const A_PROTECTED_GANG_IS_FOUND_LATER: u64 = 2367478204790571290;
/// A process that had just started took a lease that was deleted, and the former leader bound pods to the same node, or
/// gave the same device to another claim.
const TWO_LEADERS: [u64; 2] = [2898447266847274803, 8889408517298140794];

#[test]
fn episodes_that_once_broke_a_rule_break_none() {
    for seed in TWO_LEADERS.into_iter().chain([A_PROTECTED_GANG_IS_FOUND_LATER]) {
        let broken = simulate_episode(seed).err().map(|failure| failure.broken);
        assert_eq!(broken, None, "episode {seed}");
    }
}
