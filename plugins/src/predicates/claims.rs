//! Volume claims: what can be said of them before any node is looked at, where bound volumes can be
//! reached from, and claims that only one pod may use.
//!
//! Source: Kubernetes 1.36, `plugins/volumebinding` and `pkg/controller/volume`,
//! `plugins/volumezone`, `plugins/volumerestrictions`. Refusals are asked for in the order in which
//! Kubernetes runs these plugins; where two would refuse, the first speaks.

use std::{collections::BTreeMap, sync::Arc};

use kube_batch_api::{
    cluster::{Cluster, Storage},
    column::{Column, NodeIdx},
    facts::{
        class::ClaimRef,
        pod::TaskFacts,
        storage::{ClaimFacts, VolumeFacts},
    },
    name::{Name, ObjectKey},
    reason::Unfit,
};
use kube_batch_framework::plugin::Capacity;

use super::zone::ZoneTest;
use crate::{
    constraint_classes::{ConstraintClassIdx, ConstraintClasses},
    node_labels::NodeLabels,
    node_tests::{AnyOf, Compiler},
    rows::row_type,
    topology_counts::{PodCount, PodCountChange},
};

/// The claims of a pod, as far as they could be looked up.
#[derive(Debug, Default)]
pub(super) struct Resolved<'a> {
    /// Bound claims and their volumes; `None` if the volume does not exist.
    pub(super) bound: Vec<(&'a ClaimRef, Option<&'a VolumeFacts>)>,
    /// Claims that are bound when a pod is placed.
    pub(super) waiting: Vec<&'a ClaimFacts>,
}

/// Looks up the claims of a constraint class, for all of whose tasks `task` stands.
///
/// # Errors
///
/// Why no node will do, in Kubernetes' words.
pub(super) fn resolve<'a>(
    storage: &'a Storage,
    claims: &'a [ClaimRef],
    task: &TaskFacts,
) -> Result<Resolved<'a>, Name> {
    let mut facts = Vec::with_capacity(claims.len());
    for claim in claims.iter().filter(|claim| claim.ephemeral.is_none()) {
        find(storage, claim)?;
    }
    for claim in claims {
        let found = find(storage, claim)?;
        usable(found, claim, task)?;
        facts.push((claim, found));
    }
    let mut resolved = Resolved::default();
    let mut unbound_immediate = false;
    for (claim, found) in facts {
        if let Some(volume) = found.volume.as_ref().filter(|_| found.bind_completed) {
            resolved.bound.push((claim, storage.volumes.get(volume).map(|volume| &**volume)));
        } else if found.volume.is_none() && waits_for_consumer(storage, found)? {
            if !resolved.waiting.iter().any(|other| other.key == found.key) {
                resolved.waiting.push(found);
            }
        } else {
            unbound_immediate = true;
        }
    }
    if unbound_immediate {
        return Err(Name::from("pod has unbound immediate PersistentVolumeClaims"));
    }
    volumes_exist(&resolved, storage)?;
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

fn usable(found: &ClaimFacts, claim: &ClaimRef, task: &TaskFacts) -> Result<(), Name> {
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
/// of one that does not exist, should have been bound already.
fn waits_for_consumer(storage: &Storage, claim: &ClaimFacts) -> Result<bool, Name> {
    let class = claim.class.as_ref().and_then(|class| storage.classes.get(class));
    let Some(class) = class else { return Ok(false) };
    class.waits_for_consumer.ok_or_else(|| {
        Name::from(format!("VolumeBindingMode not set for StorageClass \"{}\"", class.name))
    })
}

/// The zone rule wants to see the volume of every bound claim, those of ephemeral volumes aside.
fn volumes_exist(resolved: &Resolved<'_>, storage: &Storage) -> Result<(), Name> {
    let mut missing = resolved.bound.iter().filter(|(_, volume)| volume.is_none());
    let Some((claim, _)) = missing.find(|(claim, _)| claim.ephemeral.is_none()) else {
        return Ok(());
    };
    let volume = storage.claims.get(&claim.claim).and_then(|found| found.volume.clone());
    let volume = volume.unwrap_or_default();
    Err(Name::from(format!("persistentvolume \"{volume}\" not found")))
}

/// From where the bound volumes of each constraint class can be reached.
#[derive(Debug, Default)]
pub(super) struct BoundVolumes {
    rules: Column<ConstraintClassIdx, Vec<BoundVolume>>,
}

#[derive(Clone, Debug)]
struct BoundVolume {
    affinity: Option<AnyOf>,
    exists: bool,
    zone: Option<ZoneTest>,
}

impl BoundVolumes {
    pub(super) fn new(n_classes: usize) -> Self {
        Self { rules: Column::filled(Vec::new(), n_classes) }
    }

    /// Sets the volumes of a constraint class.
    pub(super) fn add(
        &mut self,
        compiler: &mut Compiler<'_>,
        constraint_class: ConstraintClassIdx,
        resolved: &Resolved<'_>,
    ) {
        for (claim, volume) in &resolved.bound {
            let affinity = volume.and_then(|volume| volume.node_affinity.as_ref());
            // Kubernetes' zone rule does not look at ephemeral volumes.
            let zoned = volume.filter(|_| claim.ephemeral.is_none());
            self.rules[constraint_class].push(BoundVolume {
                affinity: affinity.map(|terms| compiler.any_of(terms)),
                exists: volume.is_some(),
                zone: zoned.and_then(|volume| ZoneTest::new(compiler, &volume.labels)),
            });
        }
    }

    pub(super) fn check(
        &self,
        labels: &NodeLabels,
        constraint_class: ConstraintClassIdx,
        node: NodeIdx,
    ) -> Result<(), Unfit> {
        let volumes = &self.rules[constraint_class];
        let reaches = |volume: &BoundVolume| {
            volume.affinity.as_ref().is_none_or(|any| any.passes(labels, node))
        };
        if !volumes.iter().all(reaches) {
            return Err(Unfit::VolumeAffinity);
        }
        if !volumes.iter().all(|volume| volume.exists) {
            return Err(Unfit::VolumeMissing);
        }
        let mut zones = volumes.iter().filter_map(|volume| volume.zone.as_ref());
        if zones.all(|zone| zone.passes(labels, node)) { Ok(()) } else { Err(Unfit::VolumeZone) }
    }
}

row_type! {
    /// Row of a claim that only one pod may use.
    Sole,
}

/// Who uses the claims of access mode ReadWriteOncePod. One in use keeps its pods from every node.
#[derive(Debug, Default)]
pub(super) struct ClaimsInUse {
    uses: Column<ConstraintClassIdx, Vec<Sole>>,
    users: Column<Sole, PodCount>,
}

impl ClaimsInUse {
    pub(super) fn new(cluster: &Cluster, classes: &ConstraintClasses) -> Self {
        let is_sole = |claim: &Arc<ClaimFacts>| {
            claim.access_modes.iter().any(|mode| **mode == *"ReadWriteOncePod")
        };
        let mut users = Column::new();
        let soles: BTreeMap<&ObjectKey, Sole> = cluster
            .storage
            .claims
            .iter()
            .filter(|(_, claim)| is_sole(claim))
            .map(|(key, _)| (key, users.push(PodCount::default())))
            .collect();
        let mut uses = Column::filled(Vec::new(), classes.len());
        if !soles.is_empty() {
            for constraint_class in classes.present() {
                let claims = classes.template(cluster, constraint_class).claims.iter();
                let own = claims.filter_map(|claim| soles.get(&claim.claim).copied());
                uses[constraint_class] = own.collect();
            }
        }
        Self { uses, users }
    }

    /// Whether the constraint class uses such claims.
    pub(super) fn concerns(&self, constraint_class: ConstraintClassIdx) -> bool {
        !self.uses[constraint_class].is_empty()
    }

    pub(super) fn check(
        &self,
        constraint_class: ConstraintClassIdx,
        capacity: Capacity,
    ) -> Result<(), Unfit> {
        let is_used = |sole: &Sole| self.users[*sole].of(capacity) > 0;
        if self.uses[constraint_class].iter().any(is_used) {
            Err(Unfit::ClaimInUse)
        } else {
            Ok(())
        }
    }

    /// A task of the constraint class came to a node or left it.
    pub(super) fn moved(&mut self, constraint_class: ConstraintClassIdx, change: PodCountChange) {
        for sole in &self.uses[constraint_class] {
            self.users[*sole].apply(change);
        }
    }
}
