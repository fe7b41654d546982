//! The objects of a cluster, as they are read for a simulation.

use std::path::Path;

/// Reads the cluster that a kubeconfig and its context name; without a file, the one that kubectl would use.
pub(crate) type ReadCluster =
    fn(kubeconfig: Option<&Path>, context: Option<&str>) -> anyhow::Result<Lists>;

/// What was read.
#[derive(Debug, Default)]
pub(crate) struct Lists {
    /// The answers of the API server: the name of the list, and its JSON.
    pub(crate) lists: Vec<(String, String)>,
    /// What could not be read, and what follows from that.
    pub(crate) problems: Vec<String>,
}
