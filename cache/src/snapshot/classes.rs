//! Task classes: tasks for which every placement rule gives the same answer.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, LazyLock},
};

use kube_batch_model::{
    cluster::{ClassCounts, Classes, Matchers},
    column::{ClassIdx, ConstraintClassIdx, Ordinal},
    devices::DeviceDemand,
    facts::{
        class::{Constraints, PodMatcher, PodTemplate},
        metadata::Metadata,
        pod::TaskFacts,
    },
    intern::{InternId, Interned},
    matcher_set::MatcherSet,
    name::Name,
    resource::Dimensions,
    selector::Labels,
};

use super::{
    devices::{ClaimUsers, demand_of},
    foreign_selectors::{MAX_FOREIGN_SELECTORS, foreign, templates_above_bound, without_terms},
    jobs::JobMembers,
    matching::{Labelled, MatcherIndex, SetId},
};
use crate::store::Store;

/// What most tasks need of devices.
static NO_DEVICES: LazyLock<Arc<DeviceDemand>> = LazyLock::new(Arc::default);
/// A namespace without labels.
static NO_LABELS: LazyLock<Labels> = LazyLock::new(Labels::default);

/// The properties of a class that do not come from its template.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Context {
    /// The selectors of other pods that match the task.
    matched: SetId,
    /// The metadata of the task's PodGroup.
    group: Arc<Metadata>,
    devices: Demand,
}

/// What a task needs of devices. Most tasks need none, and are hashed faster without.
type Demand = Option<Arc<DeviceDemand>>;

/// Sorts tasks into classes: same template, matched by the same selectors of other pods, with the same
/// metadata of their PodGroup and the same needs of devices.
#[derive(Debug)]
pub(crate) struct Classifier {
    dimensions: Dimensions,
    above_bound: HashSet<InternId>,
    /// The templates with selectors.
    with_selectors: HashSet<InternId>,
    /// The number of their selectors about pods of other namespaces, by their namespace. Equal ones count several times.
    n_foreign: HashMap<Name, usize>,
    matcher_index: MatcherIndex,
    /// The selectors that match pods of a namespace with given labels.
    matched: HashMap<(Name, InternId), Matched>,
    by_content: HashMap<(InternId, Context), ClassIdx>,
    variants: HashMap<(InternId, Arc<Metadata>, Demand), ClassIdx>,
    constraint_classes: HashMap<(Constraints, Context), ConstraintClassIdx>,
}

/// The classes of a cluster while tasks get theirs.
pub(crate) struct ClassRows<'a> {
    pub(crate) classifier: &'a mut Classifier,
    pub(crate) classes: &'a mut Classes,
    pub(crate) matchers: &'a Matchers,
    pub(crate) claim_users: &'a ClaimUsers,
}

/// The selectors that match the pods of a namespace with some labels.
#[derive(Debug)]
struct Matched {
    labels: Interned<Labels>,
    set: (SetId, Arc<MatcherSet>),
}

impl Classifier {
    /// A classifier, and the selectors of all templates.
    pub(crate) fn new(members: &JobMembers<'_>, dimensions: &Dimensions) -> (Self, Matchers) {
        let mut matchers = Matchers::default();
        let above_bound = templates_above_bound(members);
        let mut with_selectors = HashSet::new();
        let mut n_foreign = HashMap::new();
        for template in members.templates().filter(|own| has_selectors(own)) {
            if with_selectors.insert(template.id()) {
                count_foreign(&mut n_foreign, template);
                if !above_bound.contains(&template.id()) {
                    for matcher in matchers_of(template) {
                        matchers.intern(matcher);
                    }
                }
            }
        }
        let classifier = Self {
            dimensions: dimensions.clone(),
            above_bound,
            with_selectors,
            n_foreign,
            matcher_index: MatcherIndex::new(&matchers),
            matched: HashMap::new(),
            by_content: HashMap::new(),
            variants: HashMap::new(),
            constraint_classes: HashMap::new(),
        };
        (classifier, matchers)
    }

    /// Adds the selectors of a template of a new pod. Returns whether that is all: otherwise classes of other
    /// pods change too, because the selectors match them, or because of the bound on selectors.
    pub(crate) fn add_template(
        &mut self,
        matchers: &mut Matchers,
        store: &Store,
        template: &Interned<PodTemplate>,
    ) -> bool {
        if !has_selectors(template) || !self.with_selectors.insert(template.id()) {
            return true;
        }
        let n_foreign = count_foreign(&mut self.n_foreign, template);
        if n_foreign > MAX_FOREIGN_SELECTORS || matchers.is_empty() {
            return false;
        }
        matchers_of(template).all(|matcher| {
            matchers.get(matcher).is_some() || self.add_matcher(matchers, store, matcher)
        })
    }

    /// Adds a selector that matches no pod so far; returns whether it does not.
    fn add_matcher(
        &mut self,
        matchers: &mut Matchers,
        store: &Store,
        matcher: &PodMatcher,
    ) -> bool {
        let matches_none = self.matched.iter().all(|((namespace, _), matched)| {
            let pod = labelled(store, namespace, &matched.labels);
            !matcher.matches(pod.namespace, pod.namespace_labels, pod.labels)
        });
        if matches_none {
            let row = matchers.intern(matcher);
            self.matcher_index.append(row, matcher);
        }
        matches_none
    }

    /// Whether a pod has a part in which templates of its namespace are above the bound on selectors. If it comes, goes
    /// or gets another rank, others may be above it.
    pub(crate) fn counts_for_bound(&self, facts: &TaskFacts) -> bool {
        let is_above_bound = |namespace: &Name| {
            self.n_foreign.get(namespace).is_some_and(|n| *n > MAX_FOREIGN_SELECTORS)
        };
        facts.template.namespace.as_ref().is_some_and(is_above_bound)
            && foreign(&facts.template).next().is_some()
    }
}

/// Counts the selectors of a template about pods of other namespaces; returns their number in its namespace.
fn count_foreign(n_foreign: &mut HashMap<Name, usize>, template: &PodTemplate) -> usize {
    let Some(namespace) = &template.namespace else { return 0 };
    let of_namespace = n_foreign.entry(namespace.clone()).or_default();
    *of_namespace += foreign(template).count();
    *of_namespace
}

impl ClassRows<'_> {
    pub(crate) fn class_of(
        &mut self,
        store: &Store,
        facts: &TaskFacts,
        group: &Arc<Metadata>,
    ) -> ClassIdx {
        let (matched, matched_by) = self.matched_by(store, facts);
        let devices = demand_of(store, self.claim_users, facts).map(Arc::new);
        let context = Context { matched, group: Arc::clone(group), devices };
        let content = (facts.template.id(), context);
        if let Some(class) = self.classifier.by_content.get(&content) {
            return *class;
        }
        let (classifier, classes) = (&mut *self.classifier, &mut *self.classes);
        let context = &content.1;
        let template = if classifier.above_bound.contains(&facts.template.id()) {
            Arc::new(without_terms(&facts.template))
        } else {
            facts.template.share()
        };
        let class = classes.template.push(Arc::clone(&template));
        let devices = context.devices.as_ref().unwrap_or(&NO_DEVICES);
        let mut request = facts.template.request.clone();
        request.add(&devices.counted);
        classes.request.push(classifier.dimensions.request(&request));
        classes.matched_by.push(matched_by);
        classes.group_metadata.push(Arc::clone(&context.group));
        classes.devices.push(Arc::clone(devices));
        let unmatched = (facts.template.id(), Arc::clone(group), context.devices.clone());
        let first = *classifier.variants.entry(unmatched).or_insert(class);
        classes.variant_of.push(first);
        let constraints = (Constraints(template), context.clone());
        let next = ConstraintClassIdx::new(classifier.constraint_classes.len());
        let row = *classifier.constraint_classes.entry(constraints).or_insert(next);
        classes.constraint_class.push(row);
        classes.counts.push(ClassCounts::default());
        classifier.by_content.insert(content, class);
        class
    }

    fn matched_by(&mut self, store: &Store, facts: &TaskFacts) -> (SetId, Arc<MatcherSet>) {
        if self.matchers.is_empty() {
            return Default::default();
        }
        let key = (facts.key.namespace.clone(), facts.labels.id());
        if let Some(matched) = self.classifier.matched.get(&key) {
            return matched.set.clone();
        }
        let pod = labelled(store, &facts.key.namespace, &facts.labels);
        let set = self.classifier.matcher_index.matching(self.matchers, pod);
        let labels = facts.labels.clone();
        self.classifier.matched.insert(key, Matched { labels, set: set.clone() });
        set
    }
}

fn labelled<'a>(store: &'a Store, namespace: &'a Name, labels: &'a Labels) -> Labelled<'a> {
    let of_namespace = store.namespaces.get(namespace).map(|namespace| &namespace.labels);
    Labelled { namespace, namespace_labels: of_namespace.unwrap_or(&NO_LABELS), labels }
}

fn has_selectors(template: &PodTemplate) -> bool {
    !template.pod_terms.is_empty() || !template.spread.is_empty()
}

fn matchers_of(template: &PodTemplate) -> impl Iterator<Item = &PodMatcher> {
    let terms = template.pod_terms.iter().map(|term| &term.matcher);
    terms.chain(template.spread.iter().map(|constraint| &constraint.matcher))
}
