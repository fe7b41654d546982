//! Which selectors match a pod.
//!
//! Any user may write thousands of selectors that match the pods of everyone, so trying every selector
//! on the labels of every pod takes too long. Selectors are sorted by what they need:
//!
//! - One that needs a label pair is tried only on pods that have the pair.
//! - One that needs a label, or no label, is a bit. The bits of the selectors that a value of a label
//!   refuses are combined at once.
//!
//! The plain definition is [`PodMatcher::matches`].

use std::{collections::HashMap, sync::Arc};

use kube_batch_model::{
    cluster::Matchers,
    column::MatcherIdx,
    facts::class::PodMatcher,
    matcher_set::MatcherSet,
    name::Name,
    selector::{LabelSelector, Labels, Requirement},
};
use smallvec::SmallVec;

/// What selectors look at.
#[derive(Clone, Copy)]
pub(crate) struct Labelled<'a> {
    pub(crate) namespace: &'a Name,
    pub(crate) namespace_labels: &'a Labels,
    pub(crate) labels: &'a Labels,
}

/// Identifies a set of selectors that match a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct SetId(usize);

/// Which selectors match a pod.
#[derive(Debug, Default)]
pub(crate) struct MatcherIndex {
    /// Selectors that need a label pair, by these pairs.
    by_pair: HashMap<(Name, Name), Vec<MatcherIdx>>,
    /// Selectors that need several labels, but no pair, by one of the labels.
    by_label: HashMap<Name, Vec<MatcherIdx>>,
    /// The rows of the selectors that have a bit, ascending.
    rows: Vec<MatcherIdx>,
    /// Selectors that need no label.
    unselective: Bits,
    /// Selectors that need one label and no pair, by that label.
    needing: HashMap<Name, Bits>,
    /// What values of a label refuse, by label.
    refusing: HashMap<Name, Refusing>,
    /// The selectors with a bit that concern a namespace.
    in_namespace: HashMap<Name, Bits>,
    /// The sets so far, by what they are made of.
    sets: HashMap<(Vec<MatcherIdx>, Bits), (SetId, Arc<MatcherSet>)>,
}

/// The selectors that values of one label refuse.
#[derive(Debug, Default)]
struct Refusing {
    /// Those that refuse a value that they do not list.
    unlisted: Bits,
    /// The selectors that list a value: their positions among the bits. There may be hundreds of
    /// thousands of values, each listed by one selector.
    listing: HashMap<Name, SmallVec<[u32; 4]>>,
}

/// A bit for each selector that has one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Bits(Vec<u64>);

const BITS: usize = u64::BITS as usize;

impl Bits {
    fn set(&mut self, at: usize, is_set: bool) {
        let (word, bit) = (at / BITS, 1 << (at % BITS));
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        if is_set {
            self.0[word] |= bit;
        } else {
            self.0[word] &= !bit;
        }
    }

    fn add(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (own, other) in self.0.iter_mut().zip(&other.0) {
            *own |= other;
        }
    }

    fn remove(&mut self, other: &Self) {
        for (own, other) in self.0.iter_mut().zip(&other.0) {
            *own &= !other;
        }
    }

    /// Removes the bits that `other` has not, and words at the end without bits: equal sets are equal.
    fn retain(&mut self, other: &Self) {
        self.0.truncate(other.0.len());
        for (own, other) in self.0.iter_mut().zip(&other.0) {
            *own &= other;
        }
        let n_words = self.0.iter().rposition(|word| *word != 0).map_or(0, |last| last + 1);
        self.0.truncate(n_words);
    }

    fn is_set(&self, at: usize) -> bool {
        self.0.get(at / BITS).is_some_and(|word| word & 1 << (at % BITS) != 0)
    }
}

impl MatcherIndex {
    pub(crate) fn new(matchers: &Matchers) -> Self {
        let mut index = Self::default();
        // The id of the empty set is that of pods for which no set was computed.
        index.sets.insert(Default::default(), Default::default());
        for (row, matcher) in matchers.iter() {
            index.append(row, matcher);
        }
        index
    }

    /// Adds a selector. The sets so far stay what they are, so it must not match their pods.
    pub(crate) fn append(&mut self, row: MatcherIdx, matcher: &PodMatcher) {
        self.in_namespace.clear();
        // A selector that is absent matches nothing.
        if let Some(selector) = &matcher.selector {
            self.add(row, selector);
        }
    }

    fn add(&mut self, row: MatcherIdx, selector: &LabelSelector) {
        let requirements = selector.requirements();
        if let Some(pairs) = requirements.iter().find_map(Requirement::wanted_pairs) {
            for (key, value) in pairs {
                self.by_pair.entry((key.clone(), value.clone())).or_default().push(row);
            }
            return;
        }
        let mut needed = requirements.iter().filter(|own| !own.accepts(None)).map(Requirement::key);
        let first = needed.next();
        let is_listed = requirements.iter().all(|own| own.listed().is_some());
        if let Some(first) = first
            && (!is_listed || needed.any(|other| other != first))
        {
            self.by_label.entry(first.clone()).or_default().push(row);
            return;
        }
        let at = self.rows.len();
        self.rows.push(row);
        match first {
            Some(label) => self.needing.entry(label.clone()).or_default().set(at, true),
            None => self.unselective.set(at, true),
        }
        for requirement in requirements {
            let refusing = self.refusing.entry(requirement.key().clone()).or_default();
            if requirement.refuses_unlisted() {
                refusing.unlisted.set(at, true);
            }
            let listed = requirement.listed().unwrap_or_default();
            refusing.listing.reserve(listed.len());
            for value in listed {
                refusing.listing.entry(value.clone()).or_default().push(at as u32);
            }
        }
    }

    /// The selectors that match a pod, as a set that is equal for two pods exactly if its id is.
    pub(crate) fn matching(
        &mut self,
        matchers: &Matchers,
        pod: Labelled<'_>,
    ) -> (SetId, Arc<MatcherSet>) {
        let by_label = pod.labels.iter().filter_map(|(label, _)| self.by_label.get(label));
        let by_pair = pod.labels.iter().filter_map(|(label, value)| {
            // Names are shared, so this copies no text.
            self.by_pair.get(&(label.clone(), value.clone()))
        });
        let mut rows: Vec<MatcherIdx> = by_label.chain(by_pair).flatten().copied().collect();
        rows.sort_unstable();
        rows.dedup();
        rows.retain(|row| matchers[*row].matches(pod.namespace, pod.namespace_labels, pod.labels));
        let mut bits = self.bits(matchers, pod.labels);
        bits.retain(self.in_namespace(matchers, pod));
        let next = SetId(self.sets.len());
        let bit_rows = &self.rows;
        let entry = self.sets.entry((rows, bits)).or_insert_with_key(|(rows, bits)| {
            let with_bit = bit_rows.iter().enumerate().filter(|(at, _)| bits.is_set(*at));
            let mut all: Vec<MatcherIdx> =
                with_bit.map(|(_, row)| *row).chain(rows.iter().copied()).collect();
            all.sort_unstable();
            (next, Arc::new(MatcherSet::new(&all)))
        });
        entry.clone()
    }

    /// The selectors with a bit that concern the namespace of a pod.
    fn in_namespace(&mut self, matchers: &Matchers, pod: Labelled<'_>) -> &Bits {
        if !self.in_namespace.contains_key(pod.namespace) {
            let mut bits = Bits::default();
            for (at, row) in self.rows.iter().enumerate() {
                let concerns = matchers[*row].concerns(pod.namespace, pod.namespace_labels);
                bits.set(at, concerns);
            }
            self.in_namespace.insert(pod.namespace.clone(), bits);
        }
        &self.in_namespace[pod.namespace]
    }

    /// The selectors with a bit that the labels fulfil, namespaces aside.
    fn bits(&self, matchers: &Matchers, labels: &Labels) -> Bits {
        let mut bits = self.unselective.clone();
        for (label, _) in labels.iter() {
            if let Some(needing) = self.needing.get(label) {
                bits.add(needing);
            }
        }
        for (label, value) in labels.iter() {
            let Some(refusing) = self.refusing.get(label) else { continue };
            let listing = refusing.listing.get(value).map(SmallVec::as_slice).unwrap_or_default();
            let listing: Vec<(usize, bool)> = listing
                .iter()
                .map(|at| {
                    let at = *at as usize;
                    (at, bits.is_set(at) && accepts(&matchers[self.rows[at]], label, value))
                })
                .collect();
            bits.remove(&refusing.unlisted);
            for (at, is_accepted) in listing {
                bits.set(at, is_accepted);
            }
        }
        bits
    }
}

/// Whether the requirements of a selector about one label accept a value.
fn accepts(matcher: &PodMatcher, label: &Name, value: &Name) -> bool {
    let requirements = matcher.selector.iter().flat_map(LabelSelector::requirements);
    let mut about_label = requirements.filter(|requirement| requirement.key() == label);
    about_label.all(|requirement| requirement.accepts(Some(value)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;
    use kube_batch_api::read;
    use proptest::prelude::*;

    use super::*;

    const KEYS: [&str; 3] = ["a", "b", "c"];
    const VALUES: [&str; 3] = ["x", "y", "z"];
    const NAMESPACES: [&str; 2] = ["n", "m"];

    prop_compose! {
        fn requirement()(
            key in 0_usize..3,
            operator in prop::sample::select(vec!["In", "NotIn", "Exists", "DoesNotExist", "Like"]),
            values in prop::collection::vec(0_usize..3, 1..3),
        ) -> meta::LabelSelectorRequirement {
            let has_values = matches!(operator, "In" | "NotIn");
            let values = values.into_iter().map(|value| VALUES[value].to_owned()).collect();
            meta::LabelSelectorRequirement {
                key: KEYS[key].to_owned(),
                operator: operator.to_owned(),
                values: has_values.then_some(values),
            }
        }
    }

    fn selector() -> impl Strategy<Value = LabelSelector> {
        prop::collection::vec(requirement(), 0..4).prop_map(|requirements| {
            read::selector::label_selector(&meta::LabelSelector {
                match_expressions: Some(requirements),
                match_labels: None,
            })
        })
    }

    prop_compose! {
        fn matcher()(
            namespaces in prop::sample::subsequence(NAMESPACES.to_vec(), 0..3),
            namespace_selector in prop::option::of(selector()),
            selector in prop::option::weighted(0.9, selector()),
        ) -> PodMatcher {
            let namespaces = namespaces.into_iter().map(Name::from).collect();
            PodMatcher { namespaces, namespace_selector, selector }
        }
    }

    fn labels() -> impl Strategy<Value = Labels> {
        prop::collection::btree_map(0_usize..3, 0_usize..3, 0..4).prop_map(|labels| {
            let text =
                |(key, value): (usize, usize)| (KEYS[key].to_owned(), VALUES[value].to_owned());
            let labels: BTreeMap<String, String> = labels.into_iter().map(text).collect();
            Labels::from_map(Some(&labels))
        })
    }

    proptest! {
        #[test]
        fn the_index_finds_the_selectors_that_match(
            given in prop::collection::vec(matcher(), 0..90),
            namespace_labels in labels(),
            pods in prop::collection::vec((0_usize..2, labels()), 1..8),
        ) {
            let mut matchers = Matchers::default();
            for matcher in &given {
                matchers.intern(matcher);
            }
            let mut index = MatcherIndex::new(&matchers);
            let mut found = Vec::new();
            for (namespace, labels) in &pods {
                let namespace = &Name::from(NAMESPACES[*namespace]);
                let pod = Labelled { namespace, namespace_labels: &namespace_labels, labels };
                let (id, set) = index.matching(&matchers, pod);
                let plain = matchers.iter().filter(|(_, matcher)| {
                    matcher.matches(namespace, &namespace_labels, labels)
                });
                let plain: Vec<MatcherIdx> = plain.map(|(row, _)| row).collect();
                prop_assert_eq!(set.iter().collect::<Vec<_>>(), plain.clone());
                found.push((id, plain));
            }
            for (id, plain) in &found {
                prop_assert!(found.iter().all(|(other, rows)| (id == other) == (plain == rows)));
            }
        }
    }
}
