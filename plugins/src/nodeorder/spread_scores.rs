//! Topology spread constraints that only prefer.
//!
//! For each constraint `count * ln(D + 2) + (maxSkew - 1)`, where `count` is the number of matching
//! pods in the node's domain and `D` the number of domains among the candidates; the sum is rounded.
//! Then `100 * (most + least - sum) / most`; 100 for all if `most` is 0. A candidate that lacks one
//! of the keys gets 0 and takes no part. By host name, each candidate is a domain of its own and
//! its own pods count, whatever the node inclusion policies say.
//!
//! Source: Kubernetes 1.36, `plugins/podtopologyspread/scoring.go`. The system's default
//! constraints need Services, which are not watched, so there are none.

use kube_batch_api::{
    column::{Column, NodeIdx},
    facts::class::SpreadConstraint,
};

use crate::{
    constraint_classes::{ConstraintClassIdx, ConstraintClasses},
    node_labels::{Key, NodeLabels},
    node_tests::Compiler,
    spread_counts::{SpreadCountIdx, SpreadCounts},
    taints::TaintSets,
    topology_counts::PodCountChange,
};

const HOST_NAME: &str = "kubernetes.io/hostname";

/// The preferring constraints of all classes.
#[derive(Debug, Default)]
pub(super) struct SpreadScores {
    topology_counts: SpreadCounts,
    rules: Column<ConstraintClassIdx, Vec<Rule>>,
}

#[derive(Clone, Debug)]
struct Rule {
    /// By the key of the constraint, or by node.
    topology_count: SpreadCountIdx,
    /// The key of the constraint.
    key: Key,
    max_skew: i64,
}

impl SpreadScores {
    pub(super) fn new(
        compiler: &mut Compiler<'_>,
        classes: &ConstraintClasses,
        taints: &TaintSets,
    ) -> Self {
        let cluster = compiler.cluster;
        let mut topology_counts = SpreadCounts::new(classes);
        let mut rules = Column::filled(Vec::new(), classes.len());
        for constraint_class in classes.to_place() {
            let template = classes.template(cluster, constraint_class);
            let preferring =
                template.spread.iter().filter(|constraint| !constraint.do_not_schedule);
            let rule = |constraint: &SpreadConstraint| {
                let topology_count = if *constraint.topology_key == *HOST_NAME {
                    topology_counts.per_node(compiler, taints, constraint)
                } else {
                    topology_counts.constraint(compiler, taints, template, constraint)
                };
                let key = compiler.key(&constraint.topology_key);
                Rule { topology_count, key, max_skew: constraint.max_skew }
            };
            rules[constraint_class] = preferring.map(rule).collect();
        }
        topology_counts.connect(cluster, classes);
        Self { topology_counts, rules }
    }

    /// Whether there are constraints for the constraint class.
    pub(super) fn concerns(&self, constraint_class: ConstraintClassIdx) -> bool {
        !self.rules[constraint_class].is_empty()
    }

    pub(super) fn score_all(
        &self,
        labels: &NodeLabels,
        constraint_class: ConstraintClassIdx,
        nodes: &[NodeIdx],
        scores: &mut [i64],
    ) {
        let rules = &self.rules[constraint_class];
        let takes_part = |node: NodeIdx| rules.iter().all(|rule| labels.has(rule.key, node));
        let weights: Vec<f64> = rules
            .iter()
            .map(|rule| {
                let candidates = nodes.iter().copied().filter(|node| takes_part(*node));
                (self.topology_counts.n_domains(labels, rule.topology_count, candidates) as f64
                    + 2.0)
                    .ln()
            })
            .collect();
        let crowd = |node: NodeIdx| {
            let parts = rules.iter().zip(&weights).map(|(rule, weight)| {
                let count = self.topology_counts.count(labels, rule.topology_count, node);
                let count = count.expect("a candidate that takes part has every key");
                f64::from(count) * weight + (rule.max_skew - 1) as f64
            });
            parts.sum::<f64>().round() as i64
        };
        let (mut least, mut most) = (i64::MAX, 0);
        for (score, node) in scores.iter_mut().zip(nodes).filter(|(_, node)| takes_part(**node)) {
            *score = crowd(*node);
            least = least.min(*score);
            most = most.max(*score);
        }
        for (score, node) in scores.iter_mut().zip(nodes) {
            *score = match (takes_part(*node), most) {
                (false, _) => 0,
                (true, 0) => 100,
                (true, most) => 100 * (most + least - *score) / most,
            };
        }
    }

    /// A task of the constraint class came to a node or left it.
    pub(super) fn moved(
        &mut self,
        labels: &NodeLabels,
        constraint_class: ConstraintClassIdx,
        node: NodeIdx,
        change: PodCountChange,
    ) {
        self.topology_counts.moved(labels, constraint_class, node, change);
    }
}
