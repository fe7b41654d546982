//! How simulated kubelets and the volume provisioner behave: stages for KWOK.

/// The configuration of KWOK, one document after the other.
pub(crate) fn config(has_heartbeats: bool) -> String {
    let nodes = include_str!("../stages/nodes.yaml");
    let heartbeats = has_heartbeats.then_some(include_str!("../stages/heartbeats.yaml"));
    let others = [include_str!("../stages/pods.yaml"), include_str!("../stages/volumes.yaml")];
    let documents: Vec<&str> = [nodes].into_iter().chain(heartbeats).chain(others).collect();
    documents.join("---\n")
}

/// The storage classes that `stages/volumes.yaml` provisions for.
pub(crate) const STORAGE_CLASSES: &str = include_str!("../stages/storage-classes.yaml");
