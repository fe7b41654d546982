//! What tasks hold on their node and others cannot have beside them: host ports and disks.
//!
//! Source: Kubernetes 1.36, `plugins/nodeports` and `volumerestrictions`.

use std::collections::BTreeMap;

use kube_batch_api::{
    cluster::Cluster,
    column::{Column, NodeIdx},
    facts::class::{Disk, HostPort, PodTemplate},
    name::Name,
};
use kube_batch_framework::plugin::Capacity;

use crate::{
    profiles::{Profile, Profiles},
    rows::row_type,
    tally::{Delta, Presence},
};

row_type! {
    /// Row of a thing that can be held.
    Item,
}

/// Who holds what on which node.
#[derive(Debug, Default)]
pub(super) struct Holdings {
    /// What a task of the profile holds on its node.
    held: Column<Profile, Vec<Item>>,
    /// What must not be held on a node for a task of the profile to go there.
    clashes: Column<Profile, Vec<Item>>,
    holders: Column<NodeIdx, BTreeMap<Item, Presence>>,
}

impl Holdings {
    /// Host ports: equal protocol and number, and equal addresses or one that is all addresses.
    pub(super) fn of_ports(cluster: &Cluster, profiles: &Profiles) -> Self {
        Self::new(cluster, profiles, |template| &template.host_ports, ports_clash)
    }

    /// Disks named in the pod.
    pub(super) fn of_disks(cluster: &Cluster, profiles: &Profiles) -> Self {
        Self::new(cluster, profiles, |template| &template.disks, disks_clash)
    }

    fn new<T: Ord>(
        cluster: &Cluster,
        profiles: &Profiles,
        things: fn(&PodTemplate) -> &Vec<T>,
        clash: fn(&T, &T) -> bool,
    ) -> Self {
        let things = |profile| things(profiles.template(cluster, profile)).iter();
        let mut holdings = Self {
            held: Column::filled(Vec::new(), profiles.len()),
            clashes: Column::filled(Vec::new(), profiles.len()),
            holders: Column::filled(BTreeMap::new(), cluster.nodes.facts.len()),
        };
        if profiles.asked().all(|profile| things(profile).next().is_none()) {
            return holdings;
        }
        let mut items = BTreeMap::<&T, Item>::new();
        let mut rows = Column::<Item, &T>::new();
        for profile in profiles.present() {
            let own = things(profile)
                .map(|thing| *items.entry(thing).or_insert_with(|| rows.push(thing)));
            holdings.held[profile] = own.collect();
        }
        for profile in profiles.asked() {
            let clashing =
                rows.iter().filter(|(_, other)| things(profile).any(|own| clash(own, other)));
            holdings.clashes[profile] = clashing.map(|(item, _)| item).collect();
        }
        holdings
    }

    /// Whether the profile can be kept from a node by what is held there.
    pub(super) fn concerns(&self, profile: Profile) -> bool {
        !self.clashes[profile].is_empty()
    }

    /// Whether something is held on the node that a task of the profile cannot have beside it.
    pub(super) fn clashes(&self, profile: Profile, node: NodeIdx, capacity: Capacity) -> bool {
        let holders = &self.holders[node];
        let is_held = |item| holders.get(item).is_some_and(|presence| presence.of(capacity) > 0);
        !holders.is_empty() && self.clashes[profile].iter().any(is_held)
    }

    /// A task of the profile came to a node or left it.
    pub(super) fn moved(&mut self, profile: Profile, node: NodeIdx, delta: Delta) {
        for item in &self.held[profile] {
            let presence = self.holders[node].entry(*item).or_default();
            presence.apply(delta);
            if presence.is_nobody() {
                self.holders[node].remove(item);
            }
        }
    }
}

fn ports_clash(left: &HostPort, right: &HostPort) -> bool {
    let is_every = |address: &Name| **address == *"0.0.0.0";
    left.port == right.port
        && left.protocol == right.protocol
        && (left.address == right.address || is_every(&left.address) || is_every(&right.address))
}

/// The same disk, unless both only read it; an Amazon volume even then.
fn disks_clash(left: &Disk, right: &Disk) -> bool {
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
