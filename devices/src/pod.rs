//! The claims of a pod: whether they are all there, and whether those that are allocated allow a node.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use kube_batch_model::{
    facts::device::claim::{Allocation, ClaimEntry, ClaimSource, ResourceClaimFacts},
    name::{Name, ObjectKey},
};

/// The claim of each entry, each claim once, in the order of the entries.
///
/// A claim that was made from a template must be controlled by one of `owners`: the uid of the pod, and that of
/// its PodGroup, which can have claims too. `find` finds a claim by name, in the namespace of the pod.
///
/// # Errors
///
/// Why the pod fits on no node, in the words of Kubernetes.
pub fn resolve<'a>(
    (pod, owners): (&ObjectKey, &[&Name]),
    entries: &[ClaimEntry],
    find: impl Fn(&Name) -> Option<&'a Arc<ResourceClaimFacts>>,
) -> Result<Vec<&'a Arc<ResourceClaimFacts>>, String> {
    let mut claims: Vec<&Arc<ResourceClaimFacts>> = Vec::new();
    for ClaimEntry { name: entry, source } in entries {
        let (name, is_generated) = match source {
            ClaimSource::Named(name) => (name, false),
            ClaimSource::Generated { claim, .. } => (claim, true),
            ClaimSource::NotNeeded => continue,
            ClaimSource::NotCreated(_) => {
                return Err(format!("pod \"{pod}\": ResourceClaim not created yet"));
            }
            ClaimSource::Unknown => {
                return Err(format!(
                    "pod \"{pod}\", spec.resourceClaim \"{entry}\": none of the supported fields are set"
                ));
            }
        };
        let Some(claim) = find(name) else {
            return Err(format!("could not find resource claim \"{}/{name}\"", pod.namespace));
        };
        if claim.deleting {
            return Err(format!("resourceclaim \"{name}\" is being deleted"));
        }
        let has_owner = || claim.controller.as_ref().is_some_and(|uid| owners.contains(&uid));
        if is_generated && !has_owner() {
            return Err(format!(
                "ResourceClaim {} was not created for Pod {pod} (Pod is not owner)",
                claim.key
            ));
        }
        // A claim that two entries name is allocated once.
        if !claims.iter().any(|known| known.key == claim.key) {
            claims.push(claim);
        }
    }
    Ok(claims)
}

/// Whether the devices of a claim are ready to be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// They are.
    Ready,
    /// Binding conditions are not true yet.
    Waits,
    /// A binding failed, or has taken too long: the claim has to be deallocated.
    Failed,
}

/// Whether the devices of an allocated claim are ready. `deadline` is the time now, and how long they may take from
/// the allocation on; without it none are late.
pub fn readiness(
    claim: &ResourceClaimFacts,
    allocation: &Allocation,
    deadline: Option<(Timestamp, SignedDuration)>,
) -> Readiness {
    let mut is_ready = true;
    for result in &allocation.results {
        let conditions = claim.conditions.get(&result.id).map_or(&[][..], Vec::as_slice);
        if result.binding_failure_conditions.iter().any(|name| conditions.contains(name)) {
            return Readiness::Failed;
        }
        is_ready &= result.binding_conditions.iter().all(|name| conditions.contains(name));
    }
    let is_late = || {
        allocation.timestamp.zip(deadline).is_some_and(|(made, (now, timeout))| {
            made.saturating_add(timeout).is_ok_and(|end| end < now)
        })
    };
    match is_ready {
        true => Readiness::Ready,
        false if is_late() => Readiness::Failed,
        false => Readiness::Waits,
    }
}
