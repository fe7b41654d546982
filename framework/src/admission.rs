//! Whether the pods of a PodGroup may be created. Controllers of Volcano wait for that.
// Parity: new, see docs/parity.md#k2.

use std::collections::{BTreeMap, BTreeSet};

use kube_batch_model::{
    cluster::Cluster,
    column::{Dim, JobIdx, QueueIdx},
    name::Name,
    resource::ResourceVector,
    why::{AdmissionLimit, LimitUse, NotAdmitted},
};

use crate::{served::problem_of_queue, session::Session};

/// The PodGroups without pods whose controllers wait until these may be created.
#[derive(Debug, Default)]
pub(crate) struct Admission {
    /// Those that are admitted in this cycle and keep what they request.
    admitted: BTreeSet<JobIdx>,
    refused: BTreeMap<JobIdx, Refusal>,
}

/// Why the pods of a PodGroup may not be created.
#[derive(Clone, Debug)]
enum Refusal {
    /// Its queue does not serve it.
    NoQueue,
    /// Its `minResources` do not fit into the capability of the queue.
    Capability { queue: QueueIdx, lack: Lack },
    /// They exceed what the whole cluster has, of a resource that the queue does not limit.
    Cluster(Lack),
    /// They do not fit into what is idle or being released.
    Idle(Lack),
}

/// A resource that is lacking.
#[derive(Clone, Debug)]
struct Lack {
    resource: Name,
    requested: i64,
    /// The capability, or what is idle or being released.
    limit: i64,
    /// What is used of the capability.
    used: i64,
    /// What is kept for other PodGroups.
    kept: i64,
}

impl Admission {
    /// Decides about all PodGroups without pods after the moves of a session, in the order of jobs. What one
    /// requests is kept for it, so that the next has to fit beside it.
    pub(crate) fn of(session: &Session) -> Self {
        let cluster = session.cluster();
        let mut admission = Self::default();
        let mut jobs: Vec<(QueueIdx, JobIdx)> = Vec::new();
        let active = session.active_jobs().iter().copied();
        let no_pods = active.filter(|job| cluster.jobs.tasks[*job].is_empty());
        for job in no_pods.filter(|job| waits_for_admission(cluster, *job)) {
            match cluster.jobs.queue[job] {
                None => drop(admission.refused.insert(job, Refusal::NoQueue)),
                Some(_) if problem_of_queue(cluster, job).is_some() => {
                    drop(admission.refused.insert(job, Refusal::NoQueue));
                }
                Some(_) if !cluster.jobs.has_min_resources[job] => {}
                Some(_) if session.headroom.is_admitted(job) => {}
                Some(queue) => jobs.push((queue, job)),
            }
        }
        session.plugins().sort_jobs(&mut jobs);
        let mut kept = Kept::default();
        for (queue, job) in jobs {
            match kept.try_admit(session, queue, job) {
                Err(refusal) => drop(admission.refused.insert(job, refusal)),
                Ok(()) => drop(admission.admitted.insert(job)),
            }
        }
        admission
    }

    /// Whether pods of a job may be created. A job that has pods is admitted already.
    pub(crate) fn admits(&self, job: JobIdx) -> bool {
        !self.refused.contains_key(&job)
    }

    /// Whether pods of a job may be created since this cycle, and what they request is kept for them.
    pub(crate) fn admits_newly(&self, job: JobIdx) -> bool {
        self.admitted.contains(&job)
    }

    /// Why the pods of a PodGroup may not be created.
    pub(crate) fn lacking(&self, cluster: &Cluster, job: JobIdx) -> Option<NotAdmitted> {
        let (lack, limit) = match self.refused.get(&job)? {
            // The job has a problem that says more.
            Refusal::NoQueue => return None,
            Refusal::Capability { queue, lack } => {
                let queue = cluster.queues.facts[*queue].name.clone();
                let Lack { requested, limit, used, kept, .. } = *lack;
                let in_use = (requested <= limit).then_some(LimitUse { used, kept });
                (lack, AdmissionLimit::Capability { queue, limit, in_use })
            }
            Refusal::Cluster(lack) => (lack, AdmissionLimit::Cluster { total: lack.limit }),
            Refusal::Idle(lack) => {
                (lack, AdmissionLimit::Idle { idle: lack.limit, kept: lack.kept })
            }
        };
        let Lack { resource, requested, .. } = lack.clone();
        Some(NotAdmitted { resource, requested, limit })
    }
}

/// Whether the controller of a job's PodGroup creates pods only once it is admitted.
fn waits_for_admission(cluster: &Cluster, job: JobIdx) -> bool {
    let group = cluster.jobs.group[job].as_ref();
    group.is_some_and(|group| group.version.statuses().waits_for_admission())
}

/// What is kept for the groups that are admitted in this cycle.
#[derive(Default)]
struct Kept {
    /// By queue, with those below it.
    queues: BTreeMap<QueueIdx, ResourceVector>,
    /// In all queues.
    total: Option<ResourceVector>,
    /// What is idle or being released.
    available: Option<ResourceVector>,
}

impl Kept {
    fn try_admit(
        &mut self,
        session: &Session,
        queue: QueueIdx,
        job: JobIdx,
    ) -> Result<(), Refusal> {
        let cluster = session.cluster();
        fits_cluster(cluster, queue, job).map_err(Refusal::Cluster)?;
        if session.policy.settings().enqueues_strictly {
            self.fits_idle(session, job).map_err(Refusal::Idle)?;
        }
        let group = cluster.jobs.group[job].as_ref().expect("a job without pods has a PodGroup");
        let min = cluster.dimensions.vector(&group.min_resources);
        for queue in cluster.queues.tree.path(queue) {
            let limits = cluster.queues.capability[queue].iter();
            for (dim, limit) in limits.filter(|(dim, _)| min[*dim] > 0) {
                let kept = self.queues.get(&queue).map_or(0, |kept| kept[*dim]);
                Lack {
                    resource: cluster.dimensions.name(*dim).clone(),
                    requested: min[*dim],
                    limit: *limit,
                    used: cluster.queues.used(queue, *dim),
                    kept: session.headroom.of_queue(queue, *dim) + kept,
                }
                .unless_it_fits()
                .map_err(|lack| Refusal::Capability { queue, lack })?;
            }
        }
        // The headroom of a group to which no pod came has ended: others may have it until one does.
        if !session.headroom.has_lapsed(job) {
            let none = || ResourceVector::zero(cluster.dimensions.len());
            for queue in cluster.queues.tree.path(queue) {
                self.queues.entry(queue).or_insert_with(none).add(&min, 1);
            }
            self.total.get_or_insert_with(none).add(&min, 1);
        }
        Ok(())
    }

    fn fits_idle(&mut self, session: &Session, job: JobIdx) -> Result<(), Lack> {
        let cluster = session.cluster();
        let available = self.available.get_or_insert_with(|| cluster.total_unused());
        let group = cluster.jobs.group[job].as_ref().expect("a job without pods has a PodGroup");
        for (resource, requested) in group.min_resources.iter().filter(|(_, amount)| *amount > 0) {
            let dim = cluster.dimensions.get(resource);
            let newly = dim.zip(self.total.as_ref()).map_or(0, |(dim, total)| total[dim]);
            Lack {
                resource: resource.clone(),
                requested,
                limit: dim.map_or(0, |dim: Dim| available[dim].max(0)),
                used: 0,
                kept: dim.map_or(0, |dim| session.headroom.total(dim)) + newly,
            }
            .unless_it_fits()?;
        }
        Ok(())
    }
}

/// Whether the whole cluster has what a job requests at least. A capability stands for what the cluster may grow to.
fn fits_cluster(cluster: &Cluster, queue: QueueIdx, job: JobIdx) -> Result<(), Lack> {
    let group = cluster.jobs.group[job].as_ref().expect("a job without pods has a PodGroup");
    let total = cluster.total();
    for (resource, requested) in group.min_resources.iter() {
        let dim = cluster.dimensions.get(resource);
        let mut capability =
            cluster.queues.tree.path(queue).flat_map(|queue| &cluster.queues.capability[queue]);
        if capability.any(|(limited, _)| Some(*limited) == dim) {
            continue;
        }
        let limit = dim.map_or(0, |dim: Dim| total[dim]);
        Lack { resource: resource.clone(), requested, limit, used: 0, kept: 0 }.unless_it_fits()?;
    }
    Ok(())
}

impl Lack {
    fn unless_it_fits(self) -> Result<(), Self> {
        let sum = self.used.saturating_add(self.kept).saturating_add(self.requested);
        if sum > self.limit { Err(self) } else { Ok(()) }
    }
}
