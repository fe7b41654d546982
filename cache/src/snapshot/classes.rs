//! Task classes: tasks for which every placement rule gives the same answer.

use std::{collections::HashMap, sync::Arc};

use kube_batch_api::{
    cluster::{Classes, Matchers},
    column::{ClassIdx, ConstraintClassIdx, MatcherIdx, Ordinal},
    facts::{
        class::{PodMatcher, PodTemplate},
        metadata::Metadata,
        pod::TaskFacts,
    },
    intern::InternId,
    name::Name,
    resource::Dimensions,
    selector::{LabelSelector, Labels, Requirement},
};

use super::jobs::Members;
use crate::store::Store;

/// The properties of a class that do not come from its template.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Context {
    /// The selectors of other pods that match the task, ascending.
    matched: Arc<[MatcherIdx]>,
    /// The metadata of the task's PodGroup.
    group: Arc<Metadata>,
}

/// Sorts tasks into classes: same template, matched by the same selectors of other pods, and with
/// the same metadata of their PodGroup.
pub(super) struct Classifier<'a> {
    store: &'a Store,
    dimensions: &'a Dimensions,
    pub(super) matchers: Matchers,
    /// Selectors that require a label pair, by these pairs.
    by_pair: HashMap<(Name, Name), Vec<MatcherIdx>>,
    /// Selectors that may match any labels.
    unselective: Vec<MatcherIdx>,
    /// The selectors that match pods of a namespace with given labels.
    matched: HashMap<(Name, InternId), Arc<[MatcherIdx]>>,
    by_content: HashMap<(InternId, Context), ClassIdx>,
    constraint_classes: HashMap<(PodTemplate, Context), ConstraintClassIdx>,
    pub(super) classes: Classes,
}

impl<'a> Classifier<'a> {
    pub(super) fn new(store: &'a Store, members: &Members<'_>, dimensions: &'a Dimensions) -> Self {
        let mut matchers = Matchers::default();
        for matcher in members.templates().flat_map(|template| matchers_of(template)) {
            matchers.intern(matcher);
        }
        let mut by_pair: HashMap<(Name, Name), Vec<MatcherIdx>> = HashMap::new();
        let mut unselective = Vec::new();
        for (row, matcher) in matchers.iter() {
            let requirements = matcher.selector.iter().flat_map(LabelSelector::requirements);
            match requirements.into_iter().find_map(Requirement::wanted_pairs) {
                Some(pairs) => {
                    for (key, value) in pairs {
                        by_pair.entry((key.clone(), value.clone())).or_default().push(row);
                    }
                }
                None => unselective.push(row),
            }
        }
        Self {
            store,
            dimensions,
            matchers,
            by_pair,
            unselective,
            matched: HashMap::new(),
            by_content: HashMap::new(),
            constraint_classes: HashMap::new(),
            classes: Classes::default(),
        }
    }

    pub(super) fn class_of(&mut self, facts: &TaskFacts, group: &Arc<Metadata>) -> ClassIdx {
        let context = Context { matched: self.matched_by(facts), group: Arc::clone(group) };
        let content = (facts.template.id(), context);
        if let Some(class) = self.by_content.get(&content) {
            return *class;
        }
        let context = &content.1;
        let class = self.classes.template.push(facts.template.share());
        self.classes.request.push(self.dimensions.request(&facts.template.request));
        self.classes.matched_by.push(context.matched.to_vec());
        self.classes.group_metadata.push(Arc::clone(&context.group));
        let constraints = (facts.template.without_request(), context.clone());
        let next = ConstraintClassIdx::new(self.constraint_classes.len());
        let row = *self.constraint_classes.entry(constraints).or_insert(next);
        self.classes.constraint_class.push(row);
        self.by_content.insert(content, class);
        class
    }

    fn matched_by(&mut self, facts: &TaskFacts) -> Arc<[MatcherIdx]> {
        if self.matchers.is_empty() {
            return Arc::default();
        }
        let key = (facts.key.namespace.clone(), facts.labels.id());
        if let Some(matched) = self.matched.get(&key) {
            return Arc::clone(matched);
        }
        let no_labels = Labels::default();
        let namespace = self.store.namespaces.get(&facts.key.namespace);
        let namespace_labels = namespace.map_or(&no_labels, |namespace| &namespace.labels);
        let by_pair = facts
            .labels
            .iter()
            .filter_map(|(label, value)| self.by_pair.get(&(label.clone(), value.clone())));
        let mut candidates: Vec<MatcherIdx> =
            by_pair.flatten().chain(&self.unselective).copied().collect();
        candidates.sort_unstable();
        candidates.dedup();
        candidates.retain(|row| {
            self.matchers[*row].matches(&facts.key.namespace, namespace_labels, &facts.labels)
        });
        let matched: Arc<[MatcherIdx]> = candidates.into();
        self.matched.insert(key, Arc::clone(&matched));
        matched
    }
}

fn matchers_of(template: &PodTemplate) -> impl Iterator<Item = &PodMatcher> {
    let terms = template.pod_terms.iter().map(|term| &term.matcher);
    terms.chain(template.spread.iter().map(|constraint| &constraint.matcher))
}
