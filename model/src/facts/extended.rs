//! The extended resources that each container of a pod requests.
//!
//! A class of devices can stand for an extended resource. The scheduler then makes a claim whose requests are
//! named after the containers, so amounts for the whole pod do not suffice.

use serde::{Deserialize, Serialize};

use crate::name::Name;

/// A container that requests extended resources.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ExtendedRequests {
    /// The name of the container.
    pub container: Name,
    /// Its position among init containers and containers.
    pub at: usize,
    /// Whether it ends before the containers start.
    pub is_init: bool,
    /// What it requests, in order of the names.
    pub requests: Vec<ExtendedRequest>,
}

/// A request of a container for an extended resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ExtendedRequest {
    /// The resource.
    pub resource: Name,
    /// Its position among all resources that the container requests, in order of the names.
    pub rank: usize,
    /// The amount.
    pub count: u64,
}
