//! The fields in which pods name their PodGroup.

use jiff::Timestamp;
use k8s_openapi::{api::core::v1::PodSpec, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube_batch_model::{
    group_version::GroupVersion,
    membership::{
        BOUND_MINIMUM_ANNOTATION, BOUND_QUEUE_ANNOTATION, GROUP_ANNOTATION,
        PROTECTED_UNTIL_ANNOTATION,
    },
};

/// Annotation of the pods of a Job whose failures count for their index.
const INDEX_FAILURES_ANNOTATION: &str = "batch.kubernetes.io/job-index-failure-count";

/// With which minimum of its job a pod was bound, as its annotation says.
pub(crate) fn bound_minimum_of(meta: &ObjectMeta) -> Option<u32> {
    meta.annotations.as_ref()?.get(BOUND_MINIMUM_ANNOTATION)?.parse().ok()
}

/// Until when a pod may not be reclaimed, as its annotation says.
pub(crate) fn protected_until_of(meta: &ObjectMeta) -> Option<Timestamp> {
    meta.annotations.as_ref()?.get(PROTECTED_UNTIL_ANNOTATION)?.parse().ok()
}

/// How many pods of its index of a Job have failed before a pod, as its annotation says.
pub(crate) fn index_failures_of(meta: &ObjectMeta) -> u32 {
    let annotations = meta.annotations.as_ref();
    let failures = annotations.and_then(|all| all.get(INDEX_FAILURES_ANNOTATION));
    failures.and_then(|failures| failures.parse().ok()).unwrap_or(0)
}

/// The queue from which a pod was bound, as its annotation says.
pub(crate) fn bound_queue_of(meta: &ObjectMeta) -> Option<&String> {
    meta.annotations.as_ref()?.get(BOUND_QUEUE_ANNOTATION)
}

/// A field of pods that may name a PodGroup.
pub struct MemberField {
    /// The API of these PodGroups, or one that shares names with it.
    pub version: GroupVersion,
    /// Its name in messages: "annotation example.com/group".
    pub name: &'static str,
    /// Its path.
    pub path: &'static str,
    /// Reads it.
    pub read: for<'a> fn(&'a ObjectMeta, Option<&'a PodSpec>) -> Option<&'a String>,
    /// Whether it is ignored where the API is not served: other programs may use it for something else.
    pub only_if_served: bool,
}

/// The fields, in order of precedence: what users write before what controllers add.
const FIELDS: [MemberField; 4] = [
    MemberField {
        version: GroupVersion::V1Alpha2,
        name: "annotation scheduling.k8s.io/group-name",
        path: "metadata.annotations[scheduling.k8s.io/group-name]",
        read: |meta, _| meta.annotations.as_ref()?.get(GROUP_ANNOTATION),
        only_if_served: false,
    },
    MemberField {
        version: GroupVersion::Volcano,
        name: "annotation scheduling.volcano.sh/group-name",
        path: "metadata.annotations[scheduling.volcano.sh/group-name]",
        read: |meta, _| meta.annotations.as_ref()?.get("scheduling.volcano.sh/group-name"),
        only_if_served: true,
    },
    MemberField {
        version: GroupVersion::Coscheduling,
        name: "label scheduling.x-k8s.io/pod-group",
        path: "metadata.labels[scheduling.x-k8s.io/pod-group]",
        read: |meta, _| meta.labels.as_ref()?.get("scheduling.x-k8s.io/pod-group"),
        only_if_served: true,
    },
    MemberField {
        version: GroupVersion::Kubernetes,
        name: "field spec.schedulingGroup.podGroupName",
        path: "spec.schedulingGroup.podGroupName",
        read: |_, spec| spec?.scheduling_group.as_ref()?.pod_group_name.as_ref(),
        only_if_served: false,
    },
];

/// Returns the names of PodGroups in a pod or template with their fields, in order of precedence.
pub fn named_groups<'a>(
    meta: &'a ObjectMeta,
    spec: Option<&'a PodSpec>,
) -> impl Iterator<Item = (&'static MemberField, &'a String)> {
    FIELDS.iter().filter_map(move |field| {
        let name = (field.read)(meta, spec).filter(|name| !name.is_empty())?;
        Some((field, name))
    })
}
