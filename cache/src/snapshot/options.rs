//! What a snapshot depends on besides facts.

use kube_batch_api::name::Name;

/// What a snapshot depends on besides facts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotOptions {
    /// Pods that name this scheduler are ours.
    pub scheduler_name: Name,
    /// Queue of groups that name none, and of pods without a group.
    pub default_queue: Name,
    /// Whether PriorityClasses rank jobs; otherwise all have priority 0.
    pub priority_class: bool,
}

impl Default for SnapshotOptions {
    /// Scheduler name `kube-batch`, queue `default`, priority classes used.
    fn default() -> Self {
        Self {
            scheduler_name: Name::from("kube-batch"),
            default_queue: Name::from("default"),
            priority_class: true,
        }
    }
}
