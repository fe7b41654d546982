//! Required rules of pods about other pods.

use std::collections::{BTreeMap, HashMap};

use kube_batch_model::{
    facts::{
        class::{PodMatcher, PodTemplate, PodTerm, SpreadConstraint},
        pod::TaskFacts,
    },
    name::Name,
    selector::Labels,
    status::TaskStatus,
};

use super::view::{Pod, View};

/// Pods that no rule can tell apart.
struct Kind<'p> {
    facts: &'p TaskFacts,
    /// The pods on nodes, those that are being bound included.
    placed: Vec<Placed<'p>>,
}

struct Placed<'p> {
    pod: &'p Pod<'p>,
    node: &'p Name,
}

/// Numbers of pods in a domain.
#[derive(Clone, Copy, Default)]
struct Count {
    all: i64,
    bound: i64,
    /// Those that are being terminated, as the API server says: evictions of this cycle come later.
    terminating: i64,
}

impl Count {
    fn add(&mut self, other: Self) {
        self.all += other.all;
        self.bound += other.bound;
        self.terminating += other.terminating;
    }
}

impl<'p> Kind<'p> {
    fn template(&self) -> &'p PodTemplate {
        &self.facts.template
    }

    fn is_matched_by(&self, view: &View<'_>, matcher: &PodMatcher) -> bool {
        is_matched(view, self.facts, matcher)
    }

    fn is_bound(&self) -> bool {
        self.placed.iter().any(|placed| placed.pod.bound_to().is_some())
    }

    /// The pods in each domain of a topology.
    fn count(&self, view: &View<'p>, topology: &str) -> BTreeMap<&'p Name, Count> {
        let mut counts: BTreeMap<&Name, Count> = BTreeMap::new();
        for Placed { pod, node } in &self.placed {
            if let Some(domain) = view.nodes[node].facts.labels.get(topology) {
                counts.entry(domain).or_default().add(Count {
                    all: 1,
                    bound: i64::from(pod.bound_to().is_some()),
                    terminating: i64::from(pod.facts.status == TaskStatus::Releasing),
                });
            }
        }
        counts
    }
}

fn is_matched(view: &View<'_>, facts: &TaskFacts, matcher: &PodMatcher) -> bool {
    let none = Labels::default();
    let namespace = view.store.namespaces.get(&facts.key.namespace);
    let of_namespace = namespace.map_or(&none, |namespace| &namespace.labels);
    matcher.matches(&facts.key.namespace, of_namespace, &facts.labels)
}

/// The kinds of pods, in the order of the first pod of each.
fn kinds<'p>(view: &View<'p>) -> Vec<Kind<'p>> {
    let mut kinds: Vec<Kind<'p>> = Vec::new();
    let mut known = HashMap::new();
    for pod in view.pods {
        let node = pod.bound_to().or(pod.present_on());
        let Some(node) = node.filter(|node| view.nodes.contains_key(node)) else { continue };
        let facts = pod.facts;
        let identity = (facts.template.id(), facts.labels.id(), &facts.key.namespace);
        let at = *known.entry(identity).or_insert_with(|| {
            kinds.push(Kind { facts, placed: Vec::new() });
            kinds.len() - 1
        });
        kinds[at].placed.push(Placed { pod, node });
    }
    kinds
}

/// Every bound pod shares the domains of its required terms with pods that they match, or is the first of
/// its kind; and shares none with a pod where the anti-affinity of either forbids it.
pub(super) fn rules_about_other_pods_hold(view: &View<'_>) -> Vec<String> {
    let kinds = kinds(view);
    let mut problems = Vec::new();
    for kind in &kinds {
        for term in &kind.template().pod_terms.required_anti {
            problems.extend(forbidden_pairs(view, &kinds, kind, term));
        }
        if kind.is_bound() && !kind.template().pod_terms.required.is_empty() {
            problems.extend(lonely_pods(view, &kinds, kind));
        }
    }
    problems
}

/// The domains in which a pod that is being bound is with another, and the term of a kind forbids it.
fn forbidden_pairs(
    view: &View<'_>,
    kinds: &[Kind<'_>],
    kind: &Kind<'_>,
    term: &PodTerm,
) -> Vec<String> {
    let own = kind.count(view, &term.topology_key);
    let mut problems = Vec::new();
    for other in kinds.iter().filter(|other| other.is_matched_by(view, &term.matcher)) {
        let is_own = std::ptr::eq(other, kind);
        for (domain, theirs) in other.count(view, &term.topology_key) {
            let ours = own.get(domain).copied().unwrap_or_default();
            let is_pair = if is_own { ours.all > 1 } else { ours.all > 0 && theirs.all > 0 };
            if is_pair && ours.bound + theirs.bound > 0 {
                problems.push(format!(
                    "{} {domain} has pods like {} and {}, which its anti-affinity forbids",
                    term.topology_key, kind.facts.key, other.facts.key
                ));
            }
        }
    }
    problems
}

/// What is wrong where pods of a kind are bound without a pod that their required terms match.
fn lonely_pods(view: &View<'_>, kinds: &[Kind<'_>], kind: &Kind<'_>) -> Vec<String> {
    let terms = &kind.template().pod_terms.required;
    let matches =
        |other: &&Kind<'_>| terms.iter().all(|term| other.is_matched_by(view, &term.matcher));
    let matched: Vec<&Kind<'_>> = kinds.iter().filter(matches).collect();
    let is_own = matched.iter().any(|other| std::ptr::eq(*other, kind));
    let were_present = matched
        .iter()
        .flat_map(|other| &other.placed)
        .any(|placed| placed.pod.bound_to().is_none());
    // The first pod of all that match one another may go anywhere.
    let n_first = usize::from(is_own && !were_present);
    terms.iter().flat_map(|term| lonely_domains(view, &matched, kind, term, n_first)).collect()
}

/// The domains of a term that have pods of a kind which is being bound and no other pod of those that
/// match, without the first `n_first`.
fn lonely_domains(
    view: &View<'_>,
    matched: &[&Kind<'_>],
    kind: &Kind<'_>,
    term: &PodTerm,
    n_first: usize,
) -> Vec<String> {
    let topology = &term.topology_key;
    let is_own = matched.iter().any(|other| std::ptr::eq(*other, kind));
    let present = sum(matched.iter().map(|other| other.count(view, topology)));
    let own = kind.count(view, topology);
    let is_lonely = |domain: &Name, ours: &Count| {
        let others = present.get(domain).map_or(0, |count| count.all) - i64::from(is_own);
        ours.bound > 0 && others < 1
    };
    let lonely = own.iter().filter(|(domain, ours)| is_lonely(domain, ours)).skip(n_first);
    let problem = |(domain, _): (&&Name, &Count)| {
        let key = &kind.facts.key;
        format!("{topology} {domain} has a pod like {key}, and none that its affinity requires")
    };
    let has_no_domain = |placed: &&Placed<'_>| {
        let labels = &view.nodes[placed.node].facts.labels;
        placed.pod.bound_to().is_some() && labels.get(topology).is_none()
    };
    let outside = kind.placed.iter().filter(has_no_domain);
    let outside = outside
        .map(|placed| format!("pod {} is bound to a node without {topology}", placed.pod.key()));
    lonely.map(problem).chain(outside).collect()
}

/// No domain to which pods are being bound has more pods than the skew above the emptiest.
///
/// Only constraints that count all nodes are checked, and only where all pods that they count have the same:
/// other pods that are bound later may break them. The bench shapes have no other constraints.
pub(super) fn pods_are_spread(view: &View<'_>) -> Vec<String> {
    let kinds = kinds(view);
    let mut problems = Vec::new();
    for kind in kinds.iter().filter(|kind| kind.is_bound() && counts_all_nodes(kind)) {
        let is_checked = |rule: &&SpreadConstraint| {
            rule.do_not_schedule && rule.min_domains <= 1 && is_shared(view, &kinds, rule)
        };
        let constraints = kind.template().spread.iter().filter(is_checked);
        problems.extend(constraints.flat_map(|rule| skewed_domains(view, &kinds, kind, rule)));
    }
    problems
}

fn counts_all_nodes(kind: &Kind<'_>) -> bool {
    let template = kind.template();
    let has_no_terms = template.node_selector.is_empty() && template.node_affinity.is_none();
    has_no_terms && template.spread.len() == 1
}

/// Whether all pods that are being bound and that a constraint counts have that constraint, and it counts no
/// pod that is nominated: that one is on its node for the scheduler, and not for the API server.
fn is_shared(view: &View<'_>, kinds: &[Kind<'_>], rule: &SpreadConstraint) -> bool {
    let mut counted =
        kinds.iter().filter(|kind| kind.is_bound() && kind.is_matched_by(view, &rule.matcher));
    let mut nominated = view.pods.iter().filter(|pod| pod.nominated_for().is_some());
    counted.all(|kind| counts_all_nodes(kind) && kind.template().spread.contains(rule))
        && !nominated.any(|pod| is_matched(view, pod.facts, &rule.matcher))
}

fn skewed_domains(
    view: &View<'_>,
    kinds: &[Kind<'_>],
    kind: &Kind<'_>,
    rule: &SpreadConstraint,
) -> Vec<String> {
    let SpreadConstraint { topology_key, max_skew, matcher, .. } = rule;
    let matched = kinds.iter().filter(|other| other.is_matched_by(view, matcher));
    let counts = sum(matched.map(|other| other.count(view, topology_key)));
    let staying = |count: &Count| count.all - count.terminating;
    let all = |domain: &Name| counts.get(domain).map_or(0, staying);
    let domains = view.nodes.values().filter_map(|node| node.facts.labels.get(topology_key));
    let least = domains.map(all).min().unwrap_or(0);
    let own = kind.count(view, topology_key);
    let skewed =
        own.iter().filter(|(domain, ours)| ours.bound > 0 && all(domain) - least > *max_skew);
    let problem = |(domain, _): (&&Name, &Count)| {
        format!(
            "{topology_key} {domain} has {} pods like {}, {least} are in the emptiest, and the skew is {max_skew}",
            all(domain),
            kind.facts.key
        )
    };
    skewed.map(problem).collect()
}

fn sum<'p>(of: impl Iterator<Item = BTreeMap<&'p Name, Count>>) -> BTreeMap<&'p Name, Count> {
    let mut sum: BTreeMap<&Name, Count> = BTreeMap::new();
    for (domain, count) in of.flatten() {
        sum.entry(domain).or_default().add(count);
    }
    sum
}
