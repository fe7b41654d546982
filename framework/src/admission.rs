//! Whether a job may create its pods, which some controllers do only then.
// Parity: new, see docs/parity.md#k2.

use kube_batch_api::{cluster::Cluster, column::JobIdx, resource::ResourceList};

use crate::session::Session;

/// Whether what the pods of a job request at least fits into the limits of its queue, and into what is idle
/// or being released. Nothing is reserved for it. A job that has pods is admitted already.
pub(crate) fn is_admitted(session: &Session, job: JobIdx) -> bool {
    let cluster = session.cluster();
    let Some(group) = &cluster.jobs.group[job] else { return true };
    if group.min_resources.is_empty() || !cluster.jobs.tasks[job].is_empty() {
        return true;
    }
    fits_in_cluster(cluster, &group.min_resources)
        && fits_in_queue(session, job, &group.min_resources)
}

fn fits_in_cluster(cluster: &Cluster, least: &ResourceList) -> bool {
    least.iter().all(|(name, amount)| {
        let Some(dim) = cluster.dimensions.get(name) else { return amount == 0 };
        let nodes = cluster.nodes.facts.ids();
        let available: i64 = nodes
            .map(|node| cluster.nodes.idle[node][dim] + cluster.nodes.releasing[node][dim])
            .sum();
        amount <= available
    })
}

fn fits_in_queue(session: &Session, job: JobIdx, least: &ResourceList) -> bool {
    let cluster = session.cluster();
    let Some(queue) = cluster.jobs.queue[job] else { return false };
    let shares = session.plugins().queue_shares(queue);
    let used = |dim| shares.as_ref().map_or(0, |shares| shares.allocated[dim]);
    let mut limits = cluster.queues.capability[queue].iter();
    limits.all(|(dim, limit)| used(*dim) + least.get(cluster.dimensions.name(*dim)) <= *limit)
}
