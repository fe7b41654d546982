//! Claims for devices: the rules about them, and what the claim controller, the garbage collector and the drivers do.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::{
    changes::RESOURCE,
    server::{KUBERNETES_GROUPS, Key, NODES, PODS, RESOURCE_CLAIMS, Server, is_deleted},
    world::{Chore, World, number, requested},
};

/// The annotation of claims that the scheduler makes.
const EXTENDED: &str = "resource.kubernetes.io/extended-resource-claim";

/// What is wrong with the claims of a pod that was bound.
pub(crate) fn problem_of_binding(server: &Server, key: &Key, pod: &Value) -> Option<String> {
    if needs_extended_claim(server, pod) && extended_claim_of(pod).is_none() {
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

/// Whether a bound pod gets its extended resource from a claim, because its node does not advertise it.
fn needs_extended_claim(server: &Server, pod: &Value) -> bool {
    let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
    let node = server.get(NODES, &(String::new(), node.to_owned()));
    requested(pod, RESOURCE) > 0
        && node.is_some_and(|node| !node["status"]["allocatable"][RESOURCE].is_string())
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

/// The uid of the group of a pod, if the claim of this name is one of the group.
fn group_of_claim(server: &Server, key: &Key, pod: &Value, claim: &str) -> Option<Value> {
    let name = pod["spec"]["schedulingGroup"]["podGroupName"].as_str()?;
    let group = server.get(KUBERNETES_GROUPS, &(key.0.clone(), name.to_owned()))?;
    let mut entries = group["spec"]["resourceClaims"].as_array().into_iter().flatten();
    let is_of_group = entries.any(|entry| entry["resourceClaimName"] == *claim);
    is_of_group.then(|| group["metadata"]["uid"].clone())
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

fn is_done(pod: &Value) -> bool {
    matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
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
                && needs_extended_claim(server, pod)
        };
        let is_used = pod.map(|pod| &**pod).is_some_and(|pod| uses(&pod));
        (!is_used).then(|| format!("claim {}/{} is left behind by {}", key.0, key.1, owner["name"]))
    })
}

/// A claim whose devices are on a node that is gone, although a pod waits for it that another node has room for, and
/// no other pod uses it.
pub(crate) fn useless_claim(world: &World) -> Option<String> {
    let server = &world.server;
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
        let is_useless = waits && results_of(claim).any(is_gone) && world.has_room(pod);
        is_useless.then(|| format!("claim {} keeps pod {} from starting", key.1, pod_key.1))
    })
}

impl World {
    /// Whether a node takes new pods and has what a pod requests of CPU.
    fn has_room(&self, pod: &Value) -> bool {
        self.server.all(NODES).any(|(key, node)| {
            let is_cordoned = node["spec"]["unschedulable"] == true;
            let fits = |resource: &str| {
                let used = self.used(&key.1, resource) + requested(pod, resource);
                used <= number(&node["status"]["allocatable"][resource])
            };
            !is_cordoned && fits("cpu") && fits("pods")
        })
    }

    /// A process has changed a claim, or created or deleted it.
    pub(crate) fn claim_has_changed(&mut self, key: &Key, before: Option<&Value>) {
        let has_devices = |claim: &Value| claim["status"]["allocation"].is_object();
        let after = self.server.get(RESOURCE_CLAIMS, key);
        let is_deallocated =
            before.is_some_and(has_devices) && !after.is_some_and(|claim| has_devices(claim));
        self.counts.n_claims += u64::from(before.is_none());
        self.counts.n_deallocations += u64::from(is_deallocated);
        let problem = self
            .shared_device()
            .or_else(|| self.second_claim(key))
            .or_else(|| is_deallocated.then(|| self.bound_user(key)).flatten());
        if let Some(problem) = problem {
            self.break_rule(problem);
        }
        let claim = self.server.get(RESOURCE_CLAIMS, key);
        if claim.is_some_and(|claim| waits_for_driver(claim)) {
            self.later(100, 8_000, Chore::AttachDevices(key.clone()));
        }
        self.review_later(key);
    }

    /// A device that two claims have.
    fn shared_device(&self) -> Option<String> {
        let mut holders: BTreeMap<String, &Key> = BTreeMap::new();
        let mut claims = self.server.all(RESOURCE_CLAIMS);
        claims.find_map(|(key, claim)| {
            let mut results = results_of(claim);
            results.find_map(|result| {
                let device = format!("{}/{}", result["pool"], result["device"]);
                let other = holders.insert(device.clone(), key)?;
                Some(format!("{device} is given to {other:?} and to {key:?}"))
            })
        })
    }

    /// Whether there is another claim that was made for the same pod.
    fn second_claim(&self, key: &Key) -> Option<String> {
        let claim = self.server.get(RESOURCE_CLAIMS, key).filter(|claim| is_extended(claim))?;
        let owner = owner_of(claim)?;
        let is_other = |(other, claim): &(&Key, &Value)| {
            *other != key
                && is_extended(claim)
                && owner_of(claim).is_some_and(|other| other["uid"] == owner["uid"])
        };
        let mut claims = self.server.all(RESOURCE_CLAIMS).map(|(key, claim)| (key, &**claim));
        let (other, _) = claims.find(is_other)?;
        Some(format!("claims {} and {} were made for one pod", key.1, other.1))
    }

    /// A bound pod that uses a claim which has just lost its devices.
    fn bound_user(&self, key: &Key) -> Option<String> {
        let uses = |(of_pod, pod): &(&Key, &Value)| {
            of_pod.0 == key.0
                && pod["spec"]["nodeName"].is_string()
                && !is_done(pod)
                && claims_of(pod).any(|name| name == key.1)
        };
        let mut pods = self.server.all(PODS).map(|(key, pod)| (key, &**pod));
        let (pod, _) = pods.find(uses)?;
        Some(format!("claim {} is deallocated, and pod {} uses it", key.1, pod.1))
    }

    /// Lets the claim controller look at a claim later, and again while anyone uses it.
    pub(crate) fn review_later(&mut self, key: &Key) {
        if self.reviews.insert(key.clone()) {
            self.later(1_000, 10_000, Chore::ReviewClaim(key.clone()));
        }
    }

    /// Removes users of a claim that are gone or done; with the last one its devices are free. A claim that was made
    /// for a pod goes with it.
    pub(crate) fn review_claim(&mut self, key: &Key) {
        self.reviews.remove(key);
        let Some(claim) = self.server.get(RESOURCE_CLAIMS, key).cloned() else { return };
        let owner = owner_of(&claim);
        if owner.is_some_and(|owner| !self.is_active(&key.0, owner)) && !is_deleted(&claim) {
            self.log(&format!("claim {}/{} has no owner", key.0, key.1));
            self.server.delete_object(RESOURCE_CLAIMS, key);
        }
        let Some(claim) = self.server.get(RESOURCE_CLAIMS, key).cloned() else { return };
        let users = claim["status"]["reservedFor"].as_array().cloned().unwrap_or_default();
        let left: Vec<Value> =
            users.iter().filter(|user| self.is_active(&key.0, user)).cloned().collect();
        if left.is_empty() && (!users.is_empty() || is_deleted(&claim)) {
            self.log(&format!("claim {}/{} has no users", key.0, key.1));
            let change = |claim: &mut Value| claim["status"] = json!({});
            self.server.change_object(RESOURCE_CLAIMS, key, change);
            let change = |claim: &mut Value| claim["metadata"]["finalizers"] = json!([]);
            self.server.change_object(RESOURCE_CLAIMS, key, change);
        } else if left.len() < users.len() {
            self.log(&format!("claim {}/{} has {} users", key.0, key.1, left.len()));
            let change = |claim: &mut Value| claim["status"]["reservedFor"] = json!(left);
            self.server.change_object(RESOURCE_CLAIMS, key, change);
        }
        let is_followed = owner_of(&claim).is_some() || !left.is_empty();
        if is_followed && self.server.get(RESOURCE_CLAIMS, key).is_some() {
            self.review_later(key);
        }
    }

    /// Whether a user or the owner of a claim exists and is not done.
    fn is_active(&self, namespace: &str, user: &Value) -> bool {
        let is_group = user["resource"] == "podgroups";
        let kind = if is_group { KUBERNETES_GROUPS } else { PODS };
        let name = user["name"].as_str().unwrap_or_default().to_owned();
        let object = self.server.get(kind, &(namespace.to_owned(), name));
        object.is_some_and(|object| object["metadata"]["uid"] == user["uid"] && !is_done(object))
    }

    /// The driver reports the devices of a claim as attached. Sometimes it fails, but not in the calm time.
    pub(crate) fn attach_devices(&mut self, key: &Key) {
        let claim = self.server.get(RESOURCE_CLAIMS, key).cloned();
        let Some(claim) = claim.filter(|claim| waits_for_driver(claim)) else { return };
        let fails = self.calm_since.is_none() && self.rng.u32(0..4) == 0;
        let condition = if fails { "AttachFailed" } else { "Attached" };
        self.log(&format!("devices of claim {}/{}: {condition}", key.0, key.1));
        let device = |result: &Value| {
            json!({
                "driver": result["driver"], "pool": result["pool"], "device": result["device"],
                "conditions": [{
                    "type": condition, "status": "True", "reason": "Done", "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }],
            })
        };
        let devices: Vec<Value> = results_of(&claim).map(device).collect();
        self.server.change_object(RESOURCE_CLAIMS, key, |claim| {
            claim["status"]["devices"] = json!(devices);
        });
    }
}

/// Whether devices of a claim are not attached yet that have to be.
fn waits_for_driver(claim: &Value) -> bool {
    let is_reported = claim["status"]["devices"].as_array().is_some_and(|all| !all.is_empty());
    !is_reported && results_of(claim).any(|result| result["bindingConditions"].is_array())
}
