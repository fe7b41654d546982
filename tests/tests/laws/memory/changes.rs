//! Changes between cycles, for laws about what is remembered.

use std::{collections::BTreeMap, sync::Arc};

use kube_batch_model::{
    facts::{
        batch_job::{BatchJobFacts, BatchJobState, OnEviction},
        gang_annotations::GangAnnotations,
        group::{GroupFacts, RoleFacts},
        pod::TaskFacts,
        run_time::RunTime,
        topology::TopologyFacts,
    },
    group_version::GroupVersion,
    name::{Name, ObjectKey},
    resource::ResourceList,
    status::TaskStatus,
};
use kube_batch_sim::{case::Case, simulation::Simulation};
use kube_batch_tests::random_cluster::Rng;

/// A change that can be made in several simulations.
pub(crate) enum Change {
    /// An object of the case comes.
    Object(usize),
    /// A pod has changed, or is gone.
    Pod(ObjectKey, Option<Box<TaskFacts>>),
    /// A PodGroup has changed, or is gone.
    Group((ObjectKey, GroupVersion), Option<Box<GroupFacts>>),
    /// A Job of `batch` has changed, or is gone; it controls the pods of its namespace that this one belongs to.
    BatchJob(ObjectKey, Option<Box<BatchJobFacts>>),
}

impl Change {
    pub(crate) fn make(&self, case: &Case, simulation: &mut Simulation) {
        let store = &mut simulation.world.store;
        match self {
            Self::Object(at) => {
                simulation.world.apply(case.objects[*at].value.clone()).expect("valid");
            }
            Self::Pod(key, Some(facts)) => {
                store.pods.apply(key.clone(), TaskFacts::clone(facts));
            }
            Self::Pod(key, None) => {
                store.pods.delete(key);
            }
            Self::Group(key, Some(facts)) => {
                store.groups.apply(key.clone(), GroupFacts::clone(facts));
            }
            Self::Group(key, None) => {
                store.groups.delete(key);
            }
            Self::BatchJob(_, Some(facts)) => {
                store.put(BatchJobFacts::clone(facts));
            }
            Self::BatchJob(key, None) => {
                store.batch_jobs.delete(key);
            }
        }
    }

    /// The Job that controls some running pod is new, has another limit, has failed, or is gone.
    fn of_batch_job(simulation: &Simulation, rng: &mut Rng) -> Option<Self> {
        let pod = some_pod(simulation, rng, TaskStatus::Running)?;
        let controller = pod.controller?;
        let key = ObjectKey { namespace: pod.key.namespace, name: controller.name };
        let facts = BatchJobFacts {
            key: key.clone(),
            uid: controller.uid,
            groups: pod.groups,
            on_eviction: *rng.pick(&[
                OnEviction::Survives,
                OnEviction::Counts { left: 0 },
                OnEviction::Counts { left: 1 },
                OnEviction::CountsForIndex { limit: 0 },
            ]),
            counts_ended_pods: rng.percent(50),
            state: BatchJobState::Active { n_failed: 0 },
        };
        let facts = rng.percent(80).then(|| Box::new(facts));
        Some(Self::BatchJob(key, facts))
    }

    /// An object comes, a pod is gone, or a PodGroup has another minimum, class or queue.
    pub(crate) fn of_any_object(
        simulation: &Simulation,
        rng: &mut Rng,
        late: &mut Vec<usize>,
    ) -> Option<Self> {
        if rng.percent(40)
            && let Some(at) = late.pop()
        {
            return Some(Self::Object(at));
        }
        if rng.percent(30) {
            let status = if rng.percent(50) { TaskStatus::Pending } else { TaskStatus::Running };
            return some_pod(simulation, rng, status).map(|facts| Self::Pod(facts.key, None));
        }
        if rng.percent(30) { Self::of_group(simulation, rng) } else { None }
    }

    /// Some PodGroup with another minimum, class or queue, or deleted.
    fn of_group(simulation: &Simulation, rng: &mut Rng) -> Option<Self> {
        let (key, mut changed) = some_group(simulation, rng)?;
        match rng.below(8) {
            0 => return Some(Self::Group(key, None)),
            1 => changed.queue = Some("q0".into()),
            2 => changed.priority_class = Some(if rng.percent(50) { "low" } else { "high" }.into()),
            _ => changed.min_member = 1 + rng.below(5) as u32,
        }
        Some(Self::Group(key, Some(Box::new(changed))))
    }

    /// An object comes, or one that concerns only its job has another value in some field that can change.
    pub(crate) fn of_any_field(
        simulation: &Simulation,
        rng: &mut Rng,
        late: &mut Vec<usize>,
    ) -> Option<Self> {
        match rng.below(11) {
            0 | 1 => late.pop().map(Self::Object),
            9 => Self::of_batch_job(simulation, rng),
            2 => some_pod(simulation, rng, TaskStatus::Running)
                .map(|facts| Self::Pod(facts.key, None)),
            3..=5 => Self::of_field_of_group(simulation, rng),
            6..=8 => Self::of_field_of_pod(simulation, rng),
            _ => None,
        }
    }

    fn of_field_of_group(simulation: &Simulation, rng: &mut Rng) -> Option<Self> {
        let (key, mut changed) = some_group(simulation, rng)?;
        let (_, other) = some_group(simulation, rng)?;
        match rng.below(12) {
            0 => changed.queue = Some((*rng.pick(&["q0", "q1", "q2"])).into()),
            1 => changed.priority_class = Some((*rng.pick(&["low", "high"])).into()),
            2 => changed.priority = Some(rng.below(3) as i32 * 50),
            3 => changed.never_preempts = *rng.pick(&[None, Some(false), Some(true)]),
            4 => changed.leaves_whole = !changed.leaves_whole,
            5 => changed.roles = some_roles(rng),
            6 => changed.topology = some_topology(rng).map(Arc::new),
            7 => changed.min_resources = some_resources(rng),
            8 => changed.parent = other.parent,
            9 => changed.claims = other.claims,
            _ => changed.min_member = 1 + rng.below(5) as u32,
        }
        Some(Self::Group(key, Some(Box::new(changed))))
    }

    fn of_field_of_pod(simulation: &Simulation, rng: &mut Rng) -> Option<Self> {
        let mut changed = some_pod(simulation, rng, TaskStatus::Pending)?;
        let other = some_pod(simulation, rng, TaskStatus::Pending)?;
        match rng.below(11) {
            0 => changed.never_preempts = !changed.never_preempts,
            1 => changed.gated = !changed.gated,
            2 => changed.priority = rng.below(3) as i32 * 50,
            3 => changed.labels = other.labels,
            4 | 5 => changed.template = other.template,
            6 => changed.role = rng.percent(50).then(|| "a".into()),
            7 => changed.run_time = some_run_time(rng),
            8 => changed.annotations = Some(Arc::new(some_annotations(rng))),
            9 => changed.device_claims = other.device_claims,
            _ => return Some(Self::Pod(changed.key, None)),
        }
        Some(Self::Pod(changed.key.clone(), Some(Box::new(changed))))
    }
}

/// Some pod that has this status, if there is one.
fn some_pod(simulation: &Simulation, rng: &mut Rng, status: TaskStatus) -> Option<TaskFacts> {
    let pods = simulation.world.store.pods.values().filter(|facts| facts.status == status);
    let pods: Vec<_> = pods.collect();
    (!pods.is_empty()).then(|| TaskFacts::clone(pods[rng.below(pods.len() as u64) as usize]))
}

fn some_group(
    simulation: &Simulation,
    rng: &mut Rng,
) -> Option<((ObjectKey, GroupVersion), GroupFacts)> {
    let groups: Vec<_> = simulation.world.store.groups.iter().collect();
    let (key, facts) = groups.get(rng.below(groups.len() as u64) as usize)?;
    Some(((*key).clone(), GroupFacts::clone(facts)))
}

fn some_roles(rng: &mut Rng) -> Vec<RoleFacts> {
    match rng.below(4) {
        0 => Vec::new(),
        min => vec![RoleFacts { name: "a".into(), min: min as u32 }],
    }
}

/// The nodes of random clusters have the label `zone`, and some have `rack`.
fn some_topology(rng: &mut Rng) -> Option<TopologyFacts> {
    let key: Option<&str> = *rng.pick(&[None, Some("zone"), Some("rack")]);
    key.map(|key| TopologyFacts::required(key.into()))
}

fn some_resources(rng: &mut Rng) -> ResourceList {
    let amounts: BTreeMap<Name, i64> = [("cpu".into(), rng.below(6) as i64 * 1000)].into();
    ResourceList::try_from(amounts).expect("amounts that are not negative")
}

fn some_run_time(rng: &mut Rng) -> Option<RunTime> {
    let seconds: Option<u64> = *rng.pick(&[None, Some(10), Some(100_000)]);
    seconds.map(|seconds| RunTime { seconds: Some(seconds), unreadable: None })
}

fn some_annotations(rng: &mut Rng) -> GangAnnotations {
    GangAnnotations { min_available: Some(1 + rng.below(3) as u32), ..GangAnnotations::default() }
}
