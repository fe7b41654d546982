//! What queues and jobs use over the time of a simulation, how long their pods wait, and how many are evicted.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use kube_batch_model::{
    cluster::Cluster,
    decision::Decision,
    name::Name,
    resource::{AmountsByName, PODS, ResourceVector, Unit},
};

use crate::{
    simulation::{LastCycle, Simulation},
    world::World,
};

/// Jobs are recorded one by one if there are no more than this.
const MAX_JOBS: usize = 60;

/// A record of a simulation.
#[derive(Clone, Debug, Default)]
pub struct UseOverTime {
    /// From the beginning on; each holds until the next one.
    pub points: Vec<Point>,
    /// By queue: what was recorded of its pods.
    pub queues: BTreeMap<Name, PodRecord>,
    /// Before the first cycle.
    start: Option<Point>,
    /// When the record ends.
    end: Option<Timestamp>,
}

/// What is used from some time on.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// When it begins.
    pub at: Timestamp,
    /// The queues at the bottom of the tree, in the order of the reports.
    pub queues: Vec<QueuePoint>,
}

/// What a queue has.
#[derive(Clone, Debug, PartialEq)]
pub struct QueuePoint {
    /// The queue.
    pub queue: Name,
    /// What its pods hold.
    pub held: AmountsByName,
    /// What it deserves.
    pub deserved: AmountsByName,
    /// What its waiting pods request.
    pub waiting: AmountsByName,
    /// What its jobs hold; empty if there are too many jobs to record.
    pub jobs: Vec<(Arc<str>, AmountsByName)>,
}

/// How the pods of a queue fared.
#[derive(Clone, Debug, Default)]
pub struct PodRecord {
    /// Seconds from the creation of each pod to its binding.
    pub waits: Vec<i64>,
    /// Number of pods that were evicted.
    pub n_evicted: u32,
}

impl PodRecord {
    /// The wait that this part of the pods did not exceed, by the nearest rank; 0 without pods.
    pub fn wait_of(&self, percent: usize) -> i64 {
        let mut waits = self.waits.clone();
        waits.sort_unstable();
        let rank = (waits.len() * percent).div_ceil(100);
        rank.checked_sub(1).map_or(0, |at| waits[at])
    }
}

impl UseOverTime {
    /// Records what is there before the first cycle.
    pub fn begin(&mut self, world: &World) {
        let queues = points_of(&world.snapshot().cluster, |_| AmountsByName::new());
        self.start = Some(Point { at: world.now(), queues });
    }

    /// Records the last cycle of a simulation.
    pub fn record(&mut self, simulation: &Simulation) {
        let Some(last) = simulation.last() else { return };
        let now = simulation.world.now();
        self.end = Some(now);
        for decision in &last.cycle.decisions {
            let Decision::Bind { pod, queue, .. } = decision else { continue };
            let Some(facts) = simulation.world.store.pods.get(&pod.key) else { continue };
            let wait = now.duration_since(facts.created).as_secs();
            self.queues.entry(queue.clone()).or_default().waits.push(wait);
        }
        for report in &last.cycle.queues {
            let record = self.queues.entry(report.queue.name.clone()).or_default();
            record.n_evicted += report.evicted.values().sum::<u32>();
        }
        let point = Point { at: now, queues: queues_of(&simulation.world, last) };
        if let Some(start) = self.start.take() {
            // What queues deserve is known once a cycle has run.
            let queues = start.queues.into_iter().map(|own| {
                let first = point.queues.iter().find(|other| other.queue == own.queue);
                let deserved = first.map(|first| first.deserved.clone()).unwrap_or_default();
                QueuePoint { deserved, ..own }
            });
            self.points.push(Point { at: start.at, queues: queues.collect() });
        }
        if self.points.last().is_none_or(|last| last.queues != point.queues) {
            self.points.push(point);
        }
    }

    /// The end of the record, to which the last point holds: a cycle of one second after it began.
    pub fn end(&self) -> Option<Timestamp> {
        self.end?.checked_add(jiff::SignedDuration::from_secs(1)).ok()
    }

    /// Each point with the seconds for which it holds.
    pub fn intervals(&self) -> impl Iterator<Item = (&Point, i64)> {
        let ends = self.points.iter().skip(1).map(|point| point.at).chain(self.end());
        self.points
            .iter()
            .zip(ends)
            .map(|(point, end)| (point, end.duration_since(point.at).as_secs()))
    }

    /// Hours of each resource that a queue has used: GPU hours, CPU hours. Memory is in GiB hours.
    pub fn hours(&self, queue: &Name) -> BTreeMap<String, f64> {
        let mut sums: BTreeMap<&Name, f64> = BTreeMap::new();
        for (point, seconds) in self.intervals() {
            let own = point.queues.iter().filter(|own| own.queue == *queue);
            for (name, amount) in own.flat_map(|own| &own.held) {
                *sums.entry(name).or_default() += *amount as f64 * seconds as f64;
            }
        }
        let per_unit = |name: &Name| match Unit::of(name) {
            Unit::Milli => 1000.0,
            Unit::Count => 1.0,
            Unit::Bytes => (1_u64 << 30) as f64,
        };
        let shown = sums.into_iter().filter(|(name, sum)| *sum > 0.0 && ***name != *PODS);
        // A tenth of a second of one unit is lost.
        let hours = |name: &Name, sum: f64| (sum / per_unit(name) / 3600.0 * 1e4).round() / 1e4;
        shown.map(|(name, sum)| (name.to_string(), hours(name, sum))).collect()
    }
}

/// What queues have after a cycle.
fn queues_of(world: &World, last: &LastCycle) -> Vec<QueuePoint> {
    let deserved: BTreeMap<&Name, &AmountsByName> =
        last.cycle.queues.iter().map(|own| (&own.queue.name, &own.deserved)).collect();
    let of = |queue: &Name| deserved.get(queue).copied().cloned().unwrap_or_default();
    points_of(&world.snapshot().cluster, of)
}

fn points_of(cluster: &Cluster, deserved: impl Fn(&Name) -> AmountsByName) -> Vec<QueuePoint> {
    let n_children = cluster.queues.n_named();
    let leaves = cluster.queues.facts.iter().filter(|(queue, _)| n_children[*queue] == 0);
    let mut points: Vec<QueuePoint> = Vec::new();
    for (queue, facts) in leaves {
        let mut waiting = ResourceVector::zero(cluster.dimensions.len());
        let mut jobs = Vec::new();
        for job in &cluster.queues.jobs[queue] {
            waiting.add(&cluster.jobs.waiting[*job], 1);
            let held = shown(cluster, &cluster.jobs.held[*job]);
            if cluster.jobs.key.len() <= MAX_JOBS && !held.is_empty() {
                jobs.push((Arc::from(&*cluster.jobs.key[*job].object().name), held));
            }
        }
        points.push(QueuePoint {
            queue: facts.name.clone(),
            held: shown(cluster, &cluster.queues.held[queue]),
            deserved: deserved(&facts.name),
            waiting: shown(cluster, &waiting),
            jobs,
        });
    }
    points
}

/// The amounts that are not 0.
fn shown(cluster: &Cluster, amounts: &[i64]) -> AmountsByName {
    let all = cluster.dimensions.ids().zip(amounts).filter(|(_, amount)| **amount > 0);
    all.map(|(dim, amount)| (cluster.dimensions.name(dim).clone(), *amount)).collect()
}
