//! What all nodes have available together, if it is kept.

use crate::{
    column::{Column, Dim, NodeIdx},
    resource::{Ledger, ResourceVector},
};

/// What is available, if it is kept. It follows from the rest of a snapshot, and so makes no difference to whether two are
/// equal.
#[derive(Clone, Debug, Default)]
pub struct KeptAvailable(pub(super) Option<Box<AvailableOnNodes>>);

impl PartialEq for KeptAvailable {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

#[derive(Clone, Debug)]
pub(super) struct AvailableOnNodes {
    /// What each node adds, by capacity.
    pub(super) by_node: [Ledger<NodeIdx>; 2],
    pub(super) totals: [ResourceVector; 2],
    /// How each node counts each resource.
    pub(super) counting: Column<NodeIdx, Counting>,
}

/// How a node counts resources.
#[derive(Clone, Debug)]
pub(super) struct Counting {
    /// Whether it takes tasks.
    pub(super) is_usable: bool,
    /// The amount that stands for nothing of each resource about which devices decide.
    pub(super) nothing: Column<Dim, Option<i64>>,
}
