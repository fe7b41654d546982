//! Topology spread constraints with `whenUnsatisfiable: DoNotSchedule`.
//!
//! A node is refused if the number of matching pods in its domain, including this pod if it matches,
//! would exceed that of the domain with the fewest by more than `maxSkew`. Of several constraints,
//! the first that is violated gives the reason.
//!
//! Source: Kubernetes 1.36, `plugins/podtopologyspread/filtering.go`. Default constraints need
//! Services, which are not watched, so there are none.

use std::sync::Arc;

use kube_batch_framework::plugin::{Dependencies, Dependency};
use kube_batch_model::{column::Column, facts::class::SpreadConstraint, reason::Unfit};

use super::{
    arguments::PredicatesArguments,
    filter::{Filter, Query},
};
use crate::{
    compiled::Opening,
    constraint_classes::ConstraintClassIdx,
    node_labels::LabelColumn,
    pod_count::Placed,
    spread_counts::{SpreadCountIdx, SpreadCounts, matches_itself},
};

#[derive(Debug)]
struct PodTopologySpread {
    counts: SpreadCounts,
    constraints: Column<ConstraintClassIdx, Vec<Constraint>>,
}

#[derive(Clone, Debug)]
struct Constraint {
    count: SpreadCountIdx,
    /// 1 if the pod itself counts, else 0.
    own: i64,
    max_skew: i64,
    min_domains: i64,
}

pub(super) fn build(opening: Opening<'_>, _: &PredicatesArguments) -> Box<dyn Filter> {
    let mut counts = SpreadCounts::new(opening);
    let mut constraints = opening.by_class(Vec::new());
    for class in opening.classes().to_place() {
        let mut constraint = |constraint: &SpreadConstraint| Constraint {
            count: counts.constraint(opening, class, constraint),
            own: i64::from(matches_itself(opening, class, constraint)),
            max_skew: constraint.max_skew,
            min_domains: constraint.min_domains,
        };
        let spread = &opening.template(class).spread;
        let strict = spread.iter().filter(|constraint| constraint.do_not_schedule);
        constraints[class] = strict.map(&mut constraint).collect();
    }
    counts.connect(opening);
    Box::new(PodTopologySpread { counts, constraints })
}

impl Filter for PodTopologySpread {
    fn dependencies(&self, class: ConstraintClassIdx) -> Dependencies {
        Dependencies::NONE.with_if(Dependency::Domain, !self.constraints[class].is_empty())
    }

    fn version(&self, class: ConstraintClassIdx) -> u64 {
        let constraints = self.constraints[class].iter();
        constraints.map(|constraint| self.counts.n_changes(constraint.count)).sum()
    }

    fn domains(&self, class: ConstraintClassIdx) -> Option<Vec<Arc<LabelColumn>>> {
        let constraints = self.constraints[class].iter();
        Some(constraints.map(|constraint| self.counts.labels(constraint.count)).collect())
    }

    fn check(&self, query: Query) -> Result<(), Unfit> {
        for constraint in &self.constraints[query.class] {
            let count = self.counts.get(constraint.count, query.node);
            let count = i64::from(count.ok_or(Unfit::SpreadMissingLabel)?);
            let lowest = i64::from(self.counts.lowest(constraint.count, constraint.min_domains));
            if count + constraint.own - lowest > constraint.max_skew {
                return Err(Unfit::Spread);
            }
        }
        Ok(())
    }

    fn on_placement(&mut self, placed: &Placed) {
        self.counts.on_placement(placed);
    }
}
