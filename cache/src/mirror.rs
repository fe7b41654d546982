//! A copy of facts and decisions, for those who read them for longer than watches and writes can wait.
//!
//! It follows the original in small steps, between which others can change that. After the last step
//! both are equal, whatever changed meanwhile: what changes after it was copied is copied again.

use crate::{assumed::Assumed, store::Store};

/// A copy of facts and decisions.
#[derive(Debug, Default)]
pub struct Mirror {
    /// The facts.
    pub store: Store,
    /// The decisions in flight.
    pub assumed: Assumed,
}

impl Mirror {
    /// Copies at most `n` changes from what records its changes since it was empty. Returns whether it
    /// is equal to that now.
    pub fn copy_changes(&mut self, store: &mut Store, assumed: &mut Assumed, n: usize) -> bool {
        let n_facts = store.copy_changes(&mut self.store, n);
        let n_decisions = assumed.copy_changes(&mut self.assumed, n - n_facts);
        n_facts + n_decisions < n
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use kube_batch_model::{
        decision::PodRef,
        facts::node::NodeFacts,
        name::{Name, ObjectKey},
    };
    use proptest::prelude::*;

    use super::*;
    use crate::assumed::InFlight;

    #[derive(Clone, Debug)]
    enum Step {
        Put(u8, bool),
        Delete(u8),
        Keep(u8),
        Decide(u8),
        Forget(u8),
        Clear,
        /// Copies this many changes.
        Follow(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0_u8..20, any::<bool>()).prop_map(|(n, cordoned)| Step::Put(n, cordoned)),
            2 => (0_u8..20).prop_map(Step::Delete),
            1 => (0_u8..20).prop_map(Step::Keep),
            4 => (0_u8..20).prop_map(Step::Decide),
            2 => (0_u8..20).prop_map(Step::Forget),
            1 => Just(Step::Clear),
            3 => (1_usize..8).prop_map(Step::Follow),
        ]
    }

    fn name(n: u8) -> Name {
        format!("n{n}").into()
    }

    fn run(step: Step, store: &mut Store, assumed: &mut Assumed, mirror: &mut Mirror) {
        match step {
            Step::Put(n, unschedulable) => {
                let facts = NodeFacts { name: name(n), unschedulable, ..NodeFacts::default() };
                store.nodes.apply(name(n), facts);
            }
            Step::Delete(n) => drop(store.nodes.delete(&name(n))),
            Step::Keep(n) => drop(store.nodes.retain_some(None, 30, |kept| *kept <= name(n))),
            Step::Decide(n) => {
                let pod = PodRef { uid: name(n), key: ObjectKey::new("ns", "a") };
                assumed.insert(pod, InFlight::Evict, Timestamp::UNIX_EPOCH);
            }
            Step::Forget(n) => assumed.forget(&name(n)),
            Step::Clear => assumed.clear(),
            Step::Follow(n) => drop(mirror.copy_changes(store, assumed, n)),
        }
    }

    proptest! {
        #[test]
        fn a_mirror_that_has_followed_is_equal(steps in prop::collection::vec(step(), 0..80)) {
            let (mut store, mut assumed) = (Store::default(), Assumed::default());
            store.record_changes();
            assumed.record_changes();
            let mut mirror = Mirror::default();
            for step in steps {
                run(step, &mut store, &mut assumed, &mut mirror);
            }
            while !mirror.copy_changes(&mut store, &mut assumed, 3) {}
            prop_assert_eq!(&mirror.store.nodes, &store.nodes);
            prop_assert_eq!(&mirror.assumed, &assumed);
            prop_assert!(mirror.copy_changes(&mut store, &mut assumed, 1), "nothing is left to copy");
        }
    }
}
