//! What the picture shows: which pod holds which place after each cycle of the simulation.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context;
use kube_batch_model::{
    name::{Name, ObjectKey},
    status::TaskStatus,
};
use kube_batch_sim::{
    outcome::{CycleOutcome, GroupOutcome, Outcome, Peak},
    world::World,
};

use super::example::simulation;

/// Number of columns: the start, and one for each cycle. A column shows the state after its cycle.
pub(super) const N_COLUMNS: usize = 14;

/// What is drawn.
#[derive(Default)]
pub(super) struct Story {
    /// In order of name.
    pub(super) nodes: Vec<Node>,
    /// In order of appearance.
    pub(super) jobs: Vec<Job>,
    /// In order of their first column.
    pub(super) bars: Vec<Bar>,
    /// Number of pods on nodes in each column, by queue.
    pub(super) queues: BTreeMap<String, Vec<usize>>,
    /// Number of waiting pods in each column.
    pub(super) waiting: Vec<usize>,
    /// What happened, as a sentence, and in which cycle.
    pub(super) events: Vec<(usize, String)>,
}

pub(super) struct Node {
    pub(super) name: String,
    /// Largest number of bars in a column.
    pub(super) n_slots: usize,
}

pub(super) struct Job {
    pub(super) name: String,
    pub(super) queue: String,
}

/// A pod that is on a node, or nominated for it, from one column to another.
pub(super) struct Bar {
    pub(super) place: Place,
    /// Index among the pods that are on the node at the same time.
    pub(super) slot: usize,
    /// Index in [`Story::jobs`].
    pub(super) job: usize,
    pub(super) from: usize,
    /// The first column in which the pod no longer has the place.
    pub(super) to: usize,
}

/// Where a pod is, or is nominated.
#[derive(PartialEq)]
pub(super) struct Place {
    /// Index in [`Story::nodes`].
    pub(super) node: usize,
    /// Whether the pod is only nominated.
    pub(super) nominated: bool,
}

/// Runs the example and records each cycle.
pub(super) fn simulate() -> anyhow::Result<Story> {
    let mut simulation = simulation()?;
    let mut recorder = Recorder::new(&simulation.world);
    recorder.record_column(0, &simulation.world)?;
    for column in 1..N_COLUMNS {
        let cycle = CycleOutcome::of(column as u64, &simulation.cycle(&mut |_| {}).cycle);
        recorder.record_events(column, &cycle, &simulation.world);
        recorder.record_column(column, &simulation.world)?;
    }
    let outcome =
        Outcome::of(Vec::new(), &simulation.world, simulation.last(), Peak::default(), Vec::new());
    Ok(recorder.finish(&outcome))
}

/// Writes a story while the simulation runs.
struct Recorder {
    story: Story,
    /// Index in [`Story::bars`] of each pod that has a place in the last column.
    open: BTreeMap<ObjectKey, usize>,
    /// Number of pods on nodes in each column, by group.
    groups: Vec<BTreeMap<String, usize>>,
}

impl Recorder {
    fn new(world: &World) -> Self {
        let nodes = world.store.nodes.values();
        let nodes = nodes.map(|node| Node { name: node.name.to_string(), n_slots: 0 }).collect();
        let story = Story { nodes, ..Story::default() };
        Self { story, open: BTreeMap::new(), groups: Vec::new() }
    }

    fn record_events(&mut self, cycle: usize, outcome: &CycleOutcome, world: &World) {
        let sentences = sentences(outcome, world);
        self.story.events.extend(sentences.into_iter().map(|sentence| (cycle, sentence)));
    }

    /// Records the current state.
    fn record_column(&mut self, column: usize, world: &World) -> anyhow::Result<()> {
        let waiting = world.pods().filter(|pod| pod.status == TaskStatus::Pending);
        self.story.waiting.push(waiting.count());
        self.groups.push(count_by_group(world));
        let places = self.places(world)?;
        self.close_bars(column, &places);
        self.open_bars(column, places, world);
        Ok(())
    }

    /// The place of each pod; for a pod that is on a node and nominated, that of the nomination.
    fn places(&self, world: &World) -> anyhow::Result<BTreeMap<ObjectKey, Place>> {
        let on_nodes = pods_on_nodes(world).map(|(pod, node)| (pod, node, false));
        let nominated = world.pipelined.iter().map(|(pod, node)| (pod, node, true));
        let mut places = BTreeMap::new();
        for (pod, node, nominated) in on_nodes.chain(nominated) {
            let index = self.story.nodes.iter().position(|known| *known.name == **node);
            let node = index.with_context(|| format!("{pod} is on the unknown node {node}"))?;
            places.insert(pod.clone(), Place { node, nominated });
        }
        Ok(places)
    }

    /// Ends the bars of pods that no longer have the same place.
    fn close_bars(&mut self, column: usize, places: &BTreeMap<ObjectKey, Place>) {
        let bars = &mut self.story.bars;
        self.open.retain(|pod, bar| {
            let bar = &mut bars[*bar];
            let stays = places.get(pod) == Some(&bar.place);
            if !stays {
                bar.to = column;
            }
            stays
        });
    }

    /// Begins a bar for each pod that has a new place.
    fn open_bars(&mut self, column: usize, places: BTreeMap<ObjectKey, Place>, world: &World) {
        for (pod, place) in places {
            if self.open.contains_key(&pod) {
                continue;
            }
            let slot = self.free_slot(place.node);
            let node = &mut self.story.nodes[place.node];
            node.n_slots = node.n_slots.max(slot + 1);
            let job = self.job(&world.group_of(&pod).name);
            self.open.insert(pod, self.story.bars.len());
            self.story.bars.push(Bar { place, slot, job, from: column, to: N_COLUMNS });
        }
    }

    /// The lowest slot of the node that no open bar has.
    fn free_slot(&self, node: usize) -> usize {
        let open = self.open.values().map(|bar| &self.story.bars[*bar]);
        let taken: BTreeSet<usize> =
            open.filter(|bar| bar.place.node == node).map(|bar| bar.slot).collect();
        (0..).find(|slot| !taken.contains(slot)).unwrap_or_default()
    }

    /// The index of the job, which is added when it appears for the first time.
    fn job(&mut self, name: &str) -> usize {
        let jobs = &mut self.story.jobs;
        jobs.iter().position(|job| job.name == name).unwrap_or_else(|| {
            jobs.push(Job { name: name.to_owned(), queue: String::new() });
            jobs.len() - 1
        })
    }

    /// The story, with the queues that the jobs have at the end.
    fn finish(mut self, outcome: &Outcome) -> Story {
        for job in &mut self.story.jobs {
            let is_it = |group: &&GroupOutcome| short(&group.pod_group) == job.name;
            let group = outcome.pod_groups.iter().find(is_it);
            job.queue = group.and_then(|group| group.queue.clone()).unwrap_or_default();
        }
        for queue in outcome.queues.iter().map(|queue| &queue.queue) {
            let counts = self.queue_counts(queue, &outcome.pod_groups);
            self.story.queues.insert(queue.clone(), counts);
        }
        self.story
    }

    /// Number of pods on nodes in each column, of the groups in this queue.
    fn queue_counts(&self, queue: &str, groups: &[GroupOutcome]) -> Vec<usize> {
        let in_queue = groups.iter().filter(|group| group.queue.as_deref() == Some(queue));
        let in_queue: Vec<&str> = in_queue.map(|group| &*group.pod_group).collect();
        let sum = |counts: &BTreeMap<String, usize>| {
            in_queue.iter().filter_map(|group| counts.get(*group)).sum()
        };
        self.groups.iter().map(sum).collect()
    }
}

/// Pods that hold resources of a node, each with the node.
fn pods_on_nodes(world: &World) -> impl Iterator<Item = (&ObjectKey, &Name)> {
    let has_ended = |status| matches!(status, TaskStatus::Succeeded | TaskStatus::Failed);
    let pods = world.pods().filter(move |pod| !has_ended(pod.status));
    pods.filter_map(|pod| Some((&pod.key, pod.node.as_ref()?)))
}

/// Number of pods on nodes, by group.
fn count_by_group(world: &World) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for (pod, _) in pods_on_nodes(world) {
        *counts.entry(world.group_of(pod).to_string()).or_default() += 1;
    }
    counts
}

/// What a cycle decided: one sentence for each kind of decision and each job.
fn sentences(cycle: &CycleOutcome, world: &World) -> Vec<String> {
    let job_of = |pod: &str| {
        let (namespace, name) = pod.split_once('/').unwrap_or_default();
        let key = ObjectKey { namespace: namespace.into(), name: name.into() };
        world.group_of(&key).name
    };
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for eviction in &cycle.evictions {
        let (victim, preemptor) = (job_of(&eviction.pod), short(&eviction.for_));
        let what = format!("pods of {victim} are evicted; their places are kept for {preemptor}");
        *counts.entry(what).or_default() += 1;
    }
    for bind in &cycle.binds {
        *counts.entry(format!("pods of {} start", job_of(&bind.pod))).or_default() += 1;
    }
    counts.into_iter().map(|(what, count)| format!("{count} {what}")).collect()
}

/// The name without its namespace.
fn short(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or_default()
}
