//! The keys of a table that have changed since they were copied.

use std::collections::BTreeSet;

/// The keys that have changed since they were taken; nothing if they are not recorded.
#[derive(Clone, Debug)]
pub(crate) struct Changes<K>(Option<BTreeSet<K>>);

impl<K> Default for Changes<K> {
    /// Records nothing.
    fn default() -> Self {
        Self(None)
    }
}

impl<K: Ord + Clone> Changes<K> {
    /// Records changes from now on; these keys have changed already.
    pub(crate) fn recorded(keys: impl Iterator<Item = K>) -> Self {
        Self(Some(keys.collect()))
    }

    /// Records that a key has changed.
    pub(crate) fn add(&mut self, key: &K) {
        if let Some(keys) = &mut self.0 {
            keys.insert(key.clone());
        }
    }

    /// Takes at most `n` keys, and returns their number.
    pub(crate) fn take(&mut self, n: usize, mut each: impl FnMut(K)) -> usize {
        let Some(keys) = &mut self.0 else { return 0 };
        let mut n_taken = 0;
        while n_taken < n
            && let Some(key) = keys.pop_first()
        {
            each(key);
            n_taken += 1;
        }
        n_taken
    }
}
