//! The objects of a cluster, as they are read for a simulation.

use std::path::Path;

/// Reads the cluster that a kubeconfig and its context name; without a file, the one that kubectl would use.
pub type ReadCluster =
    fn(kubeconfig: Option<&Path>, context: Option<&str>) -> anyhow::Result<Lists>;

/// What was read.
#[derive(Debug, Default)]
pub struct Lists {
    /// The answers of the API server: the name of the list, and its JSON.
    pub lists: Vec<(String, String)>,
    /// What could not be read, and what follows from that.
    pub problems: Vec<String>,
}
