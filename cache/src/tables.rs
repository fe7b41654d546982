//! The tables of the store.

/// Calls a macro with a row for each table: its field in the store, the name of its records in a dump, the facts, and
/// their key.
///
/// A new kind of object gets a row here, and one in the table of kinds in `api`.
macro_rules! each_table {
    (with pods: $callback:ident) => {
        each_table! { @$callback {
            /// Pods of every scheduler.
            pods: Pod(kube_batch_model::facts::pod::TaskFacts), ObjectKey = |facts| facts.key.clone();
        } }
    };
    (without pods: $callback:ident) => {
        each_table! { @$callback {} }
    };
    (@$callback:ident { $($pods:tt)* }) => {
        $callback! {
            /// Namespaces.
            namespaces: Namespace(kube_batch_model::facts::node::NamespaceFacts), Name = |facts| facts.name.clone();
            /// Nodes.
            nodes: Node(kube_batch_model::facts::node::NodeFacts), Name = |facts| facts.name.clone();
            /// CSINodes.
            csi_nodes: CsiNode(kube_batch_model::facts::storage::CsiNodeFacts), Name = |facts| facts.name.clone();
            /// CSIDrivers.
            csi_drivers: CsiDriver(kube_batch_model::facts::storage::CsiDriverFacts), Name = |facts| facts.name.clone();
            /// PriorityClasses.
            priority_classes: PriorityClass(kube_batch_model::facts::policy::PriorityClassFacts), Name = |facts| facts.name.clone();
            /// PodDisruptionBudgets.
            budgets: PodDisruptionBudget(kube_batch_model::facts::policy::BudgetFacts), ObjectKey = |facts| facts.key.clone();
            /// Jobs of `batch`.
            batch_jobs: Job(kube_batch_model::facts::batch_job::BatchJobFacts), ObjectKey = |facts| facts.key.clone();
            /// PersistentVolumes.
            volumes: PersistentVolume(kube_batch_model::facts::storage::VolumeFacts), Name = |facts| facts.name.clone();
            /// PersistentVolumeClaims.
            claims: PersistentVolumeClaim(kube_batch_model::facts::storage::ClaimFacts), ObjectKey = |facts| facts.key.clone();
            /// StorageClasses.
            storage_classes: StorageClass(kube_batch_model::facts::storage::StorageClassFacts), Name = |facts| facts.name.clone();
            /// ResourceClaims.
            resource_claims: ResourceClaim(kube_batch_model::facts::device::claim::ResourceClaimFacts), ObjectKey = |facts| facts.key.clone();
            /// ResourceSlices.
            resource_slices: ResourceSlice(kube_batch_model::facts::device::slice::SliceFacts), Name = |facts| facts.name.clone();
            /// DeviceClasses.
            device_classes: DeviceClass(kube_batch_model::facts::device::class::DeviceClassFacts), Name = |facts| facts.name.clone();
            /// DeviceTaintRules.
            device_taint_rules: DeviceTaintRule(kube_batch_model::facts::device::taint::DeviceTaintRuleFacts), Name = |facts| facts.name.clone();
            /// Queues of all APIs.
            queues: Queue(kube_batch_model::facts::queue::QueueFacts), (Name, GroupVersion) = |facts| (facts.name.clone(), facts.version);
            /// PodGroups of all APIs.
            groups: PodGroup(kube_batch_model::facts::group::GroupFacts), (ObjectKey, GroupVersion) = |facts| (facts.key.clone(), facts.version);
            /// Composite PodGroups.
            composites: CompositePodGroup(kube_batch_model::facts::composite::CompositeFacts), ObjectKey = |facts| facts.key.clone();
            $($pods)*
        }
    };
}
