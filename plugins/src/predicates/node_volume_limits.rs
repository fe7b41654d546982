//! Which CSI drivers a node has, and how many volumes of a driver it can attach.
//!
//! A pod whose claims need a driver with `preventPodSchedulingIfMissing` goes only to nodes whose
//! CSINode lists the driver.
//!
//! The distinct volumes that the claims of the pods on the node use count, and those that a new pod
//! would add. A claim that is not bound yet counts for the provisioner of its class. A node without
//! a limit for a driver attaches any number.
//!
//! Source: Kubernetes 1.37, `plugins/nodevolumelimits/csi.go`, with the gate VolumeLimitScaling, which
//! is on by default since 1.37. VolumeAttachments are not watched, so
//! volumes that are attached without being used by a pod do not count.

use std::collections::BTreeMap;

use kube_batch_framework::plugin::{Dependencies, Dependency};
use kube_batch_model::{
    cluster::Storage,
    column::{Column, NodeIdx, Ordinal},
    facts::class::ClaimRef,
    name::{Name, ObjectKey},
    reason::Unfit,
};

use super::{
    arguments::PredicatesArguments,
    filter::{Filter, Query},
};
use crate::{
    compiled::Opening,
    constraint_classes::ConstraintClassIdx,
    pod_count::{Placed, PodCount},
};

kube_batch_model::row_type! {
    /// Row of a volume driver for which some node has a limit.
    pub(crate) Driver,
    /// Row of a volume of such a driver.
    pub(crate) VolumeIdx,
}

/// One volume, whichever claim it is bound to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Handle {
    /// The driver's own name for it.
    Volume(Name),
    /// The claim for which it will be created.
    Claim(ObjectKey),
}

#[derive(Debug)]
struct NodeVolumeLimits {
    required: RequiredDrivers,
    driver: Column<VolumeIdx, Driver>,
    needs: Column<ConstraintClassIdx, Vec<VolumeIdx>>,
    limits: Column<NodeIdx, Vec<(Driver, i64)>>,
    users: Column<NodeIdx, BTreeMap<VolumeIdx, PodCount>>,
}

/// The drivers that must be on the nodes of the pods that need them, each by its position among the
/// CSIDrivers of the cluster.
#[derive(Debug)]
struct RequiredDrivers {
    /// Ascending.
    of_class: Column<ConstraintClassIdx, Vec<u32>>,
    /// Those that each node has, ascending.
    of_node: Column<NodeIdx, Vec<u32>>,
}

impl RequiredDrivers {
    fn new(opening: Opening<'_>) -> Self {
        let storage = &opening.cluster.storage;
        let required = (0..).zip(storage.csi_drivers.values());
        let required = required.filter(|(_, driver)| driver.is_required);
        let positions: BTreeMap<&Name, u32> =
            required.map(|(at, driver)| (&driver.name, at)).collect();
        let mut of_class = opening.by_class(Vec::new());
        let mut of_node = Column::filled(Vec::new(), opening.cluster.nodes.facts.len());
        if positions.is_empty() {
            return Self { of_class, of_node };
        }
        for class in opening.classes().to_place() {
            let claims = opening.template(class).claims.iter();
            let drivers = claims.filter_map(|claim| volume(storage, claim));
            let mut needed: Vec<u32> =
                drivers.filter_map(|(driver, _)| positions.get(driver).copied()).collect();
            needed.sort_unstable();
            needed.dedup();
            of_class[class] = needed;
        }
        for (node, facts) in opening.cluster.nodes.facts.iter() {
            let csi_node = storage.csi_nodes.get(&facts.name);
            let drivers = csi_node.into_iter().flat_map(|csi_node| &csi_node.drivers);
            // In the order of names, and so of positions.
            of_node[node] = drivers.filter_map(|name| positions.get(name).copied()).collect();
        }
        Self { of_class, of_node }
    }

    fn check(&self, class: ConstraintClassIdx, node: NodeIdx) -> Result<(), Unfit> {
        let on_node = &self.of_node[node];
        let mut needed = self.of_class[class].iter();
        let missing = needed.find(|driver| on_node.binary_search(driver).is_err());
        missing.map_or(Ok(()), |driver| Err(Unfit::CsiDriverMissing(*driver)))
    }
}

pub(super) fn build(opening: Opening<'_>, _: &PredicatesArguments) -> Box<dyn Filter> {
    let cluster = opening.cluster;
    let n_nodes = cluster.nodes.facts.len();
    let mut built = NodeVolumeLimits {
        required: RequiredDrivers::new(opening),
        driver: Column::new(),
        needs: opening.by_class(Vec::new()),
        limits: Column::filled(Vec::new(), n_nodes),
        users: Column::filled(BTreeMap::new(), n_nodes),
    };
    let mut to_place = opening.classes().to_place();
    if to_place.any(|class| !opening.template(class).claims.is_empty()) {
        let mut drivers = BTreeMap::<&Name, Driver>::new();
        for (node, facts) in cluster.nodes.facts.iter() {
            let csi_node = cluster.storage.csi_nodes.get(&facts.name);
            let limits = csi_node.into_iter().flat_map(|csi_node| &csi_node.limits);
            let limits = limits.map(|(name, limit)| {
                let next = Driver::new(drivers.len());
                (*drivers.entry(name).or_insert(next), *limit)
            });
            built.limits[node] = limits.collect();
        }
        if !drivers.is_empty() {
            built.collect_needs(opening, &drivers);
        }
    }
    Box::new(built)
}

impl NodeVolumeLimits {
    fn collect_needs(&mut self, opening: Opening<'_>, drivers: &BTreeMap<&Name, Driver>) {
        let mut rows = BTreeMap::<(Driver, Handle), VolumeIdx>::new();
        for class in opening.classes().present() {
            let claims = &opening.template(class).claims;
            let volumes = claims.iter().filter_map(|claim| volume(&opening.cluster.storage, claim));
            let mut needs: Vec<VolumeIdx> = volumes
                .filter_map(|(driver, handle)| {
                    let driver = *drivers.get(driver)?;
                    let row = rows.entry((driver, handle));
                    Some(*row.or_insert_with(|| self.driver.push(driver)))
                })
                .collect();
            needs.sort_unstable();
            needs.dedup();
            self.needs[class] = needs;
        }
    }
}

/// Driver and handle of a claim's volume; `None` if the driver is not known.
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

impl Filter for NodeVolumeLimits {
    fn dependencies(&self, class: ConstraintClassIdx) -> Dependencies {
        Dependencies::NONE
            .with_if(Dependency::Class, !self.required.of_class[class].is_empty())
            .with_if(Dependency::Node, !self.needs[class].is_empty())
    }

    fn check(&self, query: Query) -> Result<(), Unfit> {
        if query.dependency == Dependency::Class {
            return self.required.check(query.class, query.node);
        }
        let users = &self.users[query.node];
        let is_attached = |volume: &VolumeIdx| {
            users.get(volume).is_some_and(|count| count.of(query.capacity) > 0)
        };
        let is_within = |(driver, limit): &(Driver, i64)| {
            let is_own = |volume: &&VolumeIdx| self.driver[**volume] == *driver;
            let needed = self.needs[query.class].iter().filter(is_own);
            let n_new = needed.filter(|volume| !is_attached(volume)).count();
            let n_attached = || users.keys().filter(is_own).filter(|v| is_attached(v)).count();
            n_new == 0 || i64::try_from(n_new + n_attached()).is_ok_and(|n_all| n_all <= *limit)
        };
        let fits = self.limits[query.node].iter().all(is_within);
        if fits { Ok(()) } else { Err(Unfit::MaxVolumeCount) }
    }

    fn on_placement(&mut self, placed: &Placed) {
        for volume in &self.needs[placed.constraint_class] {
            for (node, change) in placed.counts() {
                let count = self.users[node].entry(*volume).or_default();
                count.apply(change);
                if count.is_zero() {
                    self.users[node].remove(volume);
                }
            }
        }
    }
}
