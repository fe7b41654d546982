//! Nodes where the claims of a pod for devices can be used or allocated.
//!
//! Source: Kubernetes 1.37, `plugins/dynamicresources`. Differences are in docs/parity.md#devices.
// Parity: see docs/parity.md#devices.

use kube_batch_devices::search::Refusal;
use kube_batch_framework::plugin::{Capacity, Dependencies, Dependency, NodesByDomain};
use kube_batch_model::{
    cluster::Cluster,
    column::{JobIdx, NodeIdx, TaskIdx},
    decision::DeviceChoice,
    name::ObjectKey,
    reason::{Cause, Inadmissible, Unfit},
};

use super::{
    arguments::PredicatesArguments,
    filter::{Filter, Query},
};
use crate::{
    compiled::Opening, constraint_classes::ConstraintClassIdx, dynamic_resources::DynamicResources,
    pod_count::Placed,
};

pub(super) fn build(opening: Opening<'_>, _: &PredicatesArguments) -> Box<dyn Filter> {
    Box::new(DynamicResources::new(opening))
}

/// Why a node is refused to a pod whose status names a claim for an extended resource.
const HAS_RESOURCE: &str =
    "node(s) advertised an extended resource that the pod must get from a claim";

const fn unfit(refusal: &Refusal) -> Unfit {
    match refusal {
        Refusal::Insufficient => Unfit::Devices,
        Refusal::InvalidPools => Unfit::InvalidPools,
        Refusal::TooComplex => Unfit::DevicesTooComplex,
        Refusal::Error(_) => Unfit::DeviceError,
    }
}

impl Filter for DynamicResources {
    fn dependencies(&self, class: ConstraintClassIdx) -> Dependencies {
        let own = &self.classes[class];
        let is_needy = !own.is_empty();
        Dependencies::NONE
            .with_if(Dependency::Class, own.refusal.is_some() || is_needy)
            .with_if(Dependency::Node, is_needy && !own.depends_on_other_nodes)
            .with_if(Dependency::Domain, is_needy && own.depends_on_other_nodes)
    }

    fn admit(&self, class: ConstraintClassIdx) -> Result<(), Inadmissible> {
        let refusal = self.classes[class].refusal.clone();
        refusal.map_or(Ok(()), |message| Err(Inadmissible { cause: Cause::Rules, message }))
    }

    fn version(&self, _: ConstraintClassIdx) -> u64 {
        self.version
    }

    fn depends_on(&self, class: ConstraintClassIdx, other: ConstraintClassIdx) -> bool {
        !self.classes[class].is_empty() && self.has_claims[other]
    }

    fn check(&self, query: Query) -> Result<(), Unfit> {
        let Query { class, node, dependency, capacity } = query;
        if dependency == Dependency::Class {
            return match self.can_use_allocated(class, node) {
                false => Err(Unfit::ResourceClaim),
                true if self.lacks_named_claim(class, node) => Err(Unfit::Other(HAS_RESOURCE)),
                true => Ok(()),
            };
        }
        self.choose(class, node, capacity).map_err(|refusal| unfit(&refusal))?;
        if self.can_use(class, node, capacity) { Ok(()) } else { Err(Unfit::ResourceClaim) }
    }

    fn domains_to_choose(&self, class: ConstraintClassIdx) -> NodesByDomain {
        Self::domains_to_choose(self, class)
    }

    fn n_alternatives(&self, class: ConstraintClassIdx) -> usize {
        Self::n_alternatives(self, class)
    }

    fn try_first(&mut self, alternative: Option<usize>) {
        self.first = alternative;
    }

    fn max_on_node(&self, class: ConstraintClassIdx, node: NodeIdx, capacity: Capacity) -> u64 {
        Self::max_on_node(self, class, node, capacity)
    }

    fn work(&self) -> u64 {
        Self::work(self)
    }

    fn has_postponed(&self) -> bool {
        Self::has_postponed(self)
    }

    fn on_placement(&mut self, placed: &Placed) {
        Self::on_placement(self, placed);
    }

    fn device_choices(&self, task: TaskIdx) -> Vec<DeviceChoice> {
        Self::device_choices(self, task)
    }

    fn must_wait(&self, task: TaskIdx) -> bool {
        Self::must_wait(self, task)
    }

    fn claims_to_deallocate(
        &self,
        cluster: &Cluster,
        is_refused: &dyn Fn(JobIdx) -> bool,
    ) -> Vec<(TaskIdx, ObjectKey)> {
        Self::claims_to_deallocate(self, cluster, is_refused)
    }

    fn reason_text(&self, class: ConstraintClassIdx, reason: Unfit) -> Option<String> {
        if reason != Unfit::DeviceError {
            return None;
        }
        self.nodes.ids().find_map(|node| match self.choose(class, node, Capacity::Idle) {
            Err(Refusal::Error(text)) => Some(text),
            _ => None,
        })
    }
}
