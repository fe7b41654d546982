//! Which term classes a selector matches.

use kube_batch_model::{
    cluster::Cluster,
    column::{MatcherIdx, Ordinal},
};

use crate::{
    constraint_classes::ConstraintClasses,
    term_classes::{TermClassIdx, TermClasses},
};

const BITS: usize = u64::BITS as usize;

/// A bit for each selector and each term class with tasks that wait or are on nodes: any user may
/// write thousands of selectors that match every pod, and lists would be long.
#[derive(Debug, Default)]
pub(crate) struct MatchedClasses {
    /// By selector, then by class.
    bits: Vec<u64>,
    words_per_selector: usize,
}

impl MatchedClasses {
    pub(crate) fn new(
        cluster: &Cluster,
        constraint_classes: &ConstraintClasses,
        classes: &TermClasses,
    ) -> Self {
        let words_per_selector = classes.len().div_ceil(BITS);
        let mut bits = vec![0; cluster.matchers.len() * words_per_selector];
        for class in classes.present() {
            let (word, bit) = (class.at() / BITS, class.at() % BITS);
            let matched_by = constraint_classes.matched_by(cluster, classes.first(class));
            for matcher in matched_by.iter() {
                bits[matcher.at() * words_per_selector + word] |= 1 << bit;
            }
        }
        Self { bits, words_per_selector }
    }

    fn words(&self, matcher: MatcherIdx) -> &[u64] {
        &self.bits[matcher.at() * self.words_per_selector..][..self.words_per_selector]
    }

    /// The classes that a selector matches, ascending.
    pub(crate) fn by(&self, matcher: MatcherIdx) -> impl Iterator<Item = TermClassIdx> + use<'_> {
        self.by_all_words(move |at| self.words(matcher)[at])
    }

    /// The classes that all these selectors match, ascending.
    pub(crate) fn by_all<'a>(
        &'a self,
        matchers: &'a [MatcherIdx],
    ) -> impl Iterator<Item = TermClassIdx> + use<'a> {
        self.by_all_words(move |at| {
            matchers.iter().fold(u64::MAX, |all, matcher| all & self.words(*matcher)[at])
        })
    }

    fn by_all_words(&self, word: impl Fn(usize) -> u64) -> impl Iterator<Item = TermClassIdx> {
        (0..self.words_per_selector).flat_map(move |at| {
            let mut left = word(at);
            std::iter::from_fn(move || {
                let bit = left.trailing_zeros() as usize;
                left &= left.wrapping_sub(1);
                (bit < BITS).then(|| TermClassIdx::new(at * BITS + bit))
            })
        })
    }
}
