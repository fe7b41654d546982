//! A set or map in parts, so that it can be swept part by part: in one go that would hold a lock for too
//! long.

use std::hash::{BuildHasher, Hash, RandomState};

/// Number of parts.
const N_SHARDS: usize = 64;

/// A set or map in parts. An entry is in the part that its hash selects.
#[derive(Clone, Debug)]
pub(crate) struct Shards<M> {
    maps: Vec<M>,
    hasher: RandomState,
    /// The part to be swept next.
    next: usize,
}

impl<M: Default> Default for Shards<M> {
    fn default() -> Self {
        let maps = (0..N_SHARDS).map(|_| M::default()).collect();
        Self { maps, hasher: RandomState::new(), next: 0 }
    }
}

impl<M> Shards<M> {
    /// The part of a key.
    pub(crate) fn of<K: Hash + ?Sized>(&mut self, key: &K) -> &mut M {
        let n_shards = self.maps.len() as u64;
        let shard = self.hasher.hash_one(key) % n_shards;
        &mut self.maps[shard as usize]
    }

    /// The part to be swept now.
    pub(crate) fn next(&mut self) -> &mut M {
        self.next = (self.next + 1) % self.maps.len();
        &mut self.maps[self.next]
    }

    /// All parts.
    pub(crate) fn all(&mut self) -> impl Iterator<Item = &mut M> {
        self.maps.iter_mut()
    }
}
