//! Values that many objects share: equal ones are stored once, under one id.

use std::{
    collections::HashMap,
    hash::{Hash, Hasher},
    ops::Deref,
    sync::Arc,
};

use crate::shards::Shards;

/// Identifies a value among those of one [`InternTable`]. It says nothing about order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct InternId(u64);

/// A value of an [`InternTable`].
///
/// Two values of the same table are equal exactly if their ids are. The default is a value of no
/// table, with an id of its own.
#[derive(Clone, Debug, Default)]
pub struct Interned<T> {
    id: InternId,
    value: Arc<T>,
}

impl<T> Interned<T> {
    /// The id in the table it comes from.
    pub const fn id(&self) -> InternId {
        self.id
    }

    /// The value, without copying it.
    pub fn share(&self) -> Arc<T> {
        Arc::clone(&self.value)
    }
}

impl<T> Deref for Interned<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

/// Values of different tables may be compared: the ids do not matter.
impl<T: Eq> PartialEq for Interned<T> {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl<T: Eq> Eq for Interned<T> {}

impl<T: Eq + Hash> Hash for Interned<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.value.hash(state);
    }
}

/// Stores each value once. An id is never used twice, so a removed value that comes back is a new
/// one.
#[derive(Debug)]
pub struct InternTable<T> {
    ids: Shards<HashMap<Arc<T>, InternId>>,
    last: InternId,
}

impl<T> Default for InternTable<T> {
    fn default() -> Self {
        Self { ids: Shards::default(), last: InternId::default() }
    }
}

impl<T: Eq + Hash> InternTable<T> {
    /// The value as this table stores it.
    pub fn intern(&mut self, value: T) -> Interned<T> {
        match self.ids.of(&value).get_key_value(&value) {
            Some((shared, id)) => Interned { id: *id, value: Arc::clone(shared) },
            None => self.insert(Arc::new(value)),
        }
    }

    /// A value that is shared already, as this table stores it.
    pub fn intern_shared(&mut self, value: Arc<T>) -> Interned<T> {
        match self.ids.of(&value).get_key_value(&value) {
            Some((shared, id)) => Interned { id: *id, value: Arc::clone(shared) },
            None => self.insert(value),
        }
    }

    fn insert(&mut self, value: Arc<T>) -> Interned<T> {
        self.last = InternId(self.last.0 + 1);
        self.ids.of(&value).insert(Arc::clone(&value), self.last);
        Interned { id: self.last, value }
    }

    /// Removes the values that are stored nowhere else.
    pub fn sweep(&mut self) {
        self.ids.all().for_each(sweep_shard);
    }

    /// Removes the values that are stored nowhere else from a part of the table, another one with each call.
    pub fn sweep_some(&mut self) {
        sweep_shard(self.ids.next());
    }
}

fn sweep_shard<T>(shard: &mut HashMap<Arc<T>, InternId>) {
    shard.retain(|value, _| Arc::strong_count(value) > 1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_have_one_id() {
        let mut table = InternTable::default();
        let first = table.intern("a".to_owned());
        assert_eq!(table.intern("a".to_owned()).id(), first.id());
        assert_ne!(table.intern("b".to_owned()).id(), first.id());
        assert_ne!(first.id(), Interned::<String>::default().id());
    }

    #[test]
    fn an_id_is_not_used_again() {
        let mut table = InternTable::default();
        let kept = table.intern("kept".to_owned());
        let dropped = table.intern("dropped".to_owned()).id();
        table.sweep();
        assert_eq!(table.intern("kept".to_owned()).id(), kept.id());
        assert_ne!(table.intern("dropped".to_owned()).id(), dropped);
    }
}
