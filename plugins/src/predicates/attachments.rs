//! How many volumes of a driver a node can attach.
//!
//! Counted are the distinct volumes of the claims of the pods on the node, and what a new pod would
//! add to them. A claim that is not bound yet counts for the provisioner of its class. A node
//! without a limit for the driver takes any number.
//!
//! Source: Kubernetes 1.36, `plugins/nodevolumelimits/csi.go`. VolumeAttachments of
//! volumes that no pod uses are not watched.

use std::collections::BTreeMap;

use kube_batch_api::{
    cluster::{Cluster, Storage},
    column::{Column, NodeIdx, Ordinal},
    facts::class::ClaimRef,
    name::{Name, ObjectKey},
};
use kube_batch_framework::plugin::Capacity;

use crate::{
    constraint_classes::{ConstraintClassIdx, ConstraintClasses},
    rows::row_type,
    topology_counts::{PodCount, PodCountChange},
};

row_type! {
    /// Row of a volume driver that some node limits.
    Driver,
    /// Row of a volume of such a driver.
    Attached,
}

/// One volume, whoever claims it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Handle {
    /// The driver's own name for it.
    Volume(Name),
    /// It does not exist yet.
    Claim(ObjectKey),
}

/// Attached volumes by node.
#[derive(Debug, Default)]
pub(super) struct Attachments {
    driver: Column<Attached, Driver>,
    needs: Column<ConstraintClassIdx, Vec<Attached>>,
    limits: Column<NodeIdx, Vec<(Driver, i64)>>,
    users: Column<NodeIdx, BTreeMap<Attached, PodCount>>,
}

impl Attachments {
    pub(super) fn new(cluster: &Cluster, classes: &ConstraintClasses) -> Self {
        let n_nodes = cluster.nodes.facts.len();
        let mut attachments = Self {
            needs: Column::filled(Vec::new(), classes.len()),
            users: Column::filled(BTreeMap::new(), n_nodes),
            ..Self::default()
        };
        let claims = |constraint_class| &classes.template(cluster, constraint_class).claims;
        if classes.to_place().all(|constraint_class| claims(constraint_class).is_empty()) {
            attachments.limits = Column::filled(Vec::new(), n_nodes);
            return attachments;
        }
        let mut drivers = BTreeMap::<&Name, Driver>::new();
        for facts in cluster.nodes.facts.values() {
            let csi_node = cluster.storage.csi_nodes.get(&facts.name);
            let limits = csi_node.into_iter().flat_map(|csi_node| &csi_node.limits);
            let limits = limits.map(|(name, limit)| {
                let next = Driver::new(drivers.len());
                (*drivers.entry(name).or_insert(next), *limit)
            });
            let limits = limits.collect();
            attachments.limits.push(limits);
        }
        if !drivers.is_empty() {
            attachments.collect_needs(cluster, classes, &drivers);
        }
        attachments
    }

    fn collect_needs(
        &mut self,
        cluster: &Cluster,
        classes: &ConstraintClasses,
        drivers: &BTreeMap<&Name, Driver>,
    ) {
        let mut rows = BTreeMap::<(Driver, Handle), Attached>::new();
        for constraint_class in classes.present() {
            let claims = &classes.template(cluster, constraint_class).claims;
            let volumes = claims.iter().filter_map(|claim| volume(&cluster.storage, claim));
            let mut needs: Vec<Attached> = volumes
                .filter_map(|(driver, handle)| {
                    let driver = *drivers.get(driver)?;
                    let row = rows.entry((driver, handle));
                    Some(*row.or_insert_with(|| self.driver.push(driver)))
                })
                .collect();
            needs.sort_unstable();
            needs.dedup();
            self.needs[constraint_class] = needs;
        }
    }

    /// Whether a limit can keep the constraint class from a node.
    pub(super) fn concerns(&self, constraint_class: ConstraintClassIdx) -> bool {
        !self.needs[constraint_class].is_empty()
    }

    /// Whether the node can attach what a task of the constraint class needs and is not there already.
    pub(super) fn fit(
        &self,
        constraint_class: ConstraintClassIdx,
        node: NodeIdx,
        capacity: Capacity,
    ) -> bool {
        let users = &self.users[node];
        let is_there =
            |volume: &Attached| users.get(volume).is_some_and(|count| count.of(capacity) > 0);
        self.limits[node].iter().all(|(driver, limit)| {
            let is_own = |volume: &&Attached| self.driver[**volume] == *driver;
            let missing = self.needs[constraint_class].iter().filter(is_own);
            let n_new = missing.filter(|volume| !is_there(volume)).count();
            let n_there = || users.keys().filter(is_own).filter(|volume| is_there(volume)).count();
            n_new == 0 || i64::try_from(n_new + n_there()).is_ok_and(|n_all| n_all <= *limit)
        })
    }

    /// A task of the constraint class came to a node or left it.
    pub(super) fn moved(
        &mut self,
        constraint_class: ConstraintClassIdx,
        node: NodeIdx,
        change: PodCountChange,
    ) {
        for volume in &self.needs[constraint_class] {
            let count = self.users[node].entry(*volume).or_default();
            count.apply(change);
            if count.is_zero() {
                self.users[node].remove(volume);
            }
        }
    }
}

/// Driver and handle of a claim's volume; `None` if no driver is known.
fn volume<'a>(storage: &'a Storage, claim: &ClaimRef) -> Option<(&'a Name, Handle)> {
    let claim = storage.claims.get(&claim.claim)?;
    match claim.volume.as_ref().and_then(|volume| storage.volumes.get(volume)) {
        Some(volume) => {
            volume.csi.as_ref().map(|(driver, handle)| (driver, Handle::Volume(handle.clone())))
        }
        None => {
            let class = storage.classes.get(claim.class.as_ref()?)?;
            Some((&class.provisioner, Handle::Claim(claim.key.clone())))
        }
    }
}
