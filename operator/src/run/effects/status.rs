//! Writes of statuses: of pods, PodGroups and queues.

use http::{
    Request,
    header::{ACCEPT, CONTENT_TYPE},
};
use k8s_openapi::api::core::v1::Pod;
use kube::core::ObjectList;
use kube_batch_api::{
    dialect::{self, GroupOf, Patch, QueueOf},
    with_version,
};
use kube_batch_model::{
    facts::pod::FIELD_MANAGER,
    name::{Name, ObjectKey},
};
use serde_json::Value;

use super::{call::WriteError, context::Context, queue::Target};
use crate::run::{metrics::Write, watch::Watched};

/// Sets what is named, removes what is null. Conditions are replaced as a whole, so the patch contains
/// the version that it was made for: conditions of other writers are not lost.
const MERGE_PATCH: &str = "application/merge-patch+json";
/// Merges conditions by type, where a merge patch would replace them all.
const STRATEGIC_MERGE_PATCH: &str = "application/strategic-merge-patch+json";

/// Patches the status of an object and stores what the API server answers.
///
/// # Errors
///
/// [`WriteError`].
pub(super) async fn patch(
    context: &Context,
    target: &Target,
    patch: &Value,
) -> Result<(), WriteError> {
    let (list, name) = path_of(target);
    let (write, path) = (write_of(target), format!("{list}/{name}"));
    match target {
        Target::Pod(_) => send::<Pod>(context, write, &path, Patch::StatusByType, patch).await,
        Target::Group(version, _) => {
            let how = dialect::spec(*version).patch;
            with_version!(*version, V => {
                send::<GroupOf<V>>(context, write, &path, how, patch).await
            })
        }
        Target::Queue(version, _) => with_version!(*version, V => {
            send::<QueueOf<V>>(context, write, &path, Patch::Status, patch).await
        }),
    }
}

/// Reads an object at the most recent version and stores what it is now.
///
/// # Errors
///
/// [`WriteError`].
pub(super) async fn read(context: &Context, target: &Target) -> Result<(), WriteError> {
    match target {
        Target::Pod(_) => get::<Pod>(context, target).await,
        Target::Group(version, _) => {
            with_version!(*version, V => get::<GroupOf<V>>(context, target).await)
        }
        Target::Queue(version, _) => {
            with_version!(*version, V => get::<QueueOf<V>>(context, target).await)
        }
    }
}

/// The kind of write, as it is counted.
pub(super) const fn write_of(target: &Target) -> Write {
    match target {
        Target::Pod(_) => Write::PodStatus,
        Target::Group(..) => Write::GroupStatus,
        Target::Queue(..) => Write::QueueStatus,
    }
}

/// The path of the list that an object is in, and its name.
fn path_of(target: &Target) -> (String, &Name) {
    match target {
        Target::Pod(pod) => {
            (format!("/api/v1/namespaces/{}/pods", pod.key.namespace), &pod.key.name)
        }
        Target::Group(version, ObjectKey { namespace, name }) => {
            (format!("/apis/{version}/namespaces/{namespace}/podgroups"), name)
        }
        Target::Queue(version, name) => (format!("/apis/{version}/queues"), name),
    }
}

async fn send<K: Watched>(
    context: &Context,
    write: Write,
    path: &str,
    how: Patch,
    patch: &Value,
) -> Result<(), WriteError> {
    let (subresource, content_type) = match how {
        Patch::Status => ("/status", MERGE_PATCH),
        Patch::StatusByType => ("/status", STRATEGIC_MERGE_PATCH),
        Patch::Object => ("", MERGE_PATCH),
    };
    let body = serde_json::to_vec(patch).expect("a value is JSON");
    let request = Request::patch(format!("{path}{subresource}?fieldManager={FIELD_MANAGER}"))
        .header(CONTENT_TYPE, content_type)
        .header(ACCEPT, "application/json")
        .body(body)
        .expect("a path of names is a URI");
    let object: K = context.call(write, context.client.request(request)).await?;
    context.store(&object);
    Ok(())
}

async fn get<K: Watched>(context: &Context, target: &Target) -> Result<(), WriteError> {
    let (list, name) = path_of(target);
    // As a list of one: the role permits to list these kinds, as watches need it.
    let request = Request::get(format!("{list}?fieldSelector=metadata.name%3D{name}"))
        .body(Vec::new())
        .expect("a path of names is a URI");
    let found: ObjectList<K> = context.read(context.client.request(request)).await?;
    found.items.iter().for_each(|object| context.store(object));
    Ok(())
}
