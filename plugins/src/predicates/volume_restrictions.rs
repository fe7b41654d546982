//! Disks that only one pod of a node can use, and claims that only one pod of the cluster can use.
//!
//! Two pods cannot use the same disk on one node, unless both only read it; an Amazon volume not
//! even then. A claim of access mode ReadWriteOncePod that a pod uses refuses every node to other
//! pods with that claim.
//!
//! Source: Kubernetes 1.36, `plugins/volumerestrictions`.

use std::{collections::BTreeMap, sync::Arc};

use kube_batch_framework::plugin::{Capacity, Dependencies, Dependency};
use kube_batch_model::{
    column::Column,
    facts::{class::Disk, storage::ClaimFacts},
    name::{Name, ObjectKey},
    reason::Unfit,
};

use super::{
    arguments::PredicatesArguments,
    filter::{Filter, Query},
    node_conflicts::NodeConflicts,
};
use crate::{
    compiled::Opening,
    constraint_classes::ConstraintClassIdx,
    pod_count::{Placed, PodCount},
};

#[derive(Debug)]
struct VolumeRestrictions {
    disks: NodeConflicts,
    rwop_claims: RwopClaims,
}

pub(super) fn build(opening: Opening<'_>, _: &PredicatesArguments) -> Box<dyn Filter> {
    Box::new(VolumeRestrictions {
        disks: NodeConflicts::new(opening, |template| &template.disks, bucket, conflict),
        rwop_claims: RwopClaims::new(opening),
    })
}

fn bucket(disk: &Disk) -> (i32, &Name) {
    match disk {
        Disk::Gce { name, .. } => (0, name),
        Disk::Aws { id } => (1, id),
        Disk::Iscsi { iqn, .. } => (2, iqn),
        Disk::Rbd { image, .. } => (3, image),
    }
}

/// Whether two pods of one node cannot use these disks.
fn conflict(left: &Disk, right: &Disk) -> bool {
    match (left, right) {
        (Disk::Gce { name: l, read_only: l_reads }, Disk::Gce { name: r, read_only: r_reads }) => {
            l == r && !(*l_reads && *r_reads)
        }
        (Disk::Aws { id: l }, Disk::Aws { id: r }) => l == r,
        (
            Disk::Iscsi { iqn: l, read_only: l_reads },
            Disk::Iscsi { iqn: r, read_only: r_reads },
        ) => l == r && !(*l_reads && *r_reads),
        (
            Disk::Rbd { monitors: l, pool: l_pool, image: l_image, read_only: l_reads },
            Disk::Rbd { monitors: r, pool: r_pool, image: r_image, read_only: r_reads },
        ) => {
            let shares_a_monitor = l.iter().any(|monitor| r.contains(monitor));
            (l_pool, l_image) == (r_pool, r_image) && shares_a_monitor && !(*l_reads && *r_reads)
        }
        (Disk::Gce { .. } | Disk::Aws { .. } | Disk::Iscsi { .. } | Disk::Rbd { .. }, _) => false,
    }
}

impl Filter for VolumeRestrictions {
    fn dependencies(&self, class: ConstraintClassIdx) -> Dependencies {
        Dependencies::NONE
            .with_if(Dependency::Node, self.disks.concern(class))
            .with_if(Dependency::Cluster, self.rwop_claims.concern(class))
    }

    fn check(&self, query: Query) -> Result<(), Unfit> {
        match query.dependency {
            Dependency::Class => Ok(()),
            Dependency::Node | Dependency::Domain => {
                let is_used = self.disks.exist(query.class, query.node, query.capacity);
                if is_used { Err(Unfit::DiskConflict) } else { Ok(()) }
            }
            Dependency::Cluster => {
                let is_used = self.rwop_claims.are_used(query.class, query.capacity);
                if is_used { Err(Unfit::ClaimInUse) } else { Ok(()) }
            }
        }
    }

    fn on_placement(&mut self, placed: &Placed) {
        self.disks.on_placement(placed);
        self.rwop_claims.on_placement(placed);
    }
}

kube_batch_model::row_type! {
    /// Row of a claim of access mode ReadWriteOncePod.
    pub(crate) RwopClaim,
}

/// The claims of access mode ReadWriteOncePod, and how many pods use each.
#[derive(Debug)]
struct RwopClaims {
    of_class: Column<ConstraintClassIdx, Vec<RwopClaim>>,
    users: Column<RwopClaim, PodCount>,
}

impl RwopClaims {
    fn new(opening: Opening<'_>) -> Self {
        let is_rwop = |claim: &Arc<ClaimFacts>| {
            claim.access_modes.iter().any(|mode| **mode == *"ReadWriteOncePod")
        };
        let mut users = Column::new();
        let claims = opening.cluster.storage.claims.iter();
        let rows: BTreeMap<&ObjectKey, RwopClaim> = claims
            .filter(|(_, claim)| is_rwop(claim))
            .map(|(key, _)| (key, users.push(PodCount::default())))
            .collect();
        let mut of_class = opening.by_class(Vec::new());
        if !rows.is_empty() {
            for class in opening.classes().present() {
                let claims = opening.template(class).claims.iter();
                let own = claims.filter_map(|claim| rows.get(&claim.claim).copied());
                of_class[class] = own.collect();
            }
        }
        Self { of_class, users }
    }

    fn concern(&self, class: ConstraintClassIdx) -> bool {
        !self.of_class[class].is_empty()
    }

    fn are_used(&self, class: ConstraintClassIdx, capacity: Capacity) -> bool {
        self.of_class[class].iter().any(|claim| self.users[*claim].of(capacity) > 0)
    }

    fn on_placement(&mut self, placed: &Placed) {
        for claim in &self.of_class[placed.constraint_class] {
            for (_, change) in placed.counts() {
                self.users[*claim].apply(change);
            }
        }
    }
}
