//! Prefer nodes where the claims of a pod for devices get the alternatives that they name first.
//!
//! The raw score adds up 8 less the position of the alternative, over all requests with `firstAvailable`.
//!
//! Source: Kubernetes 1.37, `plugins/dynamicresources`, whose weight is 2.

use kube_batch_framework::plugin::{Dependency, Scale};
use kube_batch_model::{
    cluster::Cluster,
    column::{ClassIdx, NodeIdx},
};

use super::{arguments::NodeOrderArguments, score::Score};
use crate::{compiled::Opening, dynamic_resources::DynamicResources, pod_count::Placed};

/// `None` if no claim has alternatives: then nothing is followed.
#[derive(Debug)]
struct FirstAvailable(Option<DynamicResources>);

pub(super) fn build(opening: Opening<'_>, _: &NodeOrderArguments) -> Box<dyn Score> {
    Box::new(FirstAvailable(DynamicResources::if_alternatives(opening)))
}

impl Score for FirstAvailable {
    fn dependency(&self) -> Dependency {
        // A shared claim or device changes the score of other nodes.
        match &self.0 {
            Some(state) if state.depends_on_other_nodes() => Dependency::Domain,
            _ => Dependency::Node,
        }
    }

    fn scale(&self) -> Scale {
        Scale::UpToLargest
    }

    fn version(&self, _: &Cluster, _: ClassIdx) -> u64 {
        self.0.as_ref().map_or(0, |state| state.version)
    }

    fn applies(&self, cluster: &Cluster, class: ClassIdx) -> bool {
        let class = cluster.classes.constraint_class[class];
        self.0.as_ref().is_some_and(|state| state.has_alternatives(class))
    }

    fn score(&self, cluster: &Cluster, class: ClassIdx, node: NodeIdx) -> i64 {
        let class = cluster.classes.constraint_class[class];
        self.0.as_ref().map_or(0, |state| state.score(class, node))
    }

    fn try_first(&mut self, alternative: Option<usize>) {
        if let Some(state) = &mut self.0 {
            state.first = alternative;
        }
    }

    fn follows(&self) -> bool {
        self.0.is_some()
    }

    fn on_placement(&mut self, placed: &Placed) {
        if let Some(state) = &mut self.0 {
            state.on_placement(placed);
        }
    }
}
