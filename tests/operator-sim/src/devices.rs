//! Claims for devices: what they say, the rules about them, and what others in the cluster do with them.

pub(crate) mod controllers;
pub(crate) mod rules;

use serde_json::{Value, json};

/// The annotation of claims that the scheduler makes.
const EXTENDED: &str = "resource.kubernetes.io/extended-resource-claim";

/// A claim for one device.
pub(crate) fn device_claim() -> Value {
    let request = json!({"name": "gpu", "exactly": {
        "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1,
    }});
    json!({"metadata": {}, "spec": {"devices": {"requests": [request]}}, "status": {}})
}

/// The devices of a node. One of them has to be attached before a pod can use it.
pub(crate) fn slice(node: &str) -> Value {
    json!({"metadata": {}, "spec": {
        "driver": "gpu.example.com", "nodeName": node,
        "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "gpu-0"}, {
            "name": "gpu-1",
            "bindingConditions": ["Attached"],
            "bindingFailureConditions": ["AttachFailed"],
        }],
    }})
}

/// The names of the claims of a pod.
fn claims_of(pod: &Value) -> impl Iterator<Item = &str> {
    let entries = pod["spec"]["resourceClaims"].as_array().into_iter().flatten();
    entries.filter_map(|entry| entry["resourceClaimName"].as_str()).chain(extended_claim_of(pod))
}

/// The name of the claim that the scheduler has made for a pod.
fn extended_claim_of(pod: &Value) -> Option<&str> {
    pod["status"]["extendedResourceClaimStatus"]["resourceClaimName"].as_str()
}

fn uids_of_users(claim: &Value) -> impl Iterator<Item = &Value> {
    claim["status"]["reservedFor"].as_array().into_iter().flatten().map(|user| &user["uid"])
}

fn results_of(claim: &Value) -> impl Iterator<Item = &Value> {
    claim["status"]["allocation"]["devices"]["results"].as_array().into_iter().flatten()
}

/// The controller in the metadata of a claim.
fn owner_of(claim: &Value) -> Option<&Value> {
    claim["metadata"]["ownerReferences"]
        .as_array()?
        .iter()
        .find(|owner| owner["controller"] == true)
}

fn is_extended(claim: &Value) -> bool {
    claim["metadata"]["annotations"][EXTENDED] == "true"
}
