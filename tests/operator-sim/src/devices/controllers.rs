//! The claim controller, the garbage collector and the drivers.

use serde_json::{Value, json};

use super::{owner_of, results_of};
use crate::{
    pods::is_done,
    server::{KUBERNETES_GROUPS, Key, PODS, RESOURCE_CLAIMS, Server, is_deleted},
};

/// What the claim controller did with a claim, and whether it has to look at it again.
#[derive(Debug, Default)]
pub(crate) struct Review {
    pub(crate) done: Vec<String>,
    pub(crate) is_followed: bool,
}

/// Removes users of a claim that are gone or done; with the last one its devices are free. A claim that was made
/// for a pod goes with it.
pub(crate) fn review_claim(server: &mut Server, key: &Key) -> Review {
    let mut review = Review::default();
    let Some(claim) = server.get(RESOURCE_CLAIMS, key).cloned() else { return review };
    let owner = owner_of(&claim);
    if owner.is_some_and(|owner| !is_active(server, &key.0, owner)) && !is_deleted(&claim) {
        review.done.push(format!("claim {}/{} has no owner", key.0, key.1));
        server.delete_object(RESOURCE_CLAIMS, key);
    }
    let Some(claim) = server.get(RESOURCE_CLAIMS, key).cloned() else { return review };
    let users = claim["status"]["reservedFor"].as_array().cloned().unwrap_or_default();
    let left: Vec<Value> =
        users.iter().filter(|user| is_active(server, &key.0, user)).cloned().collect();
    if left.is_empty() && (!users.is_empty() || is_deleted(&claim)) {
        review.done.push(format!("claim {}/{} has no users", key.0, key.1));
        let change = |claim: &mut Value| claim["status"] = json!({});
        server.change_object(RESOURCE_CLAIMS, key, change);
        let change = |claim: &mut Value| claim["metadata"]["finalizers"] = json!([]);
        server.change_object(RESOURCE_CLAIMS, key, change);
    } else if left.len() < users.len() {
        review.done.push(format!("claim {}/{} has {} users", key.0, key.1, left.len()));
        let change = |claim: &mut Value| claim["status"]["reservedFor"] = json!(left);
        server.change_object(RESOURCE_CLAIMS, key, change);
    }
    let is_needed = owner_of(&claim).is_some() || !left.is_empty();
    review.is_followed = is_needed && server.get(RESOURCE_CLAIMS, key).is_some();
    review
}

/// Whether a user or the owner of a claim exists and is not done.
fn is_active(server: &Server, namespace: &str, user: &Value) -> bool {
    let is_group = user["resource"] == "podgroups";
    let kind = if is_group { KUBERNETES_GROUPS } else { PODS };
    let name = user["name"].as_str().unwrap_or_default().to_owned();
    let object = server.get(kind, &(namespace.to_owned(), name));
    object.is_some_and(|object| object["metadata"]["uid"] == user["uid"] && !is_done(object))
}

/// The driver reports that the devices of a claim are attached, or that they cannot be.
pub(crate) fn attach_devices(server: &mut Server, key: &Key, condition: &str) {
    let device = |result: &Value| {
        json!({
            "driver": result["driver"], "pool": result["pool"], "device": result["device"],
            "conditions": [{
                "type": condition, "status": "True", "reason": "Done", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }],
        })
    };
    server.change_object(RESOURCE_CLAIMS, key, |claim| {
        let devices: Vec<Value> = results_of(claim).map(device).collect();
        claim["status"]["devices"] = json!(devices);
    });
}

/// Whether a claim has devices that have to be attached and are not yet.
pub(crate) fn waits_for_driver(server: &Server, key: &Key) -> bool {
    let Some(claim) = server.get(RESOURCE_CLAIMS, key) else { return false };
    let is_reported = claim["status"]["devices"].as_array().is_some_and(|all| !all.is_empty());
    !is_reported && results_of(claim).any(|result| result["bindingConditions"].is_array())
}
