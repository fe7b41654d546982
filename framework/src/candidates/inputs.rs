//! What every answer about a class depends on.

use kube_batch_api::{cluster::Cluster, column::NodeIdx};

use crate::policy::Policy;

/// What every search reads: the cluster, the plugins, and what has changed.
#[derive(Clone, Copy)]
pub(crate) struct Inputs<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) policy: &'a Policy,
    /// Nodes that have changed since the cycle began, in order.
    pub(crate) touched: &'a [NodeIdx],
}
