//! Which claim keeps a pod from nodes, and what there is for it.

use std::collections::BTreeMap;

use kube_batch_model::{
    cluster::Cluster,
    column::{JobIdx, TaskIdx},
    devices::{devices_of_class, n_given},
    facts::{
        device::{
            claim::ClaimSource,
            request::{AllocationMode, Alternatives, ClaimSpec, Wanted},
        },
        storage::ClaimFacts,
    },
    name::{Name, ObjectKey},
    others::{ClassOfVolume, WantedDevices, WantedVolume},
    reason::{Cause, NodeReason},
};

use super::short::MAX_COMPARED;
use crate::session::Session;

/// How a StorageClass says that nothing makes volumes of it.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

/// How many devices claims have, by class, as far as it has been counted.
#[derive(Default)]
pub(super) struct DevicesInUse(BTreeMap<Name, u64>);

impl DevicesInUse {
    fn of_class(&mut self, cluster: &Cluster, class: &Name) -> u64 {
        if self.0.len() == MAX_COMPARED && !self.0.contains_key(class) {
            return 0;
        }
        let count = || {
            let claims = cluster.devices.claims.values();
            claims.map(|claim| n_given(claim, class) as u64).sum()
        };
        *self.0.entry(class.clone()).or_insert_with(count)
    }
}

/// The first waiting task of a job.
fn first_waiting(cluster: &Cluster, job: JobIdx) -> Option<TaskIdx> {
    cluster.jobs.tasks[job].iter().find(|task| cluster.is_waiting(*task))
}

/// The first request for devices of which there are too few, or the first request, if nodes have no devices for a job.
pub(super) fn wanted_devices(
    session: &Session,
    job: JobIdx,
    in_use: &mut DevicesInUse,
) -> Option<WantedDevices> {
    let cluster = session.cluster();
    let mut refused = session.failure(job)?.fit_report()?.refused().iter();
    refused.find(|nodes| nodes.reason == NodeReason::Devices)?;
    let facts = &cluster.tasks.facts[first_waiting(cluster, job)?];
    let namespace = &facts.key.namespace;
    let mut all = facts.device_claims.iter().flat_map(|entry| {
        let (ClaimSource::Named(name) | ClaimSource::Generated { claim: name, .. }) = &entry.source
        else {
            return Vec::new();
        };
        let key = ObjectKey { namespace: namespace.clone(), name: name.clone() };
        let claim = cluster.devices.claims.get(&key).filter(|claim| claim.allocation.is_none());
        let requests = claim.map(|claim| exact_requests(&claim.spec)).unwrap_or_default();
        requests
            .into_iter()
            .map(|(name, wanted, n)| (entry.name.clone(), name, wanted, n))
            .collect()
    });
    let mut describe = |(claim, request, class, n_wanted): (Name, Name, Name, u64)| {
        let dim = cluster.dimensions.get(&devices_of_class(&class));
        let n_devices = dim.map_or(0, |dim| cluster.device_totals[dim] / 1000).unsigned_abs();
        let n_idle = n_devices.saturating_sub(in_use.of_class(cluster, &class));
        WantedDevices { claim, request, class, n_wanted, n_devices, n_idle }
    };
    let first = describe(all.next()?);
    let is_short = |wanted: &WantedDevices| wanted.n_idle < wanted.n_wanted;
    if is_short(&first) {
        return Some(first);
    }
    let short = all.map(describe).find(is_short);
    Some(short.unwrap_or(first))
}

/// The requests of a claim for a number of devices of one class: name, class, number.
fn exact_requests(spec: &ClaimSpec) -> Vec<(Name, Name, u64)> {
    let exact = spec.requests.iter().filter_map(|request| match &request.alternatives {
        Alternatives::Exactly(Wanted { class, mode: AllocationMode::ExactCount(n), .. }) => {
            Some((request.name.clone(), class.clone(), *n))
        }
        Alternatives::Exactly(_) | Alternatives::FirstAvailable(_) | Alternatives::Unknown => None,
    });
    exact.collect()
}

/// The first claim of a job that is not bound, if volumes keep it from nodes.
pub(super) fn wanted_volume(session: &Session, job: JobIdx) -> Option<WantedVolume> {
    let cluster = session.cluster();
    let report = session.failure(job)?.fit_report()?;
    let is_for_all = report.for_all().is_some_and(|reason| reason.cause == Cause::Volumes);
    let mut refused = report.refused().iter();
    if !is_for_all && !refused.any(|nodes| nodes.reason == NodeReason::NoVolume) {
        return None;
    }
    let class = cluster.tasks.class[first_waiting(cluster, job)?];
    let claims = cluster.classes.template[class].claims.iter();
    let mut claims = claims.filter_map(|own| cluster.storage.claims.get(&own.claim));
    let claim = claims.find(|claim| claim.volume.is_none())?;
    Some(WantedVolume {
        claim: claim.key.name.clone(),
        storage_class: claim.class.clone().filter(|class| !class.is_empty()),
        has: class_of_volume(cluster, claim),
    })
}

fn class_of_volume(cluster: &Cluster, claim: &ClaimFacts) -> ClassOfVolume {
    let name = claim.class.clone().unwrap_or_default();
    let is_of_class = name.is_empty() || cluster.storage.classes.contains_key(&name);
    if !is_of_class {
        return ClassOfVolume::Missing;
    }
    match cluster.storage.classes.get(&name) {
        Some(class) if *class.provisioner != *NO_PROVISIONER => ClassOfVolume::Provisioned,
        _ => {
            let volumes = cluster.storage.volumes.values();
            let free = volumes.filter(|volume| {
                volume.class == name && volume.available && volume.claim.is_none()
            });
            ClassOfVolume::Static { n_free: free.count() as u32 }
        }
    }
}
