//! What has changed in a table: the keys since they were copied, or the former values since they were taken.

use std::collections::{BTreeMap, BTreeSet};

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

/// The former values of what has changed since they were taken; nothing before they are taken for the first
/// time.
#[derive(Clone, Debug)]
pub(crate) struct Former<K, V>(Option<BTreeMap<K, Option<V>>>);

/// If this many more have changed than there are, changes are no longer recorded, because no snapshot reads
/// them. Guessed.
const MAX_UNTAKEN: usize = 10_000;

impl<K, V> Default for Former<K, V> {
    fn default() -> Self {
        Self(None)
    }
}

impl<K: Ord + Clone, V> Former<K, V> {
    /// Records the former value of a key; `None` if it is new. Of `n_rows` values there are now.
    pub(crate) fn add(&mut self, key: &K, value: Option<V>, n_rows: usize) {
        let Some(values) = &mut self.0 else { return };
        values.entry(key.clone()).or_insert(value);
        if values.len() > n_rows + MAX_UNTAKEN {
            self.0 = None;
        }
    }

    /// The values that changed since the last call, before they did. `None` if anything may have changed.
    pub(crate) fn take(&mut self) -> Option<BTreeMap<K, Option<V>>> {
        self.0.replace(BTreeMap::new())
    }
}
