//! Counting tasks by topology domain, as spread constraints do.
//!
//! Unlike inter-pod terms, a constraint counts only on nodes that are eligible for it: those that
//! carry every key of the pod's constraints of that kind and pass its node inclusion policies. The
//! domains are the values of its key on those nodes, empty ones included. Tasks on their way out
//! never count.
//!
//! Source: Kubernetes 1.36, `plugins/podtopologyspread`.

use std::collections::BTreeMap;

use kube_batch_api::{
    cluster::Cluster,
    column::{Column, MatcherIdx, NodeIdx},
    facts::class::{PodTemplate, SpreadConstraint, Toleration},
    name::Name,
    selector::NodeTerm,
};

use crate::{
    constraint_classes::{ConstraintClassIdx, ConstraintClasses},
    domains::ByDomain,
    node_labels::{Key, NodeLabels},
    node_tests::{Compiler, RequiredNodes},
    rows::row_type,
    taints::TaintSets,
    topology_counts::{PodCountChange, matcher_row},
};

row_type! {
    /// Row of a spread topology count.
    SpreadCountIdx,
    /// Row of a set of eligible nodes.
    EligibleIdx,
}

/// Pod counts by topology domain, over eligible nodes.
#[derive(Debug, Default)]
pub(crate) struct SpreadCounts {
    rows: Column<SpreadCountIdx, SpreadCount>,
    by_content: BTreeMap<(Option<MatcherIdx>, Key, EligibleIdx), SpreadCountIdx>,
    eligible: Column<EligibleIdx, Column<NodeIdx, bool>>,
    by_condition: BTreeMap<Condition, EligibleIdx>,
    fed_by: Column<ConstraintClassIdx, Vec<SpreadCountIdx>>,
}

/// What makes nodes eligible.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Condition {
    keys: Vec<Key>,
    selector: Vec<(Name, Name)>,
    affinity: Option<Vec<NodeTerm>>,
    /// `None` if taints are not looked at.
    tolerations: Option<Vec<Toleration>>,
}

/// Number of matching tasks by domain.
#[derive(Debug)]
struct SpreadCount {
    eligible: EligibleIdx,
    counts: ByDomain<u32>,
    /// By number of tasks, how many domains have it.
    n_domains_with: Vec<u32>,
    n_domains: u32,
    /// The smallest count of a domain.
    lowest: u32,
}

impl SpreadCount {
    fn new(
        labels: &NodeLabels,
        key: Key,
        eligible: EligibleIdx,
        nodes: &Column<NodeIdx, bool>,
    ) -> Self {
        let counts = ByDomain::new(key);
        let nodes = nodes.iter().filter(|(_, eligible)| **eligible).map(|(node, _)| node);
        let n_domains = counts.n_domains(labels, nodes);
        let n_domains = u32::try_from(n_domains).expect("a table has fewer than 2^32 rows");
        Self { eligible, counts, n_domains_with: vec![n_domains], n_domains, lowest: 0 }
    }

    /// One task more or less on an eligible node.
    fn change(&mut self, labels: &NodeLabels, node: NodeIdx, by: i32) {
        let count = self.counts.get_mut(labels, node).expect("an eligible node is in a domain");
        let old = *count;
        let new = old.wrapping_add_signed(by);
        *count = new;
        if self.n_domains_with.len() <= new as usize {
            self.n_domains_with.resize(new as usize + 1, 0);
        }
        self.n_domains_with[old as usize] -= 1;
        self.n_domains_with[new as usize] += 1;
        // Counts change by one, so where the last of the lowest domains goes, there is the minimum.
        if new < self.lowest || self.n_domains_with[self.lowest as usize] == 0 {
            self.lowest = new;
        }
    }
}

impl SpreadCounts {
    pub(crate) fn new(classes: &ConstraintClasses) -> Self {
        Self { fed_by: Column::filled(Vec::new(), classes.len()), ..Self::default() }
    }

    /// The topology count of a constraint of a pod, over the nodes that carry the keys of all its
    /// constraints of that kind.
    pub(crate) fn constraint(
        &mut self,
        compiler: &mut Compiler<'_>,
        taints: &TaintSets,
        template: &PodTemplate,
        constraint: &SpreadConstraint,
    ) -> SpreadCountIdx {
        let of_that_kind =
            template.spread.iter().filter(|c| c.do_not_schedule == constraint.do_not_schedule);
        let mut condition = Condition {
            keys: of_that_kind.map(|c| compiler.key(&c.topology_key)).collect(),
            ..Condition::default()
        };
        condition.keys.sort_unstable();
        condition.keys.dedup();
        if constraint.honor_affinity {
            condition.selector.clone_from(&template.node_selector);
            condition.affinity.clone_from(&template.node_affinity);
        }
        condition.tolerations = constraint.honor_taints.then(|| template.tolerations.clone());
        let eligible = self.eligible(compiler, taints, template, condition);
        let key = compiler.key(&constraint.topology_key);
        self.topology_count(compiler, constraint, key, eligible)
    }

    /// The topology count of a constraint whose domains are the nodes themselves, whatever their state.
    pub(crate) fn per_node(
        &mut self,
        compiler: &mut Compiler<'_>,
        taints: &TaintSets,
        constraint: &SpreadConstraint,
    ) -> SpreadCountIdx {
        let anyone = PodTemplate::default();
        let eligible = self.eligible(compiler, taints, &anyone, Condition::default());
        let key = compiler.labels.node_name(compiler.cluster);
        self.topology_count(compiler, constraint, key, eligible)
    }

    fn eligible(
        &mut self,
        compiler: &mut Compiler<'_>,
        taints: &TaintSets,
        template: &PodTemplate,
        condition: Condition,
    ) -> EligibleIdx {
        if let Some(eligible) = self.by_condition.get(&condition) {
            return *eligible;
        }
        let looks_at_nodes = !condition.selector.is_empty() || condition.affinity.is_some();
        let required = if looks_at_nodes {
            compiler.required_nodes(template)
        } else {
            RequiredNodes::default()
        };
        let tolerated = condition.tolerations.as_ref().map(|own| taints.tolerated(own));
        let labels = &*compiler.labels;
        let is_eligible = |node| {
            condition.keys.iter().all(|key| labels.has(*key, node))
                && required.passes(labels, node)
                && tolerated.as_ref().is_none_or(|tolerated| tolerated[taints.of(node)])
        };
        let nodes = compiler.cluster.nodes.facts.ids();
        let eligible = self.eligible.push(nodes.map(is_eligible).collect());
        self.by_condition.insert(condition, eligible);
        eligible
    }

    fn topology_count(
        &mut self,
        compiler: &Compiler<'_>,
        constraint: &SpreadConstraint,
        key: Key,
        eligible: EligibleIdx,
    ) -> SpreadCountIdx {
        let counts = counts_tasks(constraint);
        let matcher = counts.then(|| matcher_row(compiler.cluster, &constraint.matcher));
        let (rows, nodes) = (&mut self.rows, &self.eligible[eligible]);
        *self
            .by_content
            .entry((matcher, key, eligible))
            .or_insert_with(|| rows.push(SpreadCount::new(compiler.labels, key, eligible, nodes)))
    }

    /// Works out who feeds which topology count. To be called once, when all are there.
    pub(crate) fn connect(&mut self, cluster: &Cluster, classes: &ConstraintClasses) {
        let mut by_matcher =
            Column::<MatcherIdx, Vec<SpreadCountIdx>>::filled(Vec::new(), cluster.matchers.len());
        for ((matcher, _, _), topology_count) in &self.by_content {
            if let Some(matcher) = matcher {
                by_matcher[*matcher].push(*topology_count);
            }
        }
        for constraint_class in classes.present() {
            let matched_by = classes.matched_by(cluster, constraint_class);
            let topology_counts = matched_by.iter().flat_map(|matcher| &by_matcher[*matcher]);
            self.fed_by[constraint_class] = topology_counts.copied().collect();
        }
    }

    /// A task of the constraint class came to a node or left it.
    pub(crate) fn moved(
        &mut self,
        labels: &NodeLabels,
        constraint_class: ConstraintClassIdx,
        node: NodeIdx,
        change: PodCountChange,
    ) {
        if change.staying == 0 {
            return;
        }
        for topology_count in &self.fed_by[constraint_class] {
            let topology_count = &mut self.rows[*topology_count];
            if self.eligible[topology_count.eligible][node] {
                topology_count.change(labels, node, change.staying);
            }
        }
    }

    /// How many tasks count in the node's domain, 0 if that has no eligible node; `None` if the
    /// node has no domain.
    pub(crate) fn count(
        &self,
        labels: &NodeLabels,
        topology_count: SpreadCountIdx,
        node: NodeIdx,
    ) -> Option<u32> {
        self.rows[topology_count].counts.get(labels, node)
    }

    /// In how many domains these nodes are, eligible or not.
    pub(crate) fn n_domains(
        &self,
        labels: &NodeLabels,
        topology_count: SpreadCountIdx,
        nodes: impl Iterator<Item = NodeIdx>,
    ) -> usize {
        self.rows[topology_count].counts.n_domains(labels, nodes)
    }

    /// The smallest count of a domain; 0 if there are fewer domains than `min_domains`.
    pub(crate) fn lowest(&self, topology_count: SpreadCountIdx, min_domains: i64) -> u32 {
        let topology_count = &self.rows[topology_count];
        if i64::from(topology_count.n_domains) < min_domains { 0 } else { topology_count.lowest }
    }
}

/// Whether a constraint counts tasks at all: an empty selector counts none, though the pod that
/// carries it matches it.
fn counts_tasks(constraint: &SpreadConstraint) -> bool {
    constraint.matcher.selector.as_ref().is_some_and(|selector| !selector.is_empty())
}

/// Whether a pod of the constraint class matches the selector of its own constraint.
pub(crate) fn matches_itself(
    cluster: &Cluster,
    classes: &ConstraintClasses,
    constraint_class: ConstraintClassIdx,
    constraint: &SpreadConstraint,
) -> bool {
    let matcher = matcher_row(cluster, &constraint.matcher);
    classes.matched_by(cluster, constraint_class).binary_search(&matcher).is_ok()
}
