//! The bound on selectors about pods of other namespaces.
//!
//! Such selectors make the pods of others different from each other: pods of one template that different
//! selectors match are different classes, and each selector is compared with each class. So there is a
//! bound on those of one namespace, all its pods together.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap, HashSet},
};

use kube_batch_model::{
    facts::{
        class::{PodMatcher, PodTemplate},
        pod::TaskFacts,
    },
    intern::InternId,
    name::Name,
};

use super::jobs::JobMembers;

/// How many different selectors about pods of other namespaces the pods of one namespace may have.
/// Guessed: at least ten times what is known from practice.
// Parity: see docs/parity.md#j14.
pub(crate) const MAX_FOREIGN_SELECTORS: usize = 500;

/// The templates that would bring their namespace above the bound. Their terms are not read.
///
/// Pods on nodes come first, then pods in order of creation and name; a template comes with its first
/// pod.
pub(crate) fn templates_above_bound(members: &JobMembers<'_>) -> HashSet<InternId> {
    let templates = members.templates().filter(|template| !template.pod_terms.is_empty());
    let templates: HashMap<InternId, &PodTemplate> =
        templates.map(|template| (template.id(), &**template)).collect();
    let n_selectors: usize = templates.values().map(|template| foreign(template).count()).sum();
    if n_selectors <= MAX_FOREIGN_SELECTORS {
        return HashSet::new();
    }
    let mut accepted = BTreeMap::<&Name, HashSet<&PodMatcher>>::new();
    let mut above = HashSet::new();
    for facts in first_pods(members) {
        let accepted = accepted.entry(&facts.key.namespace).or_default();
        let new: HashSet<&PodMatcher> =
            foreign(&facts.template).filter(|matcher| !accepted.contains(matcher)).collect();
        if accepted.len() + new.len() <= MAX_FOREIGN_SELECTORS {
            accepted.extend(new);
        } else {
            above.insert(facts.template.id());
        }
    }
    above
}

/// The first pod of each template with terms, in order.
fn first_pods<'a>(members: &'a JobMembers<'_>) -> Vec<&'a TaskFacts> {
    let mut first = HashMap::<InternId, &TaskFacts>::new();
    for facts in members.tasks().filter(|facts| !facts.template.pod_terms.is_empty()) {
        let first = first.entry(facts.template.id()).or_insert(facts);
        if rank(facts) < rank(first) {
            *first = facts;
        }
    }
    let mut first: Vec<&TaskFacts> = first.into_values().collect();
    first.sort_unstable_by_key(|facts| rank(facts));
    first
}

/// The template without its terms, refused.
pub(crate) fn without_terms(template: &PodTemplate) -> PodTemplate {
    let why = format!(
        "the pods of the namespace have more than {MAX_FOREIGN_SELECTORS} different selectors about pods \
         of other namespaces"
    );
    let refused = Some(Name::from(why));
    PodTemplate { pod_terms: Default::default(), refused, ..template.clone() }
}

/// Whose selectors count first.
pub(crate) fn rank(facts: &TaskFacts) -> impl Ord + use<'_> {
    (Reverse(facts.node.is_some()), facts.created, &facts.key)
}

/// The selectors of a template about pods of other namespaces.
pub(crate) fn foreign(template: &PodTemplate) -> impl Iterator<Item = &PodMatcher> {
    let is_foreign = |matcher: &&PodMatcher| {
        let is_own = |name: &Name| template.namespace.as_ref() == Some(name);
        matcher.namespace_selector.is_some() || !matcher.namespaces.iter().all(is_own)
    };
    template.pod_terms.iter().map(|term| &term.matcher).filter(is_foreign)
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use serde_json::{Value, json};

    use crate::{
        assumed::Assumed,
        snapshot::{SnapshotOptions, take_snapshot},
        store::Store,
    };

    /// Adds a pod with terms of these numbers. Terms of equal numbers have equal selectors.
    fn put(store: &mut Store, name: &str, node: Option<&str>, terms: Range<usize>, about: &Value) {
        let term = |n: usize| {
            let mut term = json!({
                "topologyKey": "zone", "labelSelector": {"matchLabels": {"n": n.to_string()}},
            });
            term.as_object_mut()
                .expect("an object")
                .extend(about.as_object().expect("an object").clone());
            term
        };
        let terms: Value = terms.map(term).collect();
        let (namespace, name) = name.split_once('/').expect("a namespace");
        let pod = json!({
            "metadata": {"name": name, "namespace": namespace, "uid": format!("{namespace}-{name}")},
            "spec": {
                "schedulerName": "kube-batch", "containers": [{"name": "c"}], "nodeName": node,
                "affinity": {"podAntiAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": terms,
                }},
            },
            "status": {"phase": if node.is_some() { "Running" } else { "Pending" }},
        });
        store.put_pod(pod);
    }

    /// The pods whose terms are not read, and the number of selectors of the snapshot.
    fn refused(store: &Store) -> (Vec<String>, usize) {
        let snapshot = take_snapshot(store, &Assumed::default(), &SnapshotOptions::default());
        let cluster = snapshot.cluster;
        let mut refused = Vec::new();
        for (task, facts) in cluster.tasks.facts.iter() {
            let template = &cluster.classes.template[cluster.tasks.class[task]];
            assert_eq!(template.refused.is_some(), template.pod_terms.is_empty());
            if template.refused.is_some() {
                refused.push(facts.key.to_string());
            }
        }
        refused.sort_unstable();
        (refused, cluster.matchers.len())
    }

    #[test]
    fn the_bound_is_one_of_different_selectors_in_one_namespace() {
        let mut store = Store::default();
        let everywhere = json!({"namespaceSelector": {}});
        for n in 0..10 {
            put(&mut store, &format!("a/pod-{n}"), None, n * 50..n * 50 + 50, &everywhere);
        }
        put(&mut store, "a/same", None, 0..50, &everywhere);
        put(&mut store, "b/pod", None, 500..510, &json!({"namespaces": ["a"]}));
        assert_eq!(refused(&store), (vec![], 510));
        put(&mut store, "a/waits", None, 500..501, &everywhere);
        assert_eq!(refused(&store), (vec!["a/waits".to_owned()], 510));
        put(&mut store, "a/runs", Some("n"), 501..502, &everywhere);
        // Without the 50 of pod-9 there is room for the later one.
        assert_eq!(refused(&store), (vec!["a/pod-9".to_owned()], 462), "pods on nodes come first");
    }

    #[test]
    fn selectors_about_pods_of_the_own_namespace_do_not_count() {
        let mut store = Store::default();
        for n in 0..11 {
            put(&mut store, &format!("a/implied-{n}"), None, n * 50..n * 50 + 50, &json!({}));
            let own = json!({"namespaces": ["a"]});
            put(&mut store, &format!("a/named-{n}"), None, n * 50..n * 50 + 50, &own);
        }
        assert_eq!(refused(&store), (vec![], 550));
    }
}
