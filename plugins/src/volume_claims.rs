//! The claims of a pod, looked up before any node is considered.
//!
//! Source: Kubernetes 1.36, the PreFilters of `plugins/volumerestrictions`, `plugins/volumebinding`
//! and `plugins/volumezone`, in this order: of several messages, the first is reported.

use std::collections::BTreeSet;

use kube_batch_api::{
    cluster::Storage,
    facts::{
        class::ClaimRef,
        pod::TaskFacts,
        storage::{ClaimFacts, VolumeFacts},
    },
    name::Name,
};

/// The claims of a pod.
#[derive(Debug, Default)]
pub(crate) struct ResolvedClaims<'a> {
    /// Bound claims and their volumes; `None` if the volume does not exist.
    pub(crate) bound: Vec<(&'a ClaimRef, Option<&'a VolumeFacts>)>,
    /// Claims that are bound when a pod is placed, because their class waits for the first consumer.
    pub(crate) unbound: Vec<&'a ClaimFacts>,
}

/// The most claims of a pod that are not bound: for each, a volume is chosen on every node that is tried.
// Parity: see docs/parity.md#j11-the-largest-pod.
const MAX_UNBOUND: usize = 100;

/// Looks up the claims of a constraint class, of which `task` is the first task.
///
/// # Errors
///
/// Why no node is eligible, as Kubernetes puts it.
pub(crate) fn resolve<'a>(
    storage: &'a Storage,
    claims: &'a [ClaimRef],
    task: &TaskFacts,
) -> Result<ResolvedClaims<'a>, Name> {
    let mut facts = Vec::with_capacity(claims.len());
    for claim in claims.iter().filter(|claim| claim.ephemeral.is_none()) {
        find(storage, claim)?;
    }
    for claim in claims {
        let found = find(storage, claim)?;
        check_usable(found, claim, task)?;
        facts.push((claim, found));
    }
    let mut resolved = ResolvedClaims::default();
    let mut unbound = BTreeSet::new();
    let mut has_unbound_immediate = false;
    for (claim, found) in facts {
        if let Some(volume) = found.volume.as_ref().filter(|_| found.bind_completed) {
            resolved.bound.push((claim, storage.volumes.get(volume).map(|volume| &**volume)));
        } else if found.volume.is_none() && waits_for_consumer(storage, found)? {
            if unbound.insert(&found.key) {
                resolved.unbound.push(found);
            }
        } else {
            has_unbound_immediate = true;
        }
    }
    if has_unbound_immediate {
        return Err(Name::from("pod has unbound immediate PersistentVolumeClaims"));
    }
    check_volumes_exist(&resolved, storage)?;
    let n_unbound = resolved.unbound.len();
    if n_unbound > MAX_UNBOUND {
        return Err(Name::from(format!(
            "the pod has {n_unbound} volume claims that are not bound, kube-batch reads at most {MAX_UNBOUND}"
        )));
    }
    Ok(resolved)
}

fn find<'a>(storage: &'a Storage, claim: &ClaimRef) -> Result<&'a ClaimFacts, Name> {
    storage.claims.get(&claim.claim).map(|found| &**found).ok_or_else(|| {
        let name = &claim.claim.name;
        Name::from(match &claim.ephemeral {
            None => format!("persistentvolumeclaim \"{name}\" not found"),
            Some(_) => format!(
                "waiting for ephemeral volume controller to create the persistentvolumeclaim \
                 \"{name}\""
            ),
        })
    })
}

fn check_usable(found: &ClaimFacts, claim: &ClaimRef, task: &TaskFacts) -> Result<(), Name> {
    let name = &found.key.name;
    if found.lost {
        let volume = found.volume.as_deref().unwrap_or_default();
        return Err(Name::from(format!(
            "persistentvolumeclaim \"{name}\" bound to non-existent persistentvolume \"{volume}\""
        )));
    }
    if found.deleting {
        return Err(Name::from(format!("persistentvolumeclaim \"{name}\" is being deleted")));
    }
    let is_owned = || found.controller.as_ref().is_some_and(|owner| owner.uid == task.uid);
    if claim.ephemeral.is_some() && !is_owned() {
        return Err(Name::from(format!(
            "PVC {} was not created for pod {} (pod is not owner)",
            found.key, task.key
        )));
    }
    Ok(())
}

/// Whether an unbound claim is bound when a pod that uses it is placed. A claim without a class, or
/// with a class that does not exist, should have been bound already.
fn waits_for_consumer(storage: &Storage, claim: &ClaimFacts) -> Result<bool, Name> {
    let class = claim.class.as_ref().and_then(|class| storage.classes.get(class));
    let Some(class) = class else { return Ok(false) };
    class.waits_for_consumer.ok_or_else(|| {
        Name::from(format!("VolumeBindingMode not set for StorageClass \"{}\"", class.name))
    })
}

/// VolumeZone requires the volume of every bound claim to exist, except of ephemeral volumes.
fn check_volumes_exist(resolved: &ResolvedClaims<'_>, storage: &Storage) -> Result<(), Name> {
    let mut missing = resolved.bound.iter().filter(|(_, volume)| volume.is_none());
    let Some((claim, _)) = missing.find(|(claim, _)| claim.ephemeral.is_none()) else {
        return Ok(());
    };
    let volume = storage.claims.get(&claim.claim).and_then(|found| found.volume.clone());
    let volume = volume.unwrap_or_default();
    Err(Name::from(format!("persistentvolume \"{volume}\" not found")))
}
