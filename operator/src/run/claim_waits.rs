//! Which bindings wait for which claims, until these are bound or their devices are ready.

use std::collections::{BTreeMap, BTreeSet};

use kube_batch_model::name::{Name, ObjectKey};

/// With fewer bindings it is not worth looking for those that do not wait any more.
const MIN_LIMIT: usize = 64;

/// The bindings that wait, by the uids of their pods.
///
/// A pod may be gone before its claims are: from time to time those that no decision is in flight for are removed, so
/// that at most twice as many are kept as wait.
#[derive(Debug)]
pub(crate) struct ClaimWaits {
    by_pod: BTreeMap<Name, Vec<ObjectKey>>,
    by_claim: BTreeMap<ObjectKey, BTreeSet<Name>>,
    /// With this many, those that do not wait any more are removed.
    limit: usize,
}

impl Default for ClaimWaits {
    fn default() -> Self {
        Self { by_pod: BTreeMap::new(), by_claim: BTreeMap::new(), limit: MIN_LIMIT }
    }
}

impl ClaimWaits {
    /// Records that the binding of a pod waits for claims, and for no others. `waits` says of a pod whether a decision
    /// about it is in flight.
    pub(crate) fn wait<'a>(
        &mut self,
        uid: &Name,
        claims: impl Iterator<Item = &'a ObjectKey>,
        waits: impl Fn(&Name) -> bool,
    ) {
        self.forget(uid);
        if self.by_pod.len() >= self.limit {
            let gone: Vec<Name> = self.by_pod.keys().filter(|uid| !waits(uid)).cloned().collect();
            gone.iter().for_each(|uid| self.forget(uid));
            self.limit = MIN_LIMIT.max(2 * self.by_pod.len());
        }
        let claims: Vec<ObjectKey> = claims.cloned().collect();
        for claim in &claims {
            self.by_claim.entry(claim.clone()).or_default().insert(uid.clone());
        }
        self.by_pod.insert(uid.clone(), claims);
    }

    /// The pods whose binding waits for a claim. They do not wait any more.
    pub(crate) fn take(&mut self, claim: &ObjectKey) -> BTreeSet<Name> {
        let pods = self.by_claim.get(claim).cloned().unwrap_or_default();
        pods.iter().for_each(|uid| self.forget(uid));
        pods
    }

    /// All pods whose binding waits. They do not wait any more.
    pub(crate) fn take_all(&mut self) -> BTreeSet<Name> {
        std::mem::take(self).by_pod.into_keys().collect()
    }

    fn forget(&mut self, uid: &Name) {
        for claim in self.by_pod.remove(uid).into_iter().flatten() {
            if let Some(pods) = self.by_claim.get_mut(&claim) {
                pods.remove(uid);
                if pods.is_empty() {
                    self.by_claim.remove(&claim);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(n: usize) -> ObjectKey {
        ObjectKey::new("ns", n.to_string())
    }

    #[test]
    fn a_pod_waits_for_the_claims_that_it_named_last() {
        let mut waits = ClaimWaits::default();
        let (a, b) = (Name::from("a"), Name::from("b"));
        waits.wait(&a, [claim(0), claim(1)].iter(), |_| true);
        waits.wait(&b, [claim(1)].iter(), |_| true);
        waits.wait(&a, [claim(1), claim(2)].iter(), |_| true);
        assert_eq!(waits.take(&claim(0)), BTreeSet::new());
        assert_eq!(waits.take(&claim(1)), BTreeSet::from([a, b]));
        assert_eq!(waits.take(&claim(2)), BTreeSet::new(), "it was woken");
        assert!(waits.by_pod.is_empty() && waits.by_claim.is_empty());
    }

    #[test]
    fn nothing_is_kept_for_pods_that_are_gone() {
        let mut waits = ClaimWaits::default();
        for n in 0..10_000_usize {
            // One claim that is never bound, and one that is deleted with the pod.
            let is_last = |uid: &Name| **uid == *n.to_string();
            waits.wait(&n.to_string().into(), [claim(0), claim(n)].iter(), is_last);
            assert!(waits.by_pod.len() <= MIN_LIMIT, "{}", waits.by_pod.len());
        }
        assert!(waits.by_claim.len() <= MIN_LIMIT + 1);
    }
}
