//! What a snapshot depends on besides facts.

use kube_batch_api::name::Name;

/// Options of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotOptions {
    /// Scheduler name; only pods with this name are scheduled.
    pub scheduler_name: Name,
    /// Queue for PodGroups that name none and for pods without a group.
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
