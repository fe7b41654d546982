//! Preferred node affinity: the sum of the weights of the preferred terms that a node matches, those
//! that the configuration adds included.
//!
//! Source: Kubernetes 1.36, `plugins/nodeaffinity`.

use kube_batch_framework::plugin::{Dependency, Scale};
use kube_batch_model::{
    cluster::Cluster,
    column::{ClassIdx, Column, NodeIdx},
};

use super::{arguments::NodeOrderArguments, score::Score};
use crate::{compiled::Opening, constraint_classes::ConstraintClassIdx, node_terms::AllOf};

#[derive(Debug)]
struct NodeAffinity {
    /// Weights and terms.
    preferred: Column<ConstraintClassIdx, Vec<(i64, AllOf)>>,
}

pub(super) fn build(opening: Opening<'_>, arguments: &NodeOrderArguments) -> Box<dyn Score> {
    let preferred = opening.to_place(|template| {
        let terms = template.preferred_nodes.iter().chain(&arguments.added_affinity);
        let compiled =
            terms.filter_map(|(weight, term)| Some((*weight, opening.compiler().node_term(term)?)));
        compiled.collect()
    });
    Box::new(NodeAffinity { preferred })
}

impl Score for NodeAffinity {
    fn dependency(&self) -> Dependency {
        Dependency::Class
    }

    fn scale(&self) -> Scale {
        Scale::UpToLargest
    }

    fn applies(&self, cluster: &Cluster, class: ClassIdx) -> bool {
        !self.preferred[cluster.classes.constraint_class[class]].is_empty()
    }

    fn score(&self, cluster: &Cluster, class: ClassIdx, node: NodeIdx) -> i64 {
        let terms = self.preferred[cluster.classes.constraint_class[class]].iter();
        terms.filter(|(_, term)| term.passes(node)).map(|(weight, _)| weight).sum()
    }
}
