//! The claims of a pod for volumes, looked up before any node is considered.
//!
//! Source: Kubernetes 1.36, the PreFilters of `plugins/volumerestrictions`, `plugins/volumebinding`
//! and `plugins/volumezone`, in this order: of several messages, the first is reported.

use std::{collections::BTreeSet, sync::Arc};

use kube_batch_model::{
    cluster::{Cluster, Storage},
    column::Column,
    facts::{
        class::ClaimRef,
        pod::TaskFacts,
        storage::{ClaimFacts, VolumeFacts},
    },
    name::Name,
};

use crate::constraint_classes::{ConstraintClassIdx, ConstraintClasses};

/// The claims of a pod.
#[derive(Debug, Default)]
pub(crate) struct ResolvedClaims {
    /// Bound claims.
    pub(crate) bound: Vec<BoundClaim>,
    /// Claims that are bound when a pod is placed, because their class waits for the first consumer.
    pub(crate) unbound: Vec<Arc<ClaimFacts>>,
}

/// A claim that has its volume.
#[derive(Debug)]
pub(crate) struct BoundClaim {
    /// Whether it was made for the pod.
    pub(crate) is_ephemeral: bool,
    /// `None` if the volume does not exist.
    pub(crate) volume: Option<Arc<VolumeFacts>>,
}

/// The most claims of a pod that are not bound: for each, a volume is chosen on every node that is tried.
// Parity: see docs/parity.md#j11-the-largest-pod.
const MAX_UNBOUND: usize = 100;

/// The claims of every constraint class with tasks to place, or why no node is eligible, as Kubernetes puts it.
pub(crate) type ClaimsOfClasses = Column<ConstraintClassIdx, Result<ResolvedClaims, Name>>;

/// Looks up the claims of every constraint class with tasks to place.
pub(crate) fn claims_of_classes(cluster: &Cluster, classes: &ConstraintClasses) -> ClaimsOfClasses {
    let claims_of = |class| {
        if !classes.is_to_place(class) {
            return Ok(ResolvedClaims::default());
        }
        let task = &cluster.tasks.facts[classes.first_task(class)];
        resolve(&cluster.storage, &classes.template(cluster, class).claims, task)
    };
    classes.rows().map(claims_of).collect()
}

/// Looks up the claims of a constraint class, of which `task` is the first task.
///
/// # Errors
///
/// Why no node is eligible, as Kubernetes puts it.
fn resolve(
    storage: &Storage,
    claims: &[ClaimRef],
    task: &TaskFacts,
) -> Result<ResolvedClaims, Name> {
    let found: Vec<Option<&Arc<ClaimFacts>>> =
        claims.iter().map(|claim| storage.claims.get(&claim.claim)).collect();
    let mut missing_claims = claims.iter().zip(&found).filter(|(_, found)| found.is_none());
    if let Some((claim, _)) = missing_claims.find(|(claim, _)| claim.ephemeral.is_none()) {
        return Err(missing(claim));
    }
    let mut facts = Vec::with_capacity(claims.len());
    for (claim, found) in claims.iter().zip(found) {
        let found = found.ok_or_else(|| missing(claim))?;
        check_usable(found, claim, task)?;
        facts.push((claim, found));
    }
    let mut resolved = ResolvedClaims::default();
    let mut unbound = BTreeSet::new();
    let mut has_unbound_immediate = false;
    let mut without_volume = None;
    for (claim, found) in facts {
        if let Some(name) = found.volume.as_ref().filter(|_| found.bind_completed) {
            let volume = storage.volumes.get(name).cloned();
            let is_ephemeral = claim.ephemeral.is_some();
            if volume.is_none() && !is_ephemeral {
                without_volume.get_or_insert(name);
            }
            resolved.bound.push(BoundClaim { is_ephemeral, volume });
        } else if found.volume.is_none() && waits_for_consumer(storage, found)? {
            if unbound.insert(&found.key) {
                resolved.unbound.push(Arc::clone(found));
            }
        } else {
            has_unbound_immediate = true;
        }
    }
    if has_unbound_immediate {
        return Err(Name::from("pod has unbound immediate PersistentVolumeClaims"));
    }
    // VolumeZone requires the volume of every bound claim to exist, except of ephemeral volumes.
    if let Some(volume) = without_volume {
        return Err(Name::from(format!("persistentvolume \"{volume}\" not found")));
    }
    let n_unbound = resolved.unbound.len();
    if n_unbound > MAX_UNBOUND {
        return Err(Name::from(format!(
            "the pod has {n_unbound} volume claims that are not bound, kube-batch reads at most {MAX_UNBOUND}"
        )));
    }
    Ok(resolved)
}

fn missing(claim: &ClaimRef) -> Name {
    let name = &claim.claim.name;
    Name::from(match &claim.ephemeral {
        None => format!("persistentvolumeclaim \"{name}\" not found"),
        Some(_) => format!(
            "waiting for ephemeral volume controller to create the persistentvolumeclaim \
             \"{name}\""
        ),
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
