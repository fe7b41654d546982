//! The interface of one filter, and sets of filters.

use std::{fmt, sync::Arc};

use kube_batch_framework::plugin::{Capacity, Dependencies, Dependency, NodesByDomain};
use kube_batch_model::{
    cluster::Cluster,
    column::{JobIdx, NodeIdx, TaskIdx},
    decision::{ClaimChoice, DeviceChoice},
    name::ObjectKey,
    node_set::NodeSet,
    reason::{Inadmissible, Unfit},
};

use super::arguments::PredicatesArguments;
use crate::{
    compiled::Opening, constraint_classes::ConstraintClassIdx, node_labels::LabelColumn,
    pod_count::Placed,
};

/// One filter. Built once for each session.
///
/// A filter declares for each constraint class what its answers depend on. It is not called for a
/// class or a dependency that it does not declare, and if it declares only [`Dependency::Class`],
/// not for placements either.
pub(super) trait Filter: fmt::Debug + Send {
    /// What the answers of [`Filter::check`] for a constraint class depend on;
    /// [`Dependencies::NONE`] if the filter refuses no node to it.
    fn dependencies(&self, class: ConstraintClassIdx) -> Dependencies;

    /// Whether a constraint class can be placed at all. The message is Kubernetes'.
    fn admit(&self, _class: ConstraintClassIdx) -> Result<(), Inadmissible> {
        Ok(())
    }

    /// See [`Plugin::version`](kube_batch_framework::plugin::Plugin::version).
    fn version(&self, _class: ConstraintClassIdx) -> u64 {
        0
    }

    /// The labels of nodes that decide the answers which depend on [`Dependency::Domain`]; see
    /// [`Plugin::domains`](kube_batch_framework::plugin::Plugin::domains).
    fn domains(&self, _class: ConstraintClassIdx) -> Option<Vec<Arc<LabelColumn>>> {
        None
    }

    /// Whether placing or evicting a task of another class may change an answer about the class.
    fn depends_on(&self, _class: ConstraintClassIdx, _other: ConstraintClassIdx) -> bool {
        true
    }

    /// Whether a task may be placed on a node, as far as the rules of one dependency decide.
    fn check(&self, query: Query) -> Result<(), Unfit>;

    /// See [`Plugin::retain_eligible`](kube_batch_framework::plugin::Plugin::retain_eligible).
    fn retain_eligible(&self, class: ConstraintClassIdx, nodes: &mut NodeSet) {
        let (dependency, capacity) = (Dependency::Class, Capacity::Idle);
        nodes.retain(|node| self.check(Query { class, node, dependency, capacity }).is_ok());
    }

    /// See [`Plugin::domains_to_choose`](kube_batch_framework::plugin::Plugin::domains_to_choose).
    fn domains_to_choose(&self, _class: ConstraintClassIdx) -> NodesByDomain {
        NodesByDomain::default()
    }

    /// See [`Claims::n_alternatives`](kube_batch_framework::plugin::Claims::n_alternatives).
    fn n_alternatives(&self, _class: ConstraintClassIdx) -> usize {
        1
    }

    /// See [`Prescription::Alternative`](kube_batch_framework::plugin::Prescription::Alternative).
    fn try_first(&mut self, _alternative: Option<usize>) {}

    /// See [`Plugin::max_on_node`](kube_batch_framework::plugin::Plugin::max_on_node).
    fn max_on_node(&self, _class: ConstraintClassIdx, _node: NodeIdx, _capacity: Capacity) -> u64 {
        u64::MAX
    }

    /// Follows a placement.
    fn on_placement(&mut self, _placed: &Placed) {}

    /// What is to be written to the claims for devices of a task that has been placed.
    fn device_choices(&self, _task: TaskIdx) -> Vec<DeviceChoice> {
        Vec::new()
    }

    /// See [`Claims::must_wait`](kube_batch_framework::plugin::Claims::must_wait).
    fn must_wait(&self, _task: TaskIdx) -> bool {
        false
    }

    /// See [`Claims::claims_to_deallocate`](kube_batch_framework::plugin::Claims::claims_to_deallocate).
    fn claims_to_deallocate(
        &self,
        _cluster: &Cluster,
        _is_refused: &dyn Fn(JobIdx) -> bool,
    ) -> Vec<(TaskIdx, ObjectKey)> {
        Vec::new()
    }

    /// See [`Claims::has_postponed`](kube_batch_framework::plugin::Claims::has_postponed).
    fn has_postponed(&self) -> bool {
        false
    }

    /// See [`Plugin::work`](kube_batch_framework::plugin::Plugin::work).
    fn work(&self) -> u64 {
        0
    }

    /// The text of a reason that this filter gives, if it depends on more than the reason.
    fn reason_text(&self, _class: ConstraintClassIdx, _reason: Unfit) -> Option<String> {
        None
    }

    /// The volumes chosen for the claims of a task that has been placed.
    fn claim_choices(&self, _class: ConstraintClassIdx) -> Vec<ClaimChoice> {
        Vec::new()
    }
}

/// The arguments of [`Filter::check`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Query {
    pub(super) class: ConstraintClassIdx,
    pub(super) node: NodeIdx,
    pub(super) dependency: Dependency,
    pub(super) capacity: Capacity,
}

/// Builds a filter when a session opens.
pub(super) type BuildFilter = fn(Opening<'_>, &PredicatesArguments) -> Box<dyn Filter>;

/// A set of positions in the filters of the plugin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FilterSet(u32);

impl FilterSet {
    /// The largest number of filters.
    pub(super) const CAPACITY: usize = u32::BITS as usize;

    pub(super) const fn insert(&mut self, at: usize) {
        self.0 |= 1 << at;
    }

    pub(super) const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Those before this position.
    pub(super) const fn before(self, at: usize) -> Self {
        Self(self.0 & ((1 << at) - 1))
    }

    pub(super) const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl Iterator for FilterSet {
    type Item = usize;

    /// Removes the first filter of the set.
    fn next(&mut self) -> Option<usize> {
        let at = self.0.trailing_zeros() as usize;
        let is_some = self.0 != 0;
        self.0 &= self.0.wrapping_sub(1);
        is_some.then_some(at)
    }
}
