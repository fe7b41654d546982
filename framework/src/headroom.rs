//! What is kept of the capability of queues for the pods that PodGroups do not have yet.
//!
//! The `minResources` of a PodGroup are what its pods request together, also those that a controller creates only
//! once others run, such as the executors of a Spark driver. What such a group does not hold of them yet is its
//! *headroom*: it counts against the capability of its queue, so that no other group takes it meanwhile.
//!
//! A group gets headroom when it is admitted without pods, or with its first pod that gets a place. It has none any
//! more once it has held its `minResources`, or if no pod came for some time.
// Parity: new, see docs/parity.md#k2.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use kube_batch_model::{
    cluster::Cluster,
    column::{Dim, JobIdx, QueueIdx, TaskIdx},
    facts::group::GroupFacts,
    name::{JobKey, Name},
    resource::ResourceVector,
    status::TaskStatus,
};
use serde::{Deserialize, Serialize};

/// For how long a group has headroom without a new pod. Guessed: a driver needs minutes to create executors.
const WITHOUT_NEW_POD: SignedDuration = SignedDuration::from_mins(10);

/// The PodGroups that have headroom or may get it, in queues where it matters.
#[derive(Debug, Default)]
pub(crate) struct Headroom {
    groups: BTreeMap<JobIdx, Group>,
    /// The sum over the groups of each queue.
    queues: BTreeMap<QueueIdx, ResourceVector>,
}

#[derive(Debug)]
struct Group {
    queue: QueueIdx,
    min: ResourceVector,
    stage: Stage,
    /// When its headroom ends.
    end: Timestamp,
    /// What it does not hold of its `minResources`, if that counts.
    headroom: ResourceVector,
}

/// How far a PodGroup has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Stage {
    /// None of its pods has a place. It has headroom from when the first gets one.
    Open,
    /// It was admitted at this time, and none of its pods has had a place.
    Admitted(Timestamp),
    /// It was admitted, and no pod came. Its pods may still be created.
    Lapsed,
    /// Some of its pods have had a place since this time.
    Started(Timestamp),
    /// It has held its `minResources`, or no further pod came.
    Done,
}

/// What is remembered of a PodGroup from one cycle to the next.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Remembered {
    uid: Name,
    stage: Stage,
}

/// What is remembered of all PodGroups.
pub(crate) type HeadroomMemory = BTreeMap<JobKey, Remembered>;

/// Amounts of a dimension against the capability of a queue, before and after a placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counted {
    pub(crate) before: i64,
    pub(crate) after: i64,
}

/// The tasks of each job that are evicted.
type Evicted = BTreeMap<JobIdx, Vec<TaskIdx>>;

impl Headroom {
    /// The groups of a snapshot. `everywhere`: also those of queues without a capability.
    pub(crate) fn of(
        cluster: &Cluster,
        memory: &HeadroomMemory,
        now: Timestamp,
        everywhere: bool,
    ) -> Self {
        let mut headroom = Self::default();
        let has_minimum = cluster.jobs.has_min_resources.iter().filter(|(_, has)| **has);
        for job in has_minimum.map(|(job, _)| job) {
            let Some(group) = &cluster.jobs.group[job] else { continue };
            let Some(queue) = cluster.jobs.queue[job] else { continue };
            let mut path = cluster.queues.tree.path(queue);
            if path.all(|queue| cluster.queues.capability[queue].is_empty()) && !everywhere {
                continue;
            }
            let known = memory.get(&cluster.jobs.key[job]).filter(|known| known.uid == group.uid);
            let min = cluster.dimensions.vector(&group.min_resources);
            let news = News::of(cluster, job, now);
            let stage = news.stage(known.map(|known| known.stage), group, &min);
            let end = match stage {
                Stage::Admitted(since) | Stage::Started(since) => news.end(since),
                Stage::Open | Stage::Lapsed | Stage::Done => Timestamp::MAX,
            };
            let none = ResourceVector::zero(cluster.dimensions.len());
            headroom.groups.insert(job, Group { queue, min, stage, end, headroom: none });
            headroom.follow(cluster, job);
        }
        headroom
    }

    /// Counts again what a job lacks, after one of its tasks has moved.
    pub(crate) fn follow(&mut self, cluster: &Cluster, job: JobIdx) {
        let Some(group) = self.groups.get_mut(&job) else { return };
        let n_held = n_held(cluster, job);
        let next = cluster.dimensions.ids().map(|dim| {
            let held = cluster.jobs.held[job][dim];
            group.lacks(dim, held, n_held)
        });
        let next: ResourceVector = next.collect();
        let none = || ResourceVector::zero(cluster.dimensions.len());
        for queue in cluster.queues.tree.path(group.queue) {
            let of_queue = self.queues.entry(queue).or_insert_with(none);
            of_queue.add(&group.headroom, -1);
            of_queue.add(&next, 1);
        }
        group.headroom = next;
    }

    /// Whether no group has headroom or may get it.
    pub(crate) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// What is kept of a queue for groups of it and of those below it.
    pub(crate) fn of_queue(&self, queue: QueueIdx, dim: Dim) -> i64 {
        self.queues.get(&queue).map_or(0, |headroom| headroom[dim])
    }

    /// What is kept in all queues.
    pub(crate) fn total(&self, dim: Dim) -> i64 {
        self.groups.values().map(|group| group.headroom[dim]).sum()
    }

    /// The headroom of a job.
    pub(crate) fn of_job(&self, job: JobIdx, dim: Dim) -> i64 {
        self.groups.get(&job).map_or(0, |group| group.headroom[dim])
    }

    /// What a job is to hold before it has no headroom any more, if it has or may get some.
    pub(crate) fn min_of(&self, job: JobIdx) -> Option<&ResourceVector> {
        let group = self.groups.get(&job)?;
        match group.stage {
            Stage::Open | Stage::Admitted(_) | Stage::Started(_) => Some(&group.min),
            Stage::Lapsed | Stage::Done => None,
        }
    }

    /// What is kept of a queue without some tasks, and then with one more: what it holds itself is not in these
    /// amounts.
    pub(crate) fn around(
        &self,
        cluster: &Cluster,
        queue: QueueIdx,
        (task, is_counted): (TaskIdx, bool),
        evicted: &Evicted,
        dim: Dim,
    ) -> Counted {
        let own = cluster.tasks.job[task];
        let mut kept = self.of_queue(queue, dim);
        let lacks = |job: JobIdx, group: &Group, amount: i64, n_more: u32| {
            let lost = evicted.get(&job).map(Vec::as_slice).unwrap_or_default();
            let n_held = n_held(cluster, job).saturating_sub(lost.len() as u32) + n_more;
            let lost: i64 = lost.iter().map(|task| cluster.request(*task).get(dim)).sum();
            group.lacks(dim, cluster.jobs.held[job][dim] - lost + amount, n_held)
        };
        let tree = &cluster.queues.tree;
        let in_queue =
            |job: &JobIdx| self.groups.get(job).filter(|group| tree.is_on_path(queue, group.queue));
        for job in evicted.keys().filter(|job| Some(**job) != own) {
            if let Some(group) = in_queue(job) {
                kept += lacks(*job, group, 0, 0) - group.headroom[dim];
            }
        }
        let Some((job, group)) = own.and_then(|job| Some((job, in_queue(&job)?))) else {
            return Counted { before: kept, after: kept };
        };
        kept -= group.headroom[dim];
        let before = kept + lacks(job, group, 0, 0);
        if is_counted {
            return Counted { before, after: before };
        }
        let amount = cluster.request(task).get(dim);
        Counted { before, after: kept + lacks(job, group, amount, 1) }
    }

    /// What tasks of jobs with headroom hold that are evicted.
    pub(crate) fn evicted(&self, cluster: &Cluster, tasks: &[TaskIdx]) -> Evicted {
        let mut evicted = Evicted::new();
        if self.is_empty() {
            return evicted;
        }
        for task in tasks.iter().filter(|task| cluster.status(**task).is_held()) {
            let Some(job) = cluster.tasks.job[*task] else { continue };
            if self.groups.contains_key(&job) {
                evicted.entry(job).or_default().push(*task);
            }
        }
        evicted
    }

    /// A hash of the groups that have headroom, or would have more if tasks of theirs were evicted.
    pub(crate) fn hash(&self, cluster: &Cluster) -> u64 {
        let mut hasher = DefaultHasher::new();
        let counting =
            self.groups.iter().filter(|(job, group)| group.counts(n_held(cluster, **job)));
        for (job, group) in counting {
            (&cluster.jobs.key[*job], group.queue, group.min.to_vec()).hash(&mut hasher);
        }
        hasher.finish()
    }

    /// Whether a group without pods was admitted earlier: its pods may be created.
    pub(crate) fn is_admitted(&self, job: JobIdx) -> bool {
        self.groups.get(&job).is_some_and(|group| matches!(group.stage, Stage::Admitted(_)))
    }

    /// Whether a group without pods was admitted, and its headroom has ended.
    pub(crate) fn has_lapsed(&self, job: JobIdx) -> bool {
        self.groups.get(&job).is_some_and(|group| group.stage == Stage::Lapsed)
    }

    /// When the first of the groups loses its headroom.
    pub(crate) fn next_end(&self, now: Timestamp) -> Option<Duration> {
        let ends = self.groups.values().filter(|group| group.headroom.iter().any(|lack| *lack > 0));
        let end = ends.map(|group| group.end).filter(|end| *end > now).min()?;
        Duration::try_from(end.duration_since(now)).ok()
    }

    /// What to remember. A cycle admits some groups without pods, and refuses others.
    pub(crate) fn remember(
        &self,
        cluster: &Cluster,
        now: Timestamp,
        admits_newly: impl Fn(JobIdx) -> bool,
        admits: impl Fn(JobIdx) -> bool,
    ) -> HeadroomMemory {
        let remembered = self.groups.iter().filter_map(|(job, group)| {
            let stage = match group.stage {
                Stage::Open | Stage::Admitted(_) | Stage::Started(_)
                    if holds_minimum(cluster, *job, &group.min) =>
                {
                    Stage::Done
                }
                Stage::Open | Stage::Admitted(_) if n_placed(cluster, *job) > 0 => {
                    Stage::Started(now)
                }
                Stage::Open if admits_newly(*job) => Stage::Admitted(now),
                // It is admitted again once there is room.
                Stage::Lapsed if !admits(*job) => Stage::Open,
                stage @ (Stage::Open
                | Stage::Admitted(_)
                | Stage::Lapsed
                | Stage::Started(_)
                | Stage::Done) => stage,
            };
            let uid = cluster.jobs.group[*job].as_ref()?.uid.clone();
            Some((cluster.jobs.key[*job].clone(), Remembered { uid, stage }))
        });
        remembered.collect()
    }
}

impl Group {
    /// What it lacks of its `minResources` if it holds so much, by this number of tasks, as far as that counts.
    fn lacks(&self, dim: Dim, held: i64, n_held: u32) -> i64 {
        if self.counts(n_held) { (self.min[dim] - held).max(0) } else { 0 }
    }

    /// Whether what it lacks is kept for it if this number of its tasks hold resources.
    const fn counts(&self, n_held: u32) -> bool {
        match self.stage {
            Stage::Admitted(_) => true,
            Stage::Open | Stage::Started(_) => n_held > 0,
            Stage::Lapsed | Stage::Done => false,
        }
    }
}

/// What the pods of a group show when a cycle begins.
struct News<'a> {
    cluster: &'a Cluster,
    job: JobIdx,
    n_held: u32,
    /// When the last pod was created, and the last started to run.
    created: Option<Timestamp>,
    started: Option<Timestamp>,
    now: Timestamp,
}

impl<'a> News<'a> {
    fn of(cluster: &'a Cluster, job: JobIdx, now: Timestamp) -> Self {
        let facts = || cluster.jobs.tasks[job].iter().map(|task| &cluster.tasks.facts[task]);
        Self {
            cluster,
            job,
            n_held: n_held(cluster, job),
            created: facts().map(|facts| facts.created).max(),
            started: facts().filter_map(|facts| facts.started).max(),
            now,
        }
    }

    /// When the headroom ends of a group that has it since then.
    fn end(&self, since: Timestamp) -> Timestamp {
        let last = self.created.map_or(since, |created| created.max(since));
        last.checked_add(WITHOUT_NEW_POD).unwrap_or(Timestamp::MAX)
    }

    fn has_ended(&self, since: Timestamp) -> bool {
        self.end(since) <= self.now
    }

    /// How far the group has come, given how far it had in the last cycle. If that is not known, because another
    /// replica led or the queue had no capability, the pods and the stored phase tell as much as they can.
    fn stage(&self, before: Option<Stage>, group: &GroupFacts, min: &ResourceVector) -> Stage {
        let has_pods = !self.cluster.jobs.tasks[self.job].is_empty();
        let counts = &self.cluster.jobs.counts[self.job];
        let n_finished = counts.of(TaskStatus::Succeeded) + counts.of(TaskStatus::Failed);
        let is_finished =
            has_pods && n_finished as usize == self.cluster.jobs.tasks[self.job].len();
        let started =
            |since| if self.has_ended(since) { Stage::Done } else { Stage::Started(since) };
        match before {
            Some(Stage::Done) if has_pods => Stage::Done,
            _ if holds_minimum(self.cluster, self.job, min) => Stage::Done,
            _ if is_finished => Stage::Open,
            Some(Stage::Started(since)) if self.n_held > 0 => started(since),
            Some(_) if self.n_held > 0 => started(self.now),
            None if self.n_held > 0 => started(self.started.or(self.created).unwrap_or(self.now)),
            Some(Stage::Admitted(since)) if !self.has_ended(since) => Stage::Admitted(since),
            Some(Stage::Admitted(_) | Stage::Lapsed) if !has_pods => Stage::Lapsed,
            None if !has_pods && group.version.statuses().is_admitted(&group.status) => {
                Stage::Admitted(self.now)
            }
            _ => Stage::Open,
        }
    }
}

/// Whether tasks of a job that have a place now hold these amounts.
fn holds_minimum(cluster: &Cluster, job: JobIdx, min: &ResourceVector) -> bool {
    let held = &cluster.jobs.held[job];
    n_placed(cluster, job) > 0
        && cluster.jobs.counts[job].pipelined() == 0
        && cluster.dimensions.ids().all(|dim| held[dim] >= min[dim])
}

/// Number of tasks of a job that have a place now.
fn n_placed(cluster: &Cluster, job: JobIdx) -> u32 {
    n_held(cluster, job) - cluster.jobs.counts[job].pipelined()
}

/// Number of tasks of a job that count as held.
fn n_held(cluster: &Cluster, job: JobIdx) -> u32 {
    let counts = &cluster.jobs.counts[job];
    let held = TaskStatus::ALL.into_iter().filter(|status| status.is_held());
    held.map(|status| counts.of(status)).sum()
}
