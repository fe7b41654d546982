//! Pods: what a task is.

use std::sync::Arc;

use k8s_openapi::{
    api::core::v1::{Pod, PodCondition},
    apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta, OwnerReference},
};
use kube_batch_model::{
    facts::{
        FactError,
        class::PodTemplate,
        group_refs::GroupRefs,
        pod::{FIELD_MANAGER, Interner, TaskFacts},
        size::{Bounds, Oversize},
    },
    intern::Interned,
    membership::ROLE_ANNOTATION,
    name::{Name, ObjectKey},
    selector::Labels,
    status::TaskStatus,
    text::{MAX_MESSAGE, cut, shortened},
};

use super::{
    device::claim::entries,
    gang_annotations::gang_annotations,
    group_refs::group_refs,
    limits::{self, MAX_LABELS},
    metadata::{controlled_by, controller, created, object_key},
    pod_hints::pod_hints,
    run_time::run_time,
    template::{refused, template},
};
use crate::membership::{bound_minimum_of, bound_queue_of, index_failures_of, protected_until_of};

/// Reads a pod. Of one that is above the bounds of its size, only what it uses of its node is kept, and what it
/// takes to say so.
///
/// # Errors
///
/// [`FactError`] if it has no name, no uid, no spec, or an amount that cannot be read: skip it.
pub fn pod(pod: &Pod, interner: &mut Interner) -> Result<TaskFacts, FactError> {
    let read = read_pod(pod, interner)?;
    let Some(excess) = read.excess(pod) else { return Ok(read.intern(interner)) };
    let facts = read.facts;
    let is_short = |text: &Name| text.len() <= Bounds::USERS.text;
    let controller = facts
        .controller
        .filter(|owner| [&owner.uid, &owner.kind, &owner.name].into_iter().all(is_short));
    // So it stays in its job.
    let Read { facts: smallest, labels, template } = read_pod(&limits::smallest(pod), interner)?;
    let why = shortened(&format!("the pod has {excess}")).into_owned();
    let template = refused(&template.request, why);
    let facts = TaskFacts { groups: facts.groups, controller, ..smallest };
    let read = Read { facts, labels, template };
    match read.excess(pod) {
        None => Ok(read.intern(interner)),
        // The API server bounds what is left.
        Some(excess) => Err(excess.into_error(format!("Pod {}", read.facts.key))),
    }
}

fn read_pod(pod: &Pod, interner: &mut Interner) -> Result<Read, FactError> {
    let key = object_key("Pod", &pod.metadata)?;
    let key = ObjectKey { namespace: interner.name(&key.namespace), ..key };
    let uid = match pod.metadata.uid.as_deref() {
        Some(uid) if !uid.is_empty() => Name::from(uid),
        _ => return Err(FactError::new(format!("Pod {key}"), "metadata.uid", "is missing")),
    };
    let labels = pod.metadata.labels.as_ref();
    let labels = Labels::from_map(labels.filter(|labels| labels.len() <= MAX_LABELS));
    let mut template = template(pod, &key, &labels, interner.prefixes())?;
    let spec = pod
        .spec
        .as_ref()
        .ok_or_else(|| FactError::new(format!("Pod {key}"), "spec", "is missing"))?;
    let status = pod.status.as_ref();
    let groups = group_refs(pod, interner).unwrap_or_else(|field| {
        let why = format!("the {field} is not the name of a PodGroup");
        template.refused.get_or_insert(why.into());
        GroupRefs::default()
    });
    let mut non_empty = |text: Option<&String>| {
        text.filter(|text| !text.is_empty()).map(|text| interner.name(text))
    };
    let nominated_node = non_empty(status.and_then(|s| s.nominated_node_name.as_ref()));
    let observed = observed_status(pod);
    // A scheduler may write False after it has bound the pod, if that write is late. A pod whose creator named the node
    // never has the condition before the kubelet sets it.
    let not_admitted = is_assigned(pod) && is_pending(pod) && scheduling(pod).is_none();
    let is_own = || wrote_nomination(pod.metadata.managed_fields.as_deref());
    let nominated_by_other = nominated_node.is_some() && !is_own();
    let facts = TaskFacts {
        created: created(&pod.metadata),
        scheduler: non_empty(spec.scheduler_name.as_ref())
            .unwrap_or_else(|| Name::from("default-scheduler")),
        hints: pod_hints(&pod.metadata, !groups.is_empty()).map(Arc::new),
        groups,
        annotations: gang_annotations(&pod.metadata).map(Arc::new),
        role: non_empty(role_of(&pod.metadata)),
        controller: controlled_by(&pod.metadata),
        priority: spec.priority.unwrap_or(0),
        priority_class: non_empty(spec.priority_class_name.as_ref()),
        never_preempts: spec.preemption_policy.as_deref() == Some("Never"),
        gated: spec.scheduling_gates.as_ref().is_some_and(|gates| !gates.is_empty()),
        // Before it runs, the time is no fact: the kubelet sets it first, and that decides nothing.
        started: status
            .and_then(|s| s.start_time.as_ref())
            .map(|time| time.0)
            .filter(|_| observed == TaskStatus::Running),
        terminates_at: pod
            .metadata
            .deletion_timestamp
            .as_ref()
            .map(|time| time.0)
            .filter(|_| observed == TaskStatus::Releasing),
        bound_at: scheduled(pod)
            .and_then(|condition| condition.last_transition_time.as_ref())
            .map(|time| time.0)
            .filter(|_| observed == TaskStatus::Bound),
        status: observed,
        ended_in_deletion: ended_in_deletion(pod, observed),
        not_admitted,
        node: non_empty(spec.node_name.as_ref()),
        // Before it is bound, anyone may write the annotations, and the binding replaces them. A pod whose creator named
        // the node gets no binding.
        bound_queue: non_empty(spec.node_name.as_ref())
            .filter(|_| !not_admitted)
            .and_then(|_| non_empty(bound_queue_of(&pod.metadata))),
        bound_minimum: bound_minimum_of(&pod.metadata)
            .filter(|_| is_assigned(pod) && !not_admitted),
        protected_until: protected_until_of(&pod.metadata).filter(|_| !not_admitted),
        index_failures: index_failures_of(&pod.metadata),
        run_time: run_time(pod),
        nominated_node: nominated_node.filter(|_| !nominated_by_other),
        nominated_by_other,
        unscheduled: status
            .and_then(|s| s.conditions.as_ref())
            .into_iter()
            .flatten()
            .find(|c| c.type_ == "PodScheduled" && c.status == "False")
            .map(|c| {
                // Other schedulers write longer messages.
                let text = |t: &Option<String>| {
                    Name::from(cut(t.as_deref().unwrap_or_default(), MAX_MESSAGE))
                };
                (text(&c.reason), text(&c.message))
            }),
        device_claims: entries(pod).into(),
        extended_claim: status
            .and_then(|status| status.extended_resource_claim_status.as_ref())
            .map(|claim| claim.resource_claim_name.as_str().into()),
        labels: Interned::default(),
        template: Interned::default(),
        uid,
        key,
    };
    Ok(Read { facts, labels, template })
}

/// A pod that was read, before it is known whether it is kept.
struct Read {
    /// Without labels and template.
    facts: TaskFacts,
    labels: Labels,
    template: PodTemplate,
}

impl Read {
    /// What is above the bounds of its size.
    fn excess(&self, pod: &Pod) -> Option<Oversize> {
        Bounds::USERS.excess(&(&self.facts, &self.labels, &self.template), pod)
    }

    fn intern(self, interner: &mut Interner) -> TaskFacts {
        let Self { facts, labels, template } = self;
        let (labels, template) = (interner.new_labels(labels), interner.new_template(template));
        TaskFacts { labels, template, ..facts }
    }
}

/// The role of a pod in its job.
fn role_of(meta: &ObjectMeta) -> Option<&String> {
    meta.annotations.as_ref()?.get(ROLE_ANNOTATION)
}

/// Whether this scheduler wrote `status.nominatedNodeName`, or it is not known who did.
fn wrote_nomination(managed: Option<&[ManagedFieldsEntry]>) -> bool {
    let Some(managed) = managed.filter(|managed| !managed.is_empty()) else { return true };
    let has_field = |entry: &ManagedFieldsEntry| {
        let fields = entry.fields_v1.as_ref();
        fields.is_some_and(|fields| !fields.0["f:status"]["f:nominatedNodeName"].is_null())
    };
    let mut own = managed.iter().filter(|entry| entry.manager.as_deref() == Some(FIELD_MANAGER));
    own.any(has_field)
}

/// Whether the pod has a node.
fn is_assigned(pod: &Pod) -> bool {
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref());
    node.is_some_and(|node| !node.is_empty())
}

/// Whether the pod has not run yet, and has not ended.
fn is_pending(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, None | Some("" | "Pending"))
}

/// The condition PodScheduled: schedulers set it to False while the pod waits, the API server to True when it is bound,
/// and so does the kubelet when it admits a pod whose creator named the node.
fn scheduling(pod: &Pod) -> Option<&PodCondition> {
    let mut conditions = pod.status.as_ref()?.conditions.iter().flatten();
    conditions.find(|c| c.type_ == "PodScheduled")
}

/// The condition PodScheduled, if it is True.
fn scheduled(pod: &Pod) -> Option<&PodCondition> {
    scheduling(pod).filter(|condition| condition.status == "True")
}

/// Whether a pod ended only after its deletion was accepted, as evicted pods do, whatever their exit code. The Job
/// controller counts those that succeed all the same.
fn ended_in_deletion(pod: &Pod, observed: TaskStatus) -> bool {
    let meta = &pod.metadata;
    let Some(deletion) = &meta.deletion_timestamp else { return false };
    let counts_for_job =
        |owner: &OwnerReference| owner.kind == "Job" && owner.api_version == "batch/v1";
    match observed {
        TaskStatus::Succeeded if controller(meta).is_some_and(counts_for_job) => return false,
        TaskStatus::Succeeded | TaskStatus::Failed => {}
        TaskStatus::Pending
        | TaskStatus::Allocated
        | TaskStatus::Pipelined
        | TaskStatus::Binding
        | TaskStatus::Bound
        | TaskStatus::Running
        | TaskStatus::Releasing
        | TaskStatus::Stuck
        | TaskStatus::Unknown => return false,
    }
    // The API server gives no grace period to a pod that has ended already.
    let grace_seconds = meta.deletion_grace_period_seconds.unwrap_or(0);
    let statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    let ends = statuses.filter_map(|container| {
        let ended = container.state.as_ref()?.terminated.as_ref()?;
        Some(ended.finished_at.as_ref()?.0)
    });
    grace_seconds > 0 || ends.max().is_some_and(|ended| ended > deletion.0)
}

/// The status of a pod according to the API server.
// Parity: a terminating pod is Releasing whatever its phase, see docs/parity.md#s2.
fn observed_status(pod: &Pod) -> TaskStatus {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    match phase {
        Some("Succeeded") => TaskStatus::Succeeded,
        Some("Failed") => TaskStatus::Failed,
        _ if pod.metadata.deletion_timestamp.is_some() => TaskStatus::Releasing,
        Some("Running") => TaskStatus::Running,
        _ if !is_pending(pod) => TaskStatus::Unknown,
        _ if is_assigned(pod) => TaskStatus::Bound,
        _ => TaskStatus::Pending,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use kube_batch_model::{group_version::ServedApis, name::JobKey};

    use super::*;

    fn read(managed: Value, annotations: Value) -> TaskFacts {
        let pod = json!({
            "metadata": {
                "name": "p", "uid": "u", "managedFields": managed, "annotations": annotations,
            },
            "spec": {"containers": []},
            "status": {"nominatedNodeName": "n"},
        });
        let pod: Pod = serde_json::from_value(pod).expect("a pod");
        super::pod(&pod, &mut Interner::default()).expect("facts")
    }

    #[test]
    fn only_what_this_scheduler_wrote_is_a_nomination() {
        let entry = |manager: &str, field: &str| {
            json!({
                "manager": manager, "operation": "Update", "subresource": "status",
                "fieldsType": "FieldsV1", "fieldsV1": {"f:status": {(field): {}}},
            })
        };
        let own = entry(FIELD_MANAGER, "f:nominatedNodeName");
        let others = entry("autoscaler", "f:nominatedNodeName");
        let own_condition = entry(FIELD_MANAGER, "f:conditions");
        for (managed, is_own) in [
            (json!(null), true),
            (json!([]), true),
            (json!([own]), true),
            (json!([others, own]), true),
            (json!([others]), false),
            (json!([own_condition, others]), false),
        ] {
            let facts = read(managed.clone(), json!({}));
            assert_eq!(facts.nominated_node.as_deref(), is_own.then_some("n"), "{managed}");
            assert_eq!(facts.nominated_by_other, !is_own, "{managed}");
        }
    }

    #[test]
    fn a_pod_that_ends_while_it_is_deleted_counts_only_where_its_controller_counts_it() {
        let read = |phase: &str, grace_seconds: i64, ended: &str, owner: Value| {
            let pod = json!({
                "metadata": {
                    "name": "p", "uid": "u", "deletionTimestamp": "2025-01-01T00:01:00Z",
                    "deletionGracePeriodSeconds": grace_seconds, "ownerReferences": [owner],
                },
                "spec": {"containers": [], "nodeName": "n"},
                "status": {"phase": phase, "containerStatuses": [{
                    "name": "c", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
                    "state": {"terminated": {"exitCode": 0, "finishedAt": ended}},
                }]},
            });
            let pod: Pod = serde_json::from_value(pod).expect("a pod");
            let facts = super::pod(&pod, &mut Interner::default()).expect("facts");
            facts.ended_in_deletion
        };
        let owner = |api: &str, kind: &str| json!({"apiVersion": api, "kind": kind, "name": "o", "uid": "o", "controller": true});
        let (job, set) = (owner("batch/v1", "Job"), owner("apps/v1", "StatefulSet"));
        let volcano = owner("batch.volcano.sh/v1alpha1", "Job");
        let (before, after) = ("2025-01-01T00:00:20Z", "2025-01-01T00:00:40Z");
        assert!(read("Succeeded", 30, after, set.clone()));
        assert!(read("Succeeded", 30, after, volcano));
        assert!(read("Failed", 30, after, job.clone()));
        assert!(!read("Succeeded", 30, after, job));
        assert!(!read("Succeeded", 0, before, set.clone()), "it had ended before");
        assert!(read("Succeeded", 0, "2025-01-01T00:01:01Z", set.clone()), "without grace");
        assert!(!read("Running", 30, after, set));
    }

    #[test]
    fn the_queue_of_a_bound_pod_is_the_one_that_was_seen_first() {
        let read = |uid: &str, node: Option<&str>, queue: Option<&str>| {
            let annotations = queue.map(|queue| json!({"scheduling.sigs.dev/bound-queue": queue}));
            let pod = json!({
                "metadata": {"name": "p", "uid": uid, "annotations": annotations},
                "spec": {"containers": [], "nodeName": node},
                "status": {"phase": if node.is_some() { "Running" } else { "Pending" }},
            });
            let pod: Pod = serde_json::from_value(pod).expect("a pod");
            super::pod(&pod, &mut Interner::default()).expect("facts")
        };
        let after = |earlier: TaskFacts, mut later: TaskFacts| {
            later.keep_binding(&earlier);
            later.bound_queue.map(|queue| queue.to_string())
        };
        let waiting = read("u", None, Some("mine"));
        assert_eq!(waiting.bound_queue, None, "it is not bound");
        let bound = read("u", Some("n"), Some("a"));
        assert_eq!(after(waiting, bound.clone()).as_deref(), Some("a"));
        assert_eq!(after(bound.clone(), read("u", Some("n"), Some("b"))).as_deref(), Some("a"));
        assert_eq!(after(bound.clone(), read("u", Some("n"), None)).as_deref(), Some("a"));
        let other = read("v", Some("n"), Some("b"));
        assert_eq!(after(bound, other).as_deref(), Some("b"), "another pod of that name");
        let unknown = read("u", Some("n"), None);
        assert_eq!(after(unknown, read("u", Some("n"), Some("b"))), None);
    }

    #[test]
    fn a_pod_is_admitted_once_it_was_bound_or_its_kubelet_says_so() {
        let read = |node: Option<&str>, phase: &str, condition: Option<&str>| {
            let condition = condition.map(|status| {
                let at = "2025-01-01T00:00:00Z";
                json!({"type": "PodScheduled", "status": status, "lastTransitionTime": at})
            });
            let pod = json!({
                "metadata": {
                    "name": "p", "uid": "u",
                    "annotations": {"scheduling.sigs.dev/bound-queue": "q"},
                },
                "spec": {"containers": [], "nodeName": node},
                "status": {"phase": phase, "conditions": Vec::from_iter(condition)},
            });
            let pod: Pod = serde_json::from_value(pod).expect("a pod");
            super::pod(&pod, &mut Interner::default()).expect("facts")
        };
        for (node, phase, condition, not_admitted) in [
            (None, "Pending", None, false),
            (None, "Pending", Some("False"), false),
            (Some("n"), "Pending", None, true),
            (Some("n"), "Pending", Some("False"), false),
            (Some("n"), "Pending", Some("True"), false),
            (Some("n"), "Running", None, false),
            (Some("n"), "Failed", None, false),
        ] {
            let facts = read(node, phase, condition);
            assert_eq!(facts.not_admitted, not_admitted, "{node:?} {phase} {condition:?}");
            let is_bound = node.is_some() && !not_admitted;
            assert_eq!(facts.bound_queue.is_some(), is_bound, "{node:?} {phase} {condition:?}");
        }
    }

    #[test]
    fn an_annotation_that_is_no_name_is_not_kept() {
        let group = |name: &str| {
            read(json!(null), json!({(kube_batch_model::membership::GROUP_ANNOTATION): name}))
        };
        let key = JobKey::annotated(ObjectKey::new("", "a.b-c"));
        assert_eq!(group("a.b-c").job_key(ServedApis::default()), key);
        for name in ["A", "a b", "a/b", ".", &"a".repeat(254)] {
            let facts = group(name);
            assert!(facts.groups.is_empty(), "{name}");
            assert!(facts.template.share().refused.is_some(), "{name}");
        }
    }
}
