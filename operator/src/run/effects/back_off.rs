//! How long a pod's decision waits after the API server rejected it.

use std::{collections::BTreeMap, time::Duration};

use kube_batch_model::name::Name;

/// The wait after a first rejection, doubled with each one in a row, so that an admission webhook
/// that rejects a pod is not called in every cycle.
const FIRST: Duration = Duration::from_secs(1);
/// The longest wait.
const LONGEST: Duration = Duration::from_secs(60);

/// Rejections in a row, by pod uid.
#[derive(Debug, Default)]
pub(super) struct BackOff(BTreeMap<Name, u32>);

impl BackOff {
    /// Counts a rejection and returns how long to wait.
    pub(super) fn next(&mut self, pod: &Name) -> Duration {
        let n_rejections = self.0.entry(pod.clone()).or_insert(0);
        let wait = FIRST.saturating_mul(1 << (*n_rejections).min(10)).min(LONGEST);
        *n_rejections += 1;
        wait
    }

    /// Forgets the rejections of a pod: a write succeeded, or the pod is gone.
    pub(super) fn reset(&mut self, pod: &Name) {
        self.0.remove(pod);
    }
}

#[cfg(test)]
impl BackOff {
    /// Whether no pod has rejections.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_minute_for_each_pod() {
        let mut back_off = BackOff::default();
        let (a, b) = (Name::from("a"), Name::from("b"));
        let waits: Vec<u64> = (0..9).map(|_| back_off.next(&a).as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        assert_eq!(back_off.next(&b).as_secs(), 1);
        back_off.reset(&a);
        assert_eq!(back_off.next(&a).as_secs(), 1);
        back_off.reset(&a);
        back_off.reset(&b);
        assert!(back_off.is_empty());
    }
}
