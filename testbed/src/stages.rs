//! How simulated kubelets and the volume provisioner behave: stages for KWOK.

/// The configuration of KWOK, one document after the other.
pub(crate) const CONFIG: [&str; 3] = [
    include_str!("../stages/nodes.yaml"),
    include_str!("../stages/pods.yaml"),
    include_str!("../stages/volumes.yaml"),
];

/// The storage classes that `stages/volumes.yaml` provisions for.
pub(crate) const STORAGE_CLASSES: &str = include_str!("../stages/storage-classes.yaml");
