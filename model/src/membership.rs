//! Labels and annotations by which pods, PodGroups and namespaces are connected.

/// Annotation that joins a pod to the PodGroup of that name in its namespace.
pub const GROUP_ANNOTATION: &str = "scheduling.k8s.io/group-name";

/// The annotation of Volcano that names the role of a pod in its job.
pub const ROLE_ANNOTATION: &str = "volcano.sh/task-spec";

/// The label or annotation that names the queue of PodGroups without such a field, of pods without a
/// PodGroup, and of namespaces.
pub const QUEUE_LABEL: &str = "scheduling.sigs.dev/queue";

/// The annotation of a bound pod that names the queue from which it was bound. The scheduler sends it with the
/// binding, and the API server copies it to the pod.
pub const BOUND_QUEUE_ANNOTATION: &str = "scheduling.sigs.dev/bound-queue";

/// The annotation of a bound pod that says until when it may not be reclaimed, because its job started from a
/// reservation. It is sent with the binding too.
pub const PROTECTED_UNTIL_ANNOTATION: &str = "scheduling.sigs.dev/protected-until";

/// The annotation of a bound pod that says how many pods of its job started together, the minimum of the job, when the
/// pod was bound. It is sent with the binding too.
pub const BOUND_MINIMUM_ANNOTATION: &str = "scheduling.sigs.dev/bound-minimum";

/// The annotations that are sent with a binding.
pub const BINDING_ANNOTATIONS: [&str; 3] =
    [BOUND_QUEUE_ANNOTATION, PROTECTED_UNTIL_ANNOTATION, BOUND_MINIMUM_ANNOTATION];
