//! ResourceClaims: what the API server lets requests change.
//!
//! Source: `pkg/registry/resource/resourceclaim` and `pkg/apis/resource/validation` of Kubernetes 1.37.

use serde_json::{Value, json};

use super::objects::is_deleted;

/// Whether a claim has a finalizer.
pub(super) fn is_protected(claim: &Value) -> bool {
    claim["metadata"]["finalizers"].as_array().is_some_and(|finalizers| !finalizers.is_empty())
}

/// The claim with the status of a request.
///
/// # Errors
///
/// What is wrong with it.
pub(super) fn with_status(known: &Value, request: &Value) -> Result<Value, &'static str> {
    let mut new = known.clone();
    new["status"] = request["status"].clone();
    if new["status"].is_null() {
        new["status"] = json!({});
    }
    let (before, after) = (&known["status"], &new["status"]);
    let has_users = after["reservedFor"].as_array().is_some_and(|users| !users.is_empty());
    match (&before["allocation"], &after["allocation"]) {
        (_, Value::Null) if has_users => return Err("reservedFor without an allocation"),
        (Value::Object(before), Value::Object(after)) if before != after => {
            return Err("the allocation is immutable");
        }
        _ => {}
    }
    if is_deleted(known) && has_new_user(&before["reservedFor"], &after["reservedFor"]) {
        return Err("new users may not be added to a claim that is being deleted");
    }
    Ok(new)
}

/// The claim with everything but the status of a request.
///
/// # Errors
///
/// What is wrong with it.
pub(super) fn with_spec(known: &Value, request: &Value) -> Result<Value, &'static str> {
    let mut new = request.clone();
    new["status"] = known["status"].clone();
    if is_deleted(known) {
        new["metadata"]["deletionTimestamp"] = known["metadata"]["deletionTimestamp"].clone();
    }
    if new["spec"] != known["spec"] {
        return Err("the spec is immutable");
    }
    if is_deleted(known) && is_protected(&new) && !is_protected(known) {
        return Err("no new finalizers can be added if the object is being deleted");
    }
    Ok(new)
}

/// Whether the second list names a user that the first does not.
fn has_new_user(before: &Value, after: &Value) -> bool {
    let uids = |users: &Value| -> Vec<Value> {
        users.as_array().into_iter().flatten().map(|user| user["uid"].clone()).collect()
    };
    let before = uids(before);
    uids(after).iter().any(|uid| !before.contains(uid))
}

/// Applies a strategic merge patch that deletes users of a claim by uid.
pub(super) fn delete_users(users: &mut Value, patch: &Value) {
    let deleted: Vec<&Value> =
        patch.as_array().into_iter().flatten().map(|user| &user["uid"]).collect();
    if let Some(users) = users.as_array_mut() {
        users.retain(|user| !deleted.contains(&&user["uid"]));
    }
}
