//! Pod counts by topology domain, as topology spread constraints need them.
//!
//! Unlike inter-pod affinity, a constraint counts pods only on nodes that are eligible for it: nodes
//! that have the labels of all constraints of that kind of the pod, and that its node inclusion
//! policies do not exclude. The domains are the values of its key on those nodes, including domains
//! without pods. Pods that are being terminated never count.
//!
//! Source: Kubernetes 1.36, `plugins/podtopologyspread`.

use std::{collections::BTreeMap, sync::Arc};

use kube_batch_model::{
    column::{Column, MatcherIdx, NodeIdx},
    facts::class::{SpreadConstraint, Toleration},
    name::Name,
    selector::NodeTerm,
};

use crate::{
    compiled::Opening,
    constraint_classes::ConstraintClassIdx,
    domains::ByDomain,
    node_labels::{Key, LabelColumn},
    node_terms::RequiredNodes,
    pod_count::Placed,
    pod_term_counts::matcher_row,
};

kube_batch_model::row_type! {
    /// Row of a spread count.
    pub(crate) SpreadCountIdx,
    /// Row of a set of eligible nodes.
    pub(crate) EligibleIdx,
}

/// Pod counts by topology domain, over eligible nodes.
#[derive(Debug, Default)]
pub(crate) struct SpreadCounts {
    rows: Column<SpreadCountIdx, SpreadCount>,
    by_content: BTreeMap<(Option<MatcherIdx>, Key, EligibleIdx), SpreadCountIdx>,
    eligible: Column<EligibleIdx, Column<NodeIdx, bool>>,
    by_condition: BTreeMap<Condition, EligibleIdx>,
    /// The counts that the pods of each constraint class belong to.
    counted_in: Column<ConstraintClassIdx, Vec<SpreadCountIdx>>,
}

/// What makes nodes eligible.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Condition {
    keys: Vec<Key>,
    selector: Vec<(Name, Name)>,
    affinity: Option<Vec<NodeTerm>>,
    /// `None` if taints are ignored.
    tolerations: Option<Vec<Toleration>>,
}

/// The number of matching pods in each domain.
#[derive(Debug)]
struct SpreadCount {
    eligible: EligibleIdx,
    by_domain: ByDomain<u32>,
    /// For each number of pods, how many domains have it.
    n_domains_with: Vec<u32>,
    n_domains: u32,
    /// The smallest number of pods in a domain.
    lowest: u32,
    /// How often that, or the number of pods in a domain of several nodes, has changed.
    n_changes: u64,
}

impl SpreadCount {
    fn new(labels: Arc<LabelColumn>, eligible: EligibleIdx, nodes: &Column<NodeIdx, bool>) -> Self {
        let by_domain = ByDomain::new(labels);
        let nodes = nodes.iter().filter(|(_, eligible)| **eligible).map(|(node, _)| node);
        let n_domains = by_domain.n_domains(nodes);
        let n_domains = u32::try_from(n_domains).expect("a table has fewer than 2^32 rows");
        let n_domains_with = vec![n_domains];
        Self { eligible, by_domain, n_domains_with, n_domains, lowest: 0, n_changes: 0 }
    }

    /// Adds 1 or -1 on an eligible node.
    fn add(&mut self, node: NodeIdx, change: i32) {
        let count = self.by_domain.get_mut(node).expect("an eligible node is in a domain");
        let old = *count;
        let new = old.wrapping_add_signed(change);
        *count = new;
        let lowest = self.lowest;
        if self.n_domains_with.len() <= new as usize {
            self.n_domains_with.resize(new as usize + 1, 0);
        }
        self.n_domains_with[old as usize] -= 1;
        self.n_domains_with[new as usize] += 1;
        // Counts change by one, so if the last of the lowest domains changes, it is still the lowest.
        if new < self.lowest || self.n_domains_with[self.lowest as usize] == 0 {
            self.lowest = new;
        }
        let is_alone = self.by_domain.labels().is_alone(node);
        self.n_changes += u64::from(!is_alone || self.lowest != lowest);
    }
}

impl SpreadCounts {
    pub(crate) fn new(opening: Opening<'_>) -> Self {
        Self { counted_in: opening.by_class(Vec::new()), ..Self::default() }
    }

    /// The count of a constraint of a pod, over the nodes that have the labels of all its
    /// constraints of that kind.
    pub(crate) fn constraint(
        &mut self,
        opening: Opening<'_>,
        row: ConstraintClassIdx,
        constraint: &SpreadConstraint,
    ) -> SpreadCountIdx {
        let template = opening.template(row);
        let of_that_kind =
            template.spread.iter().filter(|c| c.do_not_schedule == constraint.do_not_schedule);
        let labels: Vec<Arc<LabelColumn>> =
            of_that_kind.map(|c| opening.compiler().column(&c.topology_key)).collect();
        let mut condition = Condition {
            keys: labels.iter().map(|labels| labels.key()).collect(),
            ..Condition::default()
        };
        condition.keys.sort_unstable();
        condition.keys.dedup();
        let mut required = &RequiredNodes::default();
        if constraint.honor_affinity {
            condition.selector.clone_from(&template.node_selector);
            condition.affinity.clone_from(&template.node_affinity);
            required = &opening.compiled.required_nodes[row];
        }
        condition.tolerations = constraint.honor_taints.then(|| template.tolerations.clone());
        let eligible = self.eligible(opening, condition, &labels, required);
        let own = opening.compiler().column(&constraint.topology_key);
        self.count(opening, constraint, own, eligible)
    }

    /// The count of a constraint whose domains are the nodes themselves, whatever their state.
    pub(crate) fn per_node(
        &mut self,
        opening: Opening<'_>,
        constraint: &SpreadConstraint,
    ) -> SpreadCountIdx {
        let every_node = RequiredNodes::default();
        let eligible = self.eligible(opening, Condition::default(), &[], &every_node);
        self.count(opening, constraint, opening.compiler().node_name(), eligible)
    }

    fn eligible(
        &mut self,
        opening: Opening<'_>,
        condition: Condition,
        labels: &[Arc<LabelColumn>],
        required: &RequiredNodes,
    ) -> EligibleIdx {
        if let Some(eligible) = self.by_condition.get(&condition) {
            return *eligible;
        }
        let taints = &opening.compiled.taints;
        let tolerated = condition.tolerations.as_ref().map(|own| taints.tolerated(own));
        let is_eligible = |node| {
            labels.iter().all(|labels| labels.has(node))
                && required.passes(node)
                && tolerated.as_ref().is_none_or(|tolerated| tolerated[taints.of(node)])
        };
        let nodes = opening.cluster.nodes.facts.ids();
        let eligible = self.eligible.push(nodes.map(is_eligible).collect());
        self.by_condition.insert(condition, eligible);
        eligible
    }

    fn count(
        &mut self,
        opening: Opening<'_>,
        constraint: &SpreadConstraint,
        labels: Arc<LabelColumn>,
        eligible: EligibleIdx,
    ) -> SpreadCountIdx {
        let matcher =
            counts_pods(constraint).then(|| matcher_row(opening.cluster, &constraint.matcher));
        let (rows, nodes) = (&mut self.rows, &self.eligible[eligible]);
        let entry = self.by_content.entry((matcher, labels.key(), eligible));
        *entry.or_insert_with(|| rows.push(SpreadCount::new(labels, eligible, nodes)))
    }

    /// Computes which pods the counts count. Called once, after all counts are added.
    pub(crate) fn connect(&mut self, opening: Opening<'_>) {
        if self.by_content.is_empty() {
            return;
        }
        let n_matchers = opening.cluster.matchers.len();
        let mut by_matcher =
            Column::<MatcherIdx, Vec<SpreadCountIdx>>::filled(Vec::new(), n_matchers);
        for ((matcher, _, _), count) in &self.by_content {
            if let Some(matcher) = matcher {
                by_matcher[*matcher].push(*count);
            }
        }
        for row in opening.classes().present() {
            let matched_by = opening.matched_by(row).iter();
            let counts = matched_by.flat_map(|matcher| &by_matcher[matcher]);
            self.counted_in[row] = counts.copied().collect();
        }
    }

    pub(crate) fn on_placement(&mut self, placed: &Placed) {
        let counted_in = &self.counted_in[placed.constraint_class];
        if counted_in.is_empty() {
            return;
        }
        for (node, change) in placed.counts().filter(|(_, change)| change.staying != 0) {
            for count in counted_in {
                let count = &mut self.rows[*count];
                if self.eligible[count.eligible][node] {
                    count.add(node, change.staying);
                }
            }
        }
    }

    /// Whether there are no counts.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The label whose values are the domains of a count.
    pub(crate) fn labels(&self, count: SpreadCountIdx) -> Arc<LabelColumn> {
        Arc::clone(self.rows[count].by_domain.labels())
    }

    /// A number that is a new one when the number of pods in a domain of several nodes has changed, or the
    /// smallest number.
    pub(crate) fn n_changes(&self, count: SpreadCountIdx) -> u64 {
        self.rows[count].n_changes
    }

    /// The number of pods in the node's domain, 0 if that has no eligible node; `None` if the node
    /// has no domain.
    pub(crate) fn get(&self, count: SpreadCountIdx, node: NodeIdx) -> Option<u32> {
        self.rows[count].by_domain.get(node)
    }

    /// Number of domains of these nodes, eligible or not.
    pub(crate) fn n_domains(
        &self,
        count: SpreadCountIdx,
        nodes: impl Iterator<Item = NodeIdx>,
    ) -> usize {
        self.rows[count].by_domain.n_domains(nodes)
    }

    /// The smallest number of pods in a domain; 0 if there are fewer domains than `min_domains`.
    pub(crate) fn lowest(&self, count: SpreadCountIdx, min_domains: i64) -> u32 {
        let count = &self.rows[count];
        if i64::from(count.n_domains) < min_domains { 0 } else { count.lowest }
    }
}

/// Whether a constraint counts pods at all: an empty selector counts none, though the pod that
/// carries it matches it.
fn counts_pods(constraint: &SpreadConstraint) -> bool {
    constraint.matcher.selector.as_ref().is_some_and(|selector| !selector.is_empty())
}

/// Whether the pods of a constraint class match the selector of their own constraint.
pub(crate) fn matches_itself(
    opening: Opening<'_>,
    row: ConstraintClassIdx,
    constraint: &SpreadConstraint,
) -> bool {
    let matcher = matcher_row(opening.cluster, &constraint.matcher);
    opening.matched_by(row).contains(matcher)
}
