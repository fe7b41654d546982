//! Nodes with taints of effect NoSchedule or NoExecute take only pods that tolerate them.
//!
//! Source: Kubernetes 1.36, `plugins/tainttoleration`.

use std::sync::Arc;

use kube_batch_framework::plugin::{Dependencies, Dependency};
use kube_batch_model::{column::Column, node_set::NodeSet, reason::Unfit};

use super::{
    arguments::PredicatesArguments,
    filter::{Filter, Query},
};
use crate::{
    compiled::{CompiledCluster, Opening},
    constraint_classes::ConstraintClassIdx,
    taints::TaintSet,
};

#[derive(Debug)]
struct TaintToleration {
    compiled: Arc<CompiledCluster>,
    /// Empty if every set of taints is tolerated.
    tolerated: Column<ConstraintClassIdx, Column<TaintSet, bool>>,
}

pub(super) fn build(opening: Opening<'_>, _: &PredicatesArguments) -> Box<dyn Filter> {
    let tolerated = opening.to_place(|template| {
        let tolerated = opening.compiled.taints.tolerated(&template.tolerations);
        let are_all = tolerated.values().all(|is_tolerated| *is_tolerated);
        if are_all { Column::new() } else { tolerated }
    });
    Box::new(TaintToleration { compiled: Arc::clone(opening.compiled), tolerated })
}

impl Filter for TaintToleration {
    fn dependencies(&self, class: ConstraintClassIdx) -> Dependencies {
        Dependencies::NONE.with_if(Dependency::Class, !self.tolerated[class].is_empty())
    }

    fn check(&self, query: Query) -> Result<(), Unfit> {
        let taints = self.compiled.taints.of(query.node);
        if self.tolerated[query.class][taints] { Ok(()) } else { Err(Unfit::Taint) }
    }

    fn retain_eligible(&self, class: ConstraintClassIdx, nodes: &mut NodeSet) {
        for (taints, is_tolerated) in self.tolerated[class].iter() {
            if !is_tolerated {
                nodes.remove_all(self.compiled.taints.nodes_with(taints));
            }
        }
    }
}
