//! Selectors over pods, each once.

use std::{collections::HashMap, sync::Arc};

use crate::{
    column::{Column, MatcherIdx},
    facts::class::PodMatcher,
};

/// The selectors over pods that any pod of the snapshot carries.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Matchers {
    rows: Column<MatcherIdx, Arc<PodMatcher>>,
    /// Only for look-ups: the rows have an order, this has none.
    by_value: HashMap<Arc<PodMatcher>, MatcherIdx>,
}

impl Matchers {
    /// The row of a selector; new selectors get new rows.
    pub fn intern(&mut self, matcher: &PodMatcher) -> MatcherIdx {
        if let Some(row) = self.by_value.get(matcher) {
            return *row;
        }
        let matcher = Arc::new(matcher.clone());
        let row = self.rows.push(Arc::clone(&matcher));
        self.by_value.insert(matcher, row);
        row
    }

    /// The row of a selector that some pod of the snapshot carries.
    pub fn get(&self, matcher: &PodMatcher) -> Option<MatcherIdx> {
        self.by_value.get(matcher).copied()
    }

    /// Rows and selectors.
    pub fn iter(&self) -> impl Iterator<Item = (MatcherIdx, &PodMatcher)> {
        self.rows.iter().map(|(row, matcher)| (row, &**matcher))
    }

    /// Number of selectors.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

impl std::ops::Index<MatcherIdx> for Matchers {
    type Output = PodMatcher;

    fn index(&self, row: MatcherIdx) -> &PodMatcher {
        &self.rows[row]
    }
}
