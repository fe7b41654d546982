//! What the minimum of a job needs at least, to be compared with what there could be.

use std::collections::BTreeMap;

use kube_batch_model::{
    cluster::Cluster,
    column::{ClassIdx, Dim, JobIdx},
    gang::Members,
    name::Name,
    status::TaskStatus,
    why::Excess,
};

use crate::{
    candidates::Room,
    session::Session,
    topology::{JobTopology, Scope},
};

/// The tasks of a job of which some make up its minimum.
#[derive(Debug)]
pub(crate) struct Minimum {
    job: JobIdx,
    /// Tasks that could count toward the minimum, by class.
    counts: BTreeMap<ClassIdx, u64>,
    /// How many must be placed; at least 1.
    min: u64,
}

impl Minimum {
    pub(crate) fn of(cluster: &Cluster, job: JobIdx) -> Self {
        let mut counts = BTreeMap::new();
        for task in cluster.jobs.tasks[job].iter() {
            if cluster.is_waiting(task) || cluster.status(task).is_held() {
                *counts.entry(cluster.tasks.class[task]).or_default() += 1;
            }
        }
        let succeeded = cluster.jobs.counts[job].of(TaskStatus::Succeeded);
        let succeeded = Members { n: succeeded, min: cluster.jobs.min_available[job] };
        Self { job, counts, min: u64::from(succeeded.n_missing().max(1)) }
    }

    pub(crate) const fn n_tasks(&self) -> u64 {
        self.min
    }

    /// What the tasks that request least of a resource request together. Different tasks may request
    /// least of different resources, so this is a lower bound.
    pub(crate) fn request(&self, cluster: &Cluster, dim: Dim) -> i128 {
        let request = |class: &ClassIdx| cluster.classes.request[*class].get(dim);
        let mut amounts: Vec<(i64, u64)> =
            self.counts.iter().map(|(class, n)| (request(class), *n)).collect();
        amounts.sort_unstable();
        let mut missing = self.min;
        let mut sum = 0;
        for (amount, n_tasks) in amounts {
            let taken = n_tasks.min(missing);
            sum += i128::from(amount) * i128::from(taken);
            missing -= taken;
        }
        sum
    }

    /// What the tasks of the job that have a place request together, as far as they count for its queue.
    pub(crate) fn held(cluster: &Cluster, job: JobIdx, dim: Dim) -> i128 {
        let tasks = cluster.jobs.tasks[job].iter();
        let held = tasks.filter(|task| {
            cluster.status(*task).is_held() && cluster.queue_of(*task) == cluster.jobs.queue[job]
        });
        held.map(|task| i128::from(cluster.request(task).get(dim))).sum()
    }

    /// The first of these limits that the minimum exceeds. Physical devices are left out: what a claim takes of them is
    /// known once it is allocated.
    pub(crate) fn exceeded(
        &self,
        cluster: &Cluster,
        limits: impl IntoIterator<Item = (Dim, i64)>,
    ) -> Option<Excess> {
        let is_exact = |(dim, _): &(Dim, i64)| !cluster.dimensions.is_physical(*dim);
        limits.into_iter().filter(is_exact).find_map(|(dim, limit)| {
            let requested = self.request(cluster, dim);
            let excess = || Excess {
                resource: cluster.dimensions.name(dim).clone(),
                requested: saturated(requested),
                limit,
            };
            (requested > i128::from(limit)).then(excess)
        })
    }

    /// A resource that no node has, if too many tasks request one. The first in name order.
    pub(crate) fn unknown_resource<'c>(&self, cluster: &'c Cluster) -> Option<&'c Name> {
        let requests = &cluster.classes.request;
        let unknown = |class: &ClassIdx| requests[*class].unknown().first();
        let known = self.counts.iter().filter(|(class, _)| unknown(class).is_none());
        let n_known: u64 = known.map(|(_, n_tasks)| n_tasks).sum();
        let first = self.counts.keys().filter_map(unknown).min();
        first.filter(|_| n_known < self.min)
    }

    /// How many of the tasks there could be room for, counted up to the minimum. An upper bound: each
    /// class is counted by itself; see [`Session::count_placeable`]. If the job requires one topology domain,
    /// they are counted in the domain that holds most.
    pub(crate) fn count_placeable(&self, session: &mut Session, room: Room) -> u64 {
        let topology = session.plugins().topology(self.job);
        let Some(domains) = topology.and_then(JobTopology::required_domains) else {
            return self.count_in_scope(session, room);
        };
        let counts = domains
            .into_iter()
            .map(|domain| session.within(domain, |session| self.count_in_scope(session, room)));
        counts.max().unwrap_or(0)
    }

    /// How many of the tasks there could be room for on the nodes that searches consider, up to the minimum.
    pub(crate) fn count_in_scope(&self, session: &mut Session, room: Room) -> u64 {
        let mut n_placeable = 0;
        for (class, n_tasks) in &self.counts {
            n_placeable += session.search().count_placeable(*class, (*n_tasks).min(self.min), room);
            if n_placeable >= self.min {
                return self.min;
            }
        }
        n_placeable
    }
}

impl Session {
    /// The domains, of the level of which the job requires one, that may have room for its minimum if only
    /// kube-batch's own pods left.
    pub fn domains_with_room(&mut self, job: JobIdx) -> Vec<Scope> {
        let topology = self.plugins().topology(job);
        let mut domains = topology.and_then(JobTopology::required_domains).unwrap_or_default();
        let minimum = Minimum::of(&self.cluster, job);
        domains.retain(|scope| {
            let count = |session: &mut Self| {
                minimum.count_in_scope(session, Room::WithoutOwnPods) == minimum.n_tasks()
            };
            self.within(scope.clone(), count)
        });
        domains
    }
}

/// For display.
fn saturated(amount: i128) -> i64 {
    i64::try_from(amount).unwrap_or(i64::MAX)
}
