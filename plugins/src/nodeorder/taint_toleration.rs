//! Taints of effect PreferNoSchedule: the number of a node's taints that are not tolerated.
//!
//! Source: Kubernetes 1.36, `plugins/tainttoleration`.

use std::sync::Arc;

use kube_batch_framework::plugin::{Dependency, Scale};
use kube_batch_model::{
    cluster::Cluster,
    column::{ClassIdx, Column, NodeIdx},
};

use super::{arguments::NodeOrderArguments, score::Score};
use crate::{
    compiled::{CompiledCluster, Opening},
    constraint_classes::ConstraintClassIdx,
    taints::TaintSet,
};

#[derive(Debug)]
struct TaintToleration {
    compiled: Arc<CompiledCluster>,
    /// Number of taints that are not tolerated, by set; empty if all sets have the same number.
    intolerable: Column<ConstraintClassIdx, Column<TaintSet, i64>>,
}

pub(super) fn build(opening: Opening<'_>, _: &NodeOrderArguments) -> Box<dyn Score> {
    let intolerable = opening.to_place(|template| {
        let counts = opening.compiled.taints.intolerable(&template.tolerations);
        let differ = counts.values().min() != counts.values().max();
        if differ { counts } else { Column::new() }
    });
    Box::new(TaintToleration { compiled: Arc::clone(opening.compiled), intolerable })
}

impl Score for TaintToleration {
    fn dependency(&self) -> Dependency {
        Dependency::Class
    }

    fn scale(&self) -> Scale {
        Scale::DownFromLargest
    }

    fn applies(&self, cluster: &Cluster, class: ClassIdx) -> bool {
        !self.intolerable[cluster.classes.constraint_class[class]].is_empty()
    }

    fn score(&self, cluster: &Cluster, class: ClassIdx, node: NodeIdx) -> i64 {
        let taints = self.compiled.taints.of(node);
        self.intolerable[cluster.classes.constraint_class[class]].get(taints).copied().unwrap_or(0)
    }
}
