//! What tasks request of the physical devices, where classes match whole devices, partitions or shares of them.
//!
//! All tasks with claims for devices of a group of classes are counted in one resource.
// Parity: see docs/parity.md#v8.

use std::collections::BTreeMap;

use kube_batch_devices::{
    capacity::consumed_by_share,
    claims::MAX_DEVICES,
    extended::class_for,
    hardware::WHOLE,
    rows::{DeviceIdx, WantedIdx},
    usage::Held,
    wanted::Match,
};
use kube_batch_model::{
    cluster::Cluster,
    column::{ClassIdx, Dim, TaskIdx},
    devices::{DeviceDemand, counted, devices_of_class, physical_devices_of_class},
    facts::{
        device::{
            claim::{ClaimEntry, ResourceClaimFacts},
            class::implicit_resource,
            request::AllocationMode,
        },
        pod::TaskFacts,
    },
    name::{Name, ObjectKey},
    physical::PhysicalRequests,
    resource::MAX_AMOUNT,
};

use crate::{
    device_groups::{GroupIdx, Groups},
    device_tables::HeldBy,
    session_tables::SessionTables,
};

/// What tasks request of the physical devices; nothing if every device is a whole one of exactly one class.
pub fn physical_requests(cluster: &Cluster) -> PhysicalRequests {
    if cluster.devices.published.classes.is_empty() {
        return PhysicalRequests::default();
    }
    let tables = SessionTables::of(cluster);
    if tables.shared.groups().is_empty() {
        return PhysicalRequests::default();
    }
    let unshared = unshared(cluster, tables.shared.groups());
    let held = tables.shared.held(&cluster.devices.claims);
    let (largest, models) = (BTreeMap::new(), BTreeMap::new());
    let mut counting = Counting { cluster, tables, held, largest, models };
    let amounts = counting.by_class();
    counting.tables.keep();
    PhysicalRequests { amounts, unshared }
}

/// The dimensions that stand for the classes of groups, unless a node advertises them itself, each with that of the
/// physical devices.
fn unshared(cluster: &Cluster, groups: &Groups) -> Vec<(Dim, Dim)> {
    let classes = &cluster.devices.published.classes;
    let mut dims = Vec::new();
    for class in groups.classes() {
        let group = groups.of_class(class).map(|group| groups.name(group));
        let physical =
            group.and_then(|name| cluster.dimensions.get(&physical_devices_of_class(name)));
        let Some(physical) = physical else { continue };
        let extended = classes.get(class).and_then(|class| class.extended_resource.clone());
        let is_own =
            |resource: &Name| class_for(classes, resource).is_some_and(|own| own.name == *class);
        let names = [devices_of_class(class), implicit_resource(class)];
        let names = names.into_iter().chain(extended.filter(is_own));
        dims.extend(names.filter_map(|name| Some((cluster.dimensions.get(&name)?, physical))));
    }
    let is_advertised = |dim: Dim| {
        let mut nodes = cluster.nodes.facts.ids();
        nodes.any(|node| cluster.nodes.allocatable[node][dim] != 0)
    };
    dims.retain(|(dim, _)| !is_advertised(*dim));
    dims
}

/// Parts of physical devices by group, in thousandths.
type Parts = BTreeMap<GroupIdx, i64>;

fn add(sum: &mut Parts, group: GroupIdx, part: i64) {
    let own = sum.entry(group).or_default();
    *own = own.saturating_add(part).min(MAX_AMOUNT);
}

struct Counting<'a> {
    cluster: &'a Cluster,
    tables: SessionTables,
    /// The devices that each claim holds, in the order of the claims.
    held: Vec<HeldBy>,
    /// The largest part of one matching device, by request.
    largest: BTreeMap<WantedIdx, i64>,
    /// The first matching device of each model, by the first request that admits the same devices.
    models: BTreeMap<WantedIdx, Vec<DeviceIdx>>,
}

impl Counting<'_> {
    fn by_class(&mut self) -> Vec<(ClassIdx, Vec<(Dim, i64)>)> {
        let cluster = self.cluster;
        let mut first: BTreeMap<ClassIdx, TaskIdx> = BTreeMap::new();
        for (task, class) in cluster.tasks.class.iter() {
            if !cluster.classes.devices[*class].is_empty() {
                first.entry(*class).or_insert(task);
            }
        }
        let mut all = Vec::new();
        for (class, task) in first {
            let demand = &cluster.classes.devices[class];
            let parts = self.of_class(demand, &cluster.tasks.facts[task]);
            let dim = |group| {
                let name = physical_devices_of_class(self.tables.shared.groups().name(group));
                cluster.dimensions.get(&name)
            };
            let amounts = parts.into_iter().filter_map(|(group, part)| Some((dim(group)?, part)));
            let mut amounts: Vec<(Dim, i64)> = amounts.filter(|(_, part)| *part > 0).collect();
            amounts.sort_unstable();
            if !amounts.is_empty() {
                all.push((class, amounts));
            }
        }
        all
    }

    /// What the tasks of a class request; `facts` are those of its first task.
    fn of_class(&mut self, demand: &DeviceDemand, facts: &TaskFacts) -> Parts {
        // A claim that two entries name counts once.
        let keys = facts.device_claims.iter().map(ClaimEntry::claim);
        let claims: BTreeMap<&Name, u32> = keys
            .zip(&demand.n_users)
            .filter_map(|(name, n_users)| Some((name?, *n_users)))
            .collect();
        let mut sum = Parts::new();
        for (name, n_users) in claims {
            let key = ObjectKey::new(facts.key.namespace.clone(), name.clone());
            let Some(claim) = self.cluster.devices.claims.get(&key) else { continue };
            let n_users = i64::from(n_users);
            for (group, part) in self.of_claim(claim) {
                // In equal parts, rounded up, as the numbers of devices are.
                add(&mut sum, group, (part + n_users - 1) / n_users);
            }
        }
        for (group, part) in self.of_extended(demand) {
            add(&mut sum, group, part);
        }
        sum
    }

    /// What extended resources take: the devices of the claim that was made for them, or else what is requested.
    fn of_extended(&mut self, demand: &DeviceDemand) -> Parts {
        let cluster = self.cluster;
        let made = demand.extended_claim.as_ref().and_then(|key| cluster.devices.claims.get(key));
        if let Some(made) = made.filter(|claim| claim.allocation.is_some()) {
            return self.of_claim(made);
        }
        let mut sum = Parts::new();
        for request in demand.extended.iter().flat_map(|container| &container.requests) {
            let Some(class) = class_for(&cluster.devices.published.classes, &request.resource)
            else {
                continue;
            };
            let Some(group) = self.tables.shared.groups().of_class(&class.name) else { continue };
            let largest = self.largest_of_class(&class.name);
            let n_devices = i64::try_from(request.count).unwrap_or(MAX_AMOUNT);
            add(&mut sum, group, n_devices.saturating_mul(largest));
        }
        sum
    }

    fn of_claim(&mut self, claim: &ResourceClaimFacts) -> Parts {
        if claim.allocation.is_none() {
            return self.of_requests(claim);
        }
        let at = self.held.binary_search_by(|(facts, _)| facts.key.cmp(&claim.key));
        at.map(|at| self.of_devices(&self.held[at].1)).unwrap_or_default()
    }

    /// The parts that the devices take which are allocated to a claim.
    fn of_devices(&self, held: &Held) -> Parts {
        let inventory = self.tables.inventory();
        let mut sum = Parts::new();
        for (row, share) in held.devices() {
            // A device has a row for each slice that lists it, and counts once.
            let mut rows = inventory.rows_of(&inventory.devices()[row].id);
            if rows.find(|row| self.group_of(*row).is_some()) == Some(row)
                && let Some(group) = self.group_of(row)
            {
                let parts = inventory.parts(row, share);
                add(&mut sum, group, parts.iter().map(|(_, part)| part).sum());
            }
        }
        sum
    }

    /// The group of a device; all its parts are of one.
    fn group_of(&self, row: DeviceIdx) -> Option<GroupIdx> {
        let (physical, _) = *self.tables.inventory().parts(row, None).first()?;
        self.tables.shared.groups().of_physical(physical)
    }

    /// What a claim requests: for each request, the largest amount of its alternatives, by group.
    fn of_requests(&mut self, claim: &ResourceClaimFacts) -> Parts {
        let classes = &self.cluster.devices.published.classes;
        let (namespace, name) = (&claim.key.namespace, claim.key.to_string());
        let Ok(ready) = self.tables.claim(classes, namespace, (&name, &claim.spec)) else {
            return self.of_counts(claim);
        };
        let mut sum = Parts::new();
        for request in &ready.requests {
            let mut most = Parts::new();
            for row in &request.alternatives {
                let wanted = &self.tables.wanted().get(*row).wanted;
                let group = self.tables.shared.groups().of_class(&wanted.class);
                let Some(group) = group.filter(|_| !wanted.admin_access) else { continue };
                let n_devices = match wanted.mode {
                    AllocationMode::ExactCount(n_devices) => n_devices,
                    AllocationMode::All | AllocationMode::Unknown(_) => MAX_DEVICES,
                };
                let n_devices = i64::try_from(n_devices).unwrap_or(MAX_AMOUNT);
                let amount = n_devices.saturating_mul(self.largest(*row));
                let own = most.entry(group).or_default();
                *own = amount.max(*own);
            }
            most.into_iter().for_each(|(group, amount)| add(&mut sum, group, amount));
        }
        sum
    }

    /// For claims that cannot be evaluated: the number of devices that they request, each as a whole one.
    fn of_counts(&self, claim: &ResourceClaimFacts) -> Parts {
        let groups = self.tables.shared.groups();
        let amounts = counted(claim);
        let mut sum = Parts::new();
        for class in groups.classes() {
            if let Some(group) = groups.of_class(class) {
                add(&mut sum, group, amounts.get(&devices_of_class(class)));
            }
        }
        sum
    }

    fn largest_of_class(&mut self, class: &Name) -> i64 {
        let classes = &self.cluster.devices.published.classes;
        let row = self.tables.any_of_class(classes, class);
        row.map_or(WHOLE, |row| self.largest(row))
    }

    /// The largest part, in thousandths, of a device that matches the request; [`WHOLE`] if none matches.
    fn largest(&mut self, row: WantedIdx) -> i64 {
        if let Some(known) = self.largest.get(&row) {
            return *known;
        }
        let inventory = self.tables.inventory();
        let matching = self.tables.wanted().get(row);
        let part = |row: DeviceIdx| -> Option<i64> {
            let device = &inventory.devices()[row];
            let share = match device.is_shared {
                // Skip devices without the requested capacity.
                true => Some(consumed_by_share(device.facts(), &matching.wanted.capacity).ok()??),
                false => None,
            };
            let parts = inventory.parts(row, share.as_ref());
            Some(parts.iter().map(|(_, part)| part).sum())
        };
        let first_alike = self.tables.wanted().first_alike(row);
        let models = self.models.entry(first_alike).or_insert_with(|| {
            let matching = self.tables.wanted().get(first_alike);
            let rows = inventory.devices().ids().filter(|row| matching.of(*row) == Match::Yes);
            self.tables.shared.groups().first_of_models(rows)
        });
        let largest = models.iter().copied().filter_map(part).max().unwrap_or(WHOLE);
        self.largest.insert(row, largest);
        largest
    }
}
