//! Topology spread constraints with `whenUnsatisfiable: ScheduleAnyway`.
//!
//! The raw score adds up, for each constraint, `count * ln(D + 2) + (maxSkew - 1)`, where `count` is
//! the number of matching pods in the node's domain and `D` the number of domains among the
//! candidates; the sum is rounded. The score is `100 * (most + least - raw) / most`, or 100 for all
//! if `most` is 0. A candidate that lacks one of the labels scores 0 and is left out otherwise. For
//! the host name, each candidate is a domain of its own and its own pods count, whatever the node
//! inclusion policies are.
//!
//! Source: Kubernetes 1.36, `plugins/podtopologyspread/scoring.go`. The system's default constraints
//! need Services, which are not watched, so there are none.

use std::sync::Arc;

use kube_batch_framework::plugin::{Dependency, Scale};
use kube_batch_model::{
    cluster::Cluster,
    column::{ClassIdx, Column, NodeIdx},
    facts::class::SpreadConstraint,
};

use super::{arguments::NodeOrderArguments, score::Score};
use crate::{
    compiled::Opening,
    constraint_classes::ConstraintClassIdx,
    node_labels::LabelColumn,
    pod_count::Placed,
    spread_counts::{SpreadCountIdx, SpreadCounts},
};

const HOST_NAME: &str = "kubernetes.io/hostname";

#[derive(Debug)]
struct PodTopologySpread {
    counts: SpreadCounts,
    constraints: Column<ConstraintClassIdx, Vec<Constraint>>,
}

#[derive(Clone, Debug)]
struct Constraint {
    /// By the label of the constraint, or by node.
    count: SpreadCountIdx,
    /// The label of the constraint.
    labels: Arc<LabelColumn>,
    max_skew: i64,
}

pub(super) fn build(opening: Opening<'_>, _: &NodeOrderArguments) -> Box<dyn Score> {
    let mut counts = SpreadCounts::new(opening);
    let mut constraints = opening.by_class(Vec::new());
    for class in opening.classes().to_place() {
        let mut constraint = |constraint: &SpreadConstraint| Constraint {
            count: if *constraint.topology_key == *HOST_NAME {
                counts.per_node(opening, constraint)
            } else {
                counts.constraint(opening, class, constraint)
            },
            labels: opening.compiler().column(&constraint.topology_key),
            max_skew: constraint.max_skew,
        };
        let spread = &opening.template(class).spread;
        let soft = spread.iter().filter(|constraint| !constraint.do_not_schedule);
        constraints[class] = soft.map(&mut constraint).collect();
    }
    counts.connect(opening);
    Box::new(PodTopologySpread { counts, constraints })
}

impl Score for PodTopologySpread {
    fn dependency(&self) -> Dependency {
        Dependency::Cluster
    }

    fn scale(&self) -> Scale {
        Scale::Joint
    }

    /// For the host name, each node is a domain, also one without the label.
    fn domains(&self, cluster: &Cluster, class: ClassIdx) -> Option<Vec<Arc<LabelColumn>>> {
        let constraints = &self.constraints[cluster.classes.constraint_class[class]];
        let labels = |own: &Constraint| [Arc::clone(&own.labels), self.counts.labels(own.count)];
        Some(constraints.iter().flat_map(labels).collect())
    }

    fn applies(&self, cluster: &Cluster, class: ClassIdx) -> bool {
        !self.constraints[cluster.classes.constraint_class[class]].is_empty()
    }

    fn scores(&self, cluster: &Cluster, class: ClassIdx, nodes: &[NodeIdx], scores: &mut [i64]) {
        let constraints = &self.constraints[cluster.classes.constraint_class[class]];
        let counts = |node: NodeIdx| constraints.iter().all(|own| own.labels.has(node));
        let weights: Vec<f64> = constraints
            .iter()
            .map(|constraint| {
                let candidates = nodes.iter().copied().filter(|node| counts(*node));
                (self.counts.n_domains(constraint.count, candidates) as f64 + 2.0).ln()
            })
            .collect();
        let raw = |node: NodeIdx| {
            let parts = constraints.iter().zip(&weights).map(|(constraint, weight)| {
                let n_pods = self.counts.get(constraint.count, node);
                let n_pods = n_pods.expect("a candidate that counts has every label");
                f64::from(n_pods) * weight + (constraint.max_skew - 1) as f64
            });
            parts.sum::<f64>().round() as i64
        };
        let (mut least, mut most) = (i64::MAX, 0);
        for (score, node) in scores.iter_mut().zip(nodes).filter(|(_, node)| counts(**node)) {
            *score = raw(*node);
            least = least.min(*score);
            most = most.max(*score);
        }
        for (score, node) in scores.iter_mut().zip(nodes) {
            *score = match (counts(*node), most) {
                (false, _) => 0,
                (true, 0) => 100,
                (true, most) => 100 * (most + least - *score) / most,
            };
        }
    }

    fn follows(&self) -> bool {
        !self.counts.is_empty()
    }

    fn on_placement(&mut self, placed: &Placed) {
        self.counts.on_placement(placed);
    }
}
