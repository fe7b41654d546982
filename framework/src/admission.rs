//! Whether the pods of a job may be created. Controllers of Volcano wait for that.
// Parity: new, see docs/parity.md#k2.

use std::cell::OnceCell;

use kube_batch_api::{
    cluster::Cluster,
    column::{Dim, JobIdx},
    resource::{ResourceList, ResourceVector},
};

use crate::session::Session;

/// The capacity for jobs without pods. It is computed at most once in a cycle, for all such jobs.
#[derive(Debug, Default)]
pub(crate) struct Admission {
    /// What is idle or being released on all nodes.
    available: OnceCell<ResourceVector>,
}

impl Admission {
    /// Whether what the pods of a job request at least fits into the limits of its queue, and into what is
    /// idle or being released. Nothing is reserved for it. A job that has pods is admitted already.
    pub(crate) fn admits(&self, session: &Session, job: JobIdx) -> bool {
        let cluster = session.cluster();
        if !cluster.jobs.tasks[job].is_empty() {
            return true;
        }
        let Some(group) = &cluster.jobs.group[job] else { return true };
        self.fits_in_cluster(cluster, &group.min_resources)
            && fits_in_queue(session, job, &group.min_resources)
    }

    fn fits_in_cluster(&self, cluster: &Cluster, least: &ResourceList) -> bool {
        let available = self.available.get_or_init(|| cluster.total_unused());
        let available = |name| cluster.dimensions.get(name).map_or(0, |dim| available[dim]);
        least.iter().all(|(name, amount)| amount <= available(name).max(0))
    }
}

fn fits_in_queue(session: &Session, job: JobIdx, least: &ResourceList) -> bool {
    let cluster = session.cluster();
    let Some(queue) = cluster.jobs.queue[job] else { return false };
    let limits = &cluster.queues.capability[queue];
    if limits.is_empty() {
        return true;
    }
    let used = |dim: Dim| cluster.queues.held[queue][dim];
    let fits = |(dim, limit): &(_, i64)| {
        used(*dim).saturating_add(least.get(cluster.dimensions.name(*dim))) <= *limit
    };
    limits.iter().all(fits)
}
