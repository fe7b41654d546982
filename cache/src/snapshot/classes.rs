//! Task classes: tasks for which every placement rule gives the same answer.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use kube_batch_api::{
    cluster::{Classes, Matchers},
    column::{ClassIdx, ConstraintClassIdx, Ordinal},
    facts::{
        class::{Constraints, PodMatcher, PodTemplate},
        metadata::Metadata,
        pod::TaskFacts,
    },
    intern::InternId,
    matcher_set::MatcherSet,
    name::Name,
    resource::Dimensions,
    selector::Labels,
};

use super::{
    foreign_selectors::{templates_above_bound, without_terms},
    jobs::Members,
    matching::{Labelled, MatcherIndex, SetId},
};
use crate::store::Store;

/// The properties of a class that do not come from its template.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Context {
    /// The selectors of other pods that match the task.
    matched: SetId,
    /// The metadata of the task's PodGroup.
    group: Arc<Metadata>,
}

/// Sorts tasks into classes: same template, matched by the same selectors of other pods, and with
/// the same metadata of their PodGroup.
pub(super) struct Classifier<'a> {
    store: &'a Store,
    dimensions: &'a Dimensions,
    above_bound: HashSet<InternId>,
    pub(super) matchers: Matchers,
    matcher_index: MatcherIndex,
    /// The selectors that match pods of a namespace with given labels.
    matched: HashMap<(Name, InternId), (SetId, Arc<MatcherSet>)>,
    by_content: HashMap<(InternId, Context), ClassIdx>,
    variants: HashMap<(InternId, Arc<Metadata>), ClassIdx>,
    constraint_classes: HashMap<(Constraints, Context), ConstraintClassIdx>,
    pub(super) classes: Classes,
}

impl<'a> Classifier<'a> {
    pub(super) fn new(store: &'a Store, members: &Members<'_>, dimensions: &'a Dimensions) -> Self {
        let mut matchers = Matchers::default();
        let above_bound = templates_above_bound(members);
        let templates = members.templates().filter(|own| !above_bound.contains(&own.id()));
        for matcher in templates.flat_map(|template| matchers_of(template)) {
            matchers.intern(matcher);
        }
        let matcher_index = MatcherIndex::new(&matchers);
        Self {
            store,
            dimensions,
            above_bound,
            matchers,
            matcher_index,
            matched: HashMap::new(),
            by_content: HashMap::new(),
            variants: HashMap::new(),
            constraint_classes: HashMap::new(),
            classes: Classes::default(),
        }
    }

    pub(super) fn class_of(&mut self, facts: &TaskFacts, group: &Arc<Metadata>) -> ClassIdx {
        let (matched, matched_by) = self.matched_by(facts);
        let context = Context { matched, group: Arc::clone(group) };
        let content = (facts.template.id(), context);
        if let Some(class) = self.by_content.get(&content) {
            return *class;
        }
        let context = &content.1;
        let template = if self.above_bound.contains(&facts.template.id()) {
            Arc::new(without_terms(&facts.template))
        } else {
            facts.template.share()
        };
        let class = self.classes.template.push(Arc::clone(&template));
        self.classes.request.push(self.dimensions.request(&facts.template.request));
        self.classes.matched_by.push(matched_by);
        self.classes.group_metadata.push(Arc::clone(&context.group));
        let unmatched = (facts.template.id(), Arc::clone(group));
        let first = *self.variants.entry(unmatched).or_insert(class);
        self.classes.variant_of.push(first);
        let constraints = (Constraints(template), context.clone());
        let next = ConstraintClassIdx::new(self.constraint_classes.len());
        let row = *self.constraint_classes.entry(constraints).or_insert(next);
        self.classes.constraint_class.push(row);
        self.by_content.insert(content, class);
        class
    }

    fn matched_by(&mut self, facts: &TaskFacts) -> (SetId, Arc<MatcherSet>) {
        if self.matchers.is_empty() {
            return Default::default();
        }
        let key = (facts.key.namespace.clone(), facts.labels.id());
        if let Some(matched) = self.matched.get(&key) {
            return matched.clone();
        }
        let no_labels = Labels::default();
        let namespace = self.store.namespaces.get(&facts.key.namespace);
        let pod = Labelled {
            namespace: &facts.key.namespace,
            namespace_labels: namespace.map_or(&no_labels, |namespace| &namespace.labels),
            labels: &facts.labels,
        };
        let matched = self.matcher_index.matching(&self.matchers, pod);
        self.matched.insert(key, matched.clone());
        matched
    }
}

fn matchers_of(template: &PodTemplate) -> impl Iterator<Item = &PodMatcher> {
    let terms = template.pod_terms.iter().map(|term| &term.matcher);
    terms.chain(template.spread.iter().map(|constraint| &constraint.matcher))
}
