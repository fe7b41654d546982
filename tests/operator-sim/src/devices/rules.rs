//! Rules about claims for devices.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{claims_of, extended_claim_of, is_extended, owner_of, results_of, uids_of_users};
use crate::{
    pods::{RESOURCE, is_done, number, requested, used},
    server::{KUBERNETES_GROUPS, Key, NODES, PODS, QUEUES, RESOURCE_CLAIMS, Server, is_deleted},
};

/// What is wrong with the claims of a pod that was bound.
pub(crate) fn problem_of_binding(server: &Server, key: &Key, pod: &Value) -> Option<String> {
    let needs_claim = requested(pod, RESOURCE) > 0 && is_advertised(server, pod) == Some(false);
    if needs_claim && extended_claim_of(pod).is_none() {
        return Some("its status names no claim for its extended resource".to_owned());
    }
    claims_of(pod).find_map(|name| {
        let claim = server.get(RESOURCE_CLAIMS, &(key.0.clone(), name.to_owned()));
        let problem = claim.map_or_else(
            || Some("does not exist".to_owned()),
            |claim| problem_of_claim(server, key, pod, (name, claim)),
        );
        problem.map(|problem| format!("claim {name} {problem}"))
    })
}

fn problem_of_claim(
    server: &Server,
    key: &Key,
    pod: &Value,
    (name, claim): (&str, &Value),
) -> Option<String> {
    let status = &claim["status"];
    if !status["allocation"].is_object() {
        return Some("is not allocated".to_owned());
    }
    let uses = |user: &Value| uids_of_users(claim).any(|uid| uid == user);
    let own = &pod["metadata"]["uid"];
    match group_of_claim(server, key, pod, name) {
        None if !uses(own) => return Some("is not reserved for the pod".to_owned()),
        Some(group) if !uses(&group) => return Some("is not reserved for the group".to_owned()),
        Some(_) if uses(own) => {
            return Some("is reserved for a pod and not only its group".to_owned());
        }
        None | Some(_) => {}
    }
    if extended_claim_of(pod) == Some(name)
        && owner_of(claim).is_none_or(|owner| owner["uid"] != *own)
    {
        return Some("belongs to another pod".to_owned());
    }
    // A pool is named after its node.
    let mut results = results_of(claim);
    let elsewhere = results.find(|result| result["pool"] != pod["spec"]["nodeName"])?;
    Some(format!("has {}/{}", elsewhere["pool"], elsewhere["device"]))
}

/// Whether the node of a bound pod advertises the extended resource; `None` if the node is gone.
fn is_advertised(server: &Server, pod: &Value) -> Option<bool> {
    let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
    let node = server.get(NODES, &(String::new(), node.to_owned()))?;
    Some(node["status"]["allocatable"][RESOURCE].is_string())
}

/// The uid of the group of a pod, if the claim of this name is one of the group.
fn group_of_claim(server: &Server, key: &Key, pod: &Value, claim: &str) -> Option<Value> {
    let name = pod["spec"]["schedulingGroup"]["podGroupName"].as_str()?;
    let group = server.get(KUBERNETES_GROUPS, &(key.0.clone(), name.to_owned()))?;
    let mut entries = group["spec"]["resourceClaims"].as_array().into_iter().flatten();
    let is_of_group = entries.any(|entry| entry["resourceClaimName"] == *claim);
    is_of_group.then(|| group["metadata"]["uid"].clone())
}

/// What is wrong after a claim has changed, or was created or deleted, except for [`shared_device`].
pub(crate) fn problem_of_change(
    server: &Server,
    key: &Key,
    is_deallocated: bool,
) -> Option<String> {
    second_claim(server, key).or_else(|| is_deallocated.then(|| bound_user(server, key)).flatten())
}

/// A device that two claims have, unless it is one of these, with what is wrong.
pub(crate) fn shared_device(
    server: &Server,
    excused: &BTreeSet<String>,
) -> Option<(String, String)> {
    let mut holders: BTreeMap<String, &Key> = BTreeMap::new();
    let mut claims = server.all(RESOURCE_CLAIMS);
    claims.find_map(|(key, claim)| {
        let mut results = results_of(claim);
        results.find_map(|result| {
            let device = format!("{}/{}", result["pool"], result["device"]);
            let other = holders.insert(device.clone(), key)?;
            let problem = format!("{device} is given to {other:?} and to {key:?}");
            (!excused.contains(&device)).then_some((device, problem))
        })
    })
}

/// Whether there is another claim that was made for the same pod.
fn second_claim(server: &Server, key: &Key) -> Option<String> {
    let claim = server.get(RESOURCE_CLAIMS, key).filter(|claim| is_extended(claim))?;
    let owner = owner_of(claim)?;
    let is_other = |(other, claim): &(&Key, &Value)| {
        *other != key
            && is_extended(claim)
            && owner_of(claim).is_some_and(|other| other["uid"] == owner["uid"])
    };
    let mut claims = server.all(RESOURCE_CLAIMS).map(|(key, claim)| (key, &**claim));
    let (other, _) = claims.find(is_other)?;
    Some(format!("claims {} and {} were made for one pod", key.1, other.1))
}

/// A bound pod that uses a claim which has just lost its devices.
fn bound_user(server: &Server, key: &Key) -> Option<String> {
    let uses = |(of_pod, pod): &(&Key, &Value)| {
        of_pod.0 == key.0
            && pod["spec"]["nodeName"].is_string()
            && !is_done(pod)
            && claims_of(pod).any(|name| name == key.1)
    };
    let mut pods = server.all(PODS).map(|(key, pod)| (key, &**pod));
    let (pod, _) = pods.find(uses)?;
    Some(format!("claim {} is deallocated, and pod {} uses it", key.1, pod.1))
}

/// A claim that the scheduler has made and that the pod it was made for does not use.
pub(crate) fn unused_claim(server: &Server) -> Option<String> {
    let mut claims = server.all(RESOURCE_CLAIMS).filter(|(_, claim)| is_extended(claim));
    claims.find_map(|(key, claim)| {
        let owner = owner_of(claim)?;
        let pod = server.get(PODS, &(key.0.clone(), owner["name"].as_str()?.to_owned()));
        let uses = |pod: &&Value| {
            pod["metadata"]["uid"] == owner["uid"]
                && pod["spec"]["nodeName"].is_string()
                && extended_claim_of(pod) == Some(&key.1)
                && uids_of_users(claim).any(|uid| *uid == owner["uid"])
                && is_advertised(server, pod) != Some(true)
        };
        let is_used = pod.map(|pod| &**pod).is_some_and(|pod| uses(&pod));
        (!is_used).then(|| format!("claim {}/{} is left behind by {}", key.0, key.1, owner["name"]))
    })
}

/// A claim whose devices are on a node that is gone, although a pod waits for it that another node has room for, and
/// no other pod uses it.
pub(crate) fn useless_claim(server: &Server) -> Option<String> {
    let is_there = |node: &str| server.get(NODES, &(String::new(), node.to_owned())).is_some();
    let is_gone = |result: &Value| !result["pool"].as_str().is_some_and(is_there);
    let mut claims = server.all(RESOURCE_CLAIMS);
    claims.find_map(|(key, claim)| {
        let mut users = server.all(PODS).filter(|(of_pod, pod)| {
            of_pod.0 == key.0 && !is_done(pod) && claims_of(pod).any(|name| name == key.1)
        });
        let (pod_key, pod) = users.next()?;
        // A PodGroup keeps its devices until it is deleted.
        let is_kept = is_deleted(claim) || group_of_claim(server, pod_key, pod, &key.1).is_some();
        let waits = users.next().is_none() && pod["spec"]["nodeName"].is_null() && !is_kept;
        let is_useless = waits && results_of(claim).any(is_gone) && has_room(server, pod);
        is_useless.then(|| format!("claim {} keeps pod {} from starting", key.1, pod_key.1))
    })
}

/// Whether a node takes new pods and has what a pod requests of CPU. While room is reserved for a large job, it is not
/// known here which node that is on.
fn has_room(server: &Server, pod: &Value) -> bool {
    let mut reserved = server.all(QUEUES).map(|(_, queue)| &queue["status"]["reserved"]);
    if reserved.any(|amounts| amounts.as_object().is_some_and(|amounts| !amounts.is_empty())) {
        return false;
    }
    server.all(NODES).any(|(key, node)| {
        let is_cordoned = node["spec"]["unschedulable"] == true;
        let fits = |resource: &str| {
            let used = used(server, &key.1, resource) + requested(pod, resource);
            used <= number(&node["status"]["allocatable"][resource])
        };
        !is_cordoned && fits("cpu") && fits("pods")
    })
}
