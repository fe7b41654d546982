//! Topology spread constraints that refuse.
//!
//! A node is refused if the number of matching pods in its domain, with this pod if it matches,
//! would exceed that of the emptiest domain by more than `maxSkew`. The first constraint that fails
//! speaks.
//!
//! Source: Kubernetes 1.36, `plugins/podtopologyspread/filtering.go`. Default constraints
//! need Services, which are not watched, so there are none.

use kube_batch_api::{
    column::{Column, NodeIdx},
    reason::Unfit,
};

use crate::{
    constraint_classes::{ConstraintClassIdx, ConstraintClasses},
    node_labels::NodeLabels,
    node_tests::Compiler,
    spread_counts::{SpreadCountIdx, SpreadCounts, matches_itself},
    taints::TaintSets,
    topology_counts::PodCountChange,
};

/// The constraints of all classes.
#[derive(Debug, Default)]
pub(super) struct SpreadRules {
    topology_counts: SpreadCounts,
    rules: Column<ConstraintClassIdx, Vec<Rule>>,
}

#[derive(Clone, Debug)]
struct Rule {
    topology_count: SpreadCountIdx,
    /// 1 if the pod itself counts.
    own: i64,
    max_skew: i64,
    min_domains: i64,
}

impl SpreadRules {
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
            let refusing = template.spread.iter().filter(|constraint| constraint.do_not_schedule);
            let own = refusing.map(|constraint| Rule {
                topology_count: topology_counts.constraint(compiler, taints, template, constraint),
                own: i64::from(matches_itself(cluster, classes, constraint_class, constraint)),
                max_skew: constraint.max_skew,
                min_domains: constraint.min_domains,
            });
            rules[constraint_class] = own.collect();
        }
        topology_counts.connect(cluster, classes);
        Self { topology_counts, rules }
    }

    /// Whether there are constraints for the constraint class.
    pub(super) fn concerns(&self, constraint_class: ConstraintClassIdx) -> bool {
        !self.rules[constraint_class].is_empty()
    }

    pub(super) fn check(
        &self,
        labels: &NodeLabels,
        constraint_class: ConstraintClassIdx,
        node: NodeIdx,
    ) -> Result<(), Unfit> {
        for rule in &self.rules[constraint_class] {
            let count = self.topology_counts.count(labels, rule.topology_count, node);
            let count = i64::from(count.ok_or(Unfit::SpreadMissingLabel)?);
            let lowest =
                i64::from(self.topology_counts.lowest(rule.topology_count, rule.min_domains));
            if count + rule.own - lowest > rule.max_skew {
                return Err(Unfit::Spread);
            }
        }
        Ok(())
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
