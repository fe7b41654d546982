//! Term classes: the constraint classes that differ only in what no rule about other pods reads.
//!
//! Pods of one job that have different tolerations, volumes or images are different constraint classes, but their
//! terms are the same and the same selectors match them. What terms need is computed once for all of them:
//! it takes time and memory for every pair of classes.

use std::collections::BTreeMap;

use kube_batch_model::{
    cluster::Cluster, column::Column, facts::class::PodTerms, matcher_set::MatcherSet,
};

use crate::constraint_classes::{ConstraintClassIdx, ConstraintClasses};

kube_batch_model::row_type! {
    /// Row of a term class.
    pub(crate) TermClassIdx,
}

/// The term classes of a snapshot.
#[derive(Debug, Default)]
pub(crate) struct TermClasses {
    of: Column<ConstraintClassIdx, TermClassIdx>,
    members: Column<TermClassIdx, Members>,
}

/// The members of a term class.
#[derive(Clone, Copy, Debug)]
struct Members {
    first: ConstraintClassIdx,
    is_present: bool,
    is_to_place: bool,
}

impl TermClasses {
    pub(crate) fn new(cluster: &Cluster, classes: &ConstraintClasses) -> Self {
        Self::join(classes.rows().map(|row| {
            let terms = &classes.template(cluster, row).pod_terms;
            let members = Members {
                first: row,
                is_present: classes.is_present(row),
                is_to_place: classes.is_to_place(row),
            };
            (terms, classes.matched_by(cluster, row), members)
        }))
    }

    /// Joins constraint classes, of which these are all: what they carry, what matches them, and themselves.
    fn join<'a>(all: impl Iterator<Item = (&'a PodTerms, &'a MatcherSet, Members)>) -> Self {
        let mut by_content = BTreeMap::<(&PodTerms, &MatcherSet), TermClassIdx>::new();
        let mut members = Column::<TermClassIdx, Members>::default();
        let mut of = Column::default();
        for (terms, matched_by, own) in all {
            let class = *by_content.entry((terms, matched_by)).or_insert_with(|| members.push(own));
            members[class].is_present |= own.is_present;
            members[class].is_to_place |= own.is_to_place;
            of.push(class);
        }
        Self { of, members }
    }

    /// The term class of a constraint class.
    pub(crate) fn of(&self, class: ConstraintClassIdx) -> TermClassIdx {
        self.of[class]
    }

    /// The term class of each constraint class.
    pub(crate) const fn of_constraint_class(&self) -> &Column<ConstraintClassIdx, TermClassIdx> {
        &self.of
    }

    /// A constraint class that belongs to a term class.
    pub(crate) fn first(&self, class: TermClassIdx) -> ConstraintClassIdx {
        self.members[class].first
    }

    /// Term classes with a task that waits for a node or is on one.
    pub(crate) fn present(&self) -> impl Iterator<Item = TermClassIdx> {
        self.members.iter().filter(|(_, members)| members.is_present).map(|(row, _)| row)
    }

    /// Term classes with a task that waits for a node, or whose binding is not confirmed yet.
    pub(crate) fn to_place(&self) -> impl Iterator<Item = TermClassIdx> {
        self.members.iter().filter(|(_, members)| members.is_to_place).map(|(row, _)| row)
    }

    /// Whether it is one of [`TermClasses::to_place`].
    pub(crate) fn is_to_place(&self, class: TermClassIdx) -> bool {
        self.members[class].is_to_place
    }

    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    /// A column with one value for each term class.
    pub(crate) fn column<T: Clone>(&self, value: T) -> Column<TermClassIdx, T> {
        Column::filled(value, self.len())
    }
}

#[cfg(test)]
mod tests {
    use kube_batch_model::{
        column::{MatcherIdx, Ordinal},
        facts::class::{PodMatcher, PodTerm},
    };

    use super::*;

    fn terms(of: &str) -> PodTerms {
        let matcher =
            PodMatcher { namespaces: vec![of.into()], namespace_selector: None, selector: None };
        let term = PodTerm { matcher, topology_key: "zone".into() };
        PodTerms { required_anti: vec![term], ..PodTerms::default() }
    }

    #[test]
    fn classes_with_the_same_terms_that_the_same_selectors_match_are_one_term_class() {
        let selectors = |rows: &[usize]| {
            let rows: Vec<MatcherIdx> = rows.iter().copied().map(MatcherIdx::new).collect();
            MatcherSet::new(&rows)
        };
        let all = [
            (terms("a"), selectors(&[0]), false),
            (terms("b"), selectors(&[0]), false),
            (terms("a"), selectors(&[0, 1]), false),
            (terms("a"), selectors(&[0]), true),
        ];
        let classes = TermClasses::join(all.iter().enumerate().map(|(row, one)| {
            let (terms, matched_by, is_to_place) = one;
            let first = ConstraintClassIdx::new(row);
            (terms, matched_by, Members { first, is_present: true, is_to_place: *is_to_place })
        }));
        let rows: Vec<usize> = classes.of.values().map(|row| row.at()).collect();
        assert_eq!(rows, [0, 1, 2, 0]);
        let to_place: Vec<usize> = classes.to_place().map(Ordinal::at).collect();
        assert_eq!(to_place, [0], "one of its classes has a task to place");
    }
}
