//! Sets of selectors over pods.

use crate::column::{MatcherIdx, Ordinal};

/// The selectors that match a pod.
///
/// A set with few selectors is a list, and one with many a bit for each selector: any user may write
/// thousands of selectors that match the pods of everyone else.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MatcherSet(Repr);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Repr {
    /// Ascending.
    List(Box<[MatcherIdx]>),
    Bits(Box<[u64]>),
}

const BITS: usize = u64::BITS as usize;

/// Rows of a list that need the memory of one word of bits.
const ROWS_PER_WORD: usize = 2;

impl Default for MatcherSet {
    fn default() -> Self {
        Self(Repr::List(Box::default()))
    }
}

impl MatcherSet {
    /// A set of these selectors, which are ascending.
    pub fn new(rows: &[MatcherIdx]) -> Self {
        debug_assert!(rows.is_sorted(), "selectors are in order");
        let n_words = rows.last().map_or(0, |last| last.at() / BITS + 1);
        if rows.len() <= n_words * ROWS_PER_WORD {
            return Self(Repr::List(rows.into()));
        }
        let mut bits = vec![0; n_words];
        for row in rows {
            bits[row.at() / BITS] |= 1 << (row.at() % BITS);
        }
        Self(Repr::Bits(bits.into()))
    }

    /// Whether a selector is in the set.
    pub fn contains(&self, row: MatcherIdx) -> bool {
        match &self.0 {
            Repr::List(rows) => rows.binary_search(&row).is_ok(),
            Repr::Bits(bits) => {
                let word = bits.get(row.at() / BITS);
                word.is_some_and(|word| word & 1 << (row.at() % BITS) != 0)
            }
        }
    }

    /// The selectors, ascending.
    pub fn iter(&self) -> impl Iterator<Item = MatcherIdx> {
        let (rows, bits): (&[MatcherIdx], &[u64]) = match &self.0 {
            Repr::List(rows) => (rows, &[]),
            Repr::Bits(bits) => (&[], bits),
        };
        rows.iter().copied().chain(rows_of(bits))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }
}

/// The rows whose bit is set, ascending.
fn rows_of(bits: &[u64]) -> impl Iterator<Item = MatcherIdx> {
    bits.iter().enumerate().flat_map(|(at, word)| {
        let mut left = *word;
        std::iter::from_fn(move || {
            let bit = left.trailing_zeros() as usize;
            left &= left.wrapping_sub(1);
            (bit < BITS).then(|| MatcherIdx::new(at * BITS + bit))
        })
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_set_has_the_rows_it_is_made_of(rows in prop::collection::btree_set(0_usize..300, 0..300)) {
            let rows: BTreeSet<MatcherIdx> = rows.into_iter().map(MatcherIdx::new).collect();
            let list: Vec<MatcherIdx> = rows.iter().copied().collect();
            let set = MatcherSet::new(&list);
            prop_assert_eq!(set.iter().collect::<Vec<_>>(), list);
            prop_assert_eq!(set.is_empty(), rows.is_empty());
            for row in (0..310).map(MatcherIdx::new) {
                prop_assert_eq!(set.contains(row), rows.contains(&row));
            }
        }
    }
}
