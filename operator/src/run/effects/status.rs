//! Writes of statuses: of pods, PodGroups and queues.

use http::{
    Request,
    header::{ACCEPT, CONTENT_TYPE},
};
use k8s_openapi::api::core::v1::Pod;
use kube_batch_api::{crd::v1alpha2, facts::pod::FIELD_MANAGER, name::ObjectKey};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{
    call::{WriteError, call},
    context::Context,
    queue::Target,
};
use crate::run::metrics::Write;

/// Sets what is named, removes what is null.
const MERGE_PATCH: &str = "application/merge-patch+json";
/// Merges conditions by type, where a merge patch would replace them all.
const STRATEGIC_MERGE_PATCH: &str = "application/strategic-merge-patch+json";

/// Patches the status of an object and stores what the API server answers.
///
/// # Errors
///
/// [`WriteError`]; after `Unanswered` the status may have been written all the same.
pub(super) async fn patch(
    context: &Context,
    target: &Target,
    patch: &Value,
) -> Result<(), WriteError> {
    match target {
        Target::Pod(pod) => {
            let path = format!("/api/v1/namespaces/{}/pods/{}", pod.key.namespace, pod.key.name);
            let answer = send(context, Write::PodStatus, &path, STRATEGIC_MERGE_PATCH, patch);
            answer.await.map(|pod: Pod| context.store(|store| store.apply_pod(&pod)))
        }
        Target::Group(version, ObjectKey { namespace, name }) => {
            let path = format!("/apis/{version}/namespaces/{namespace}/podgroups/{name}");
            let answer = send(context, Write::GroupStatus, &path, MERGE_PATCH, patch);
            // The two API groups are field for field the same.
            answer.await.map(|group: v1alpha2::PodGroup| {
                let (meta, status) = (&group.metadata, group.status.as_ref());
                context.store(|store| store.apply_group(*version, meta, &group.spec, status));
            })
        }
        Target::Queue(version, name) => {
            let path = format!("/apis/{version}/queues/{name}");
            let answer = send(context, Write::QueueStatus, &path, MERGE_PATCH, patch);
            answer.await.map(|queue: v1alpha2::Queue| {
                let (meta, status) = (&queue.metadata, queue.status.as_ref());
                context.store(|store| store.apply_queue(*version, meta, &queue.spec, status));
            })
        }
    }
}

async fn send<T: DeserializeOwned>(
    context: &Context,
    write: Write,
    path: &str,
    content_type: &'static str,
    patch: &Value,
) -> Result<T, WriteError> {
    let body = serde_json::to_vec(patch).expect("a value is JSON");
    let answer = call(&context.metrics, write, || {
        let request = Request::patch(format!("{path}/status?fieldManager={FIELD_MANAGER}"))
            .header(CONTENT_TYPE, content_type)
            .header(ACCEPT, "application/json")
            .body(body.clone())
            .expect("a path of names is a URI");
        context.client.request(request)
    });
    answer.await
}
