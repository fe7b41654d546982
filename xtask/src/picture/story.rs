//! What the picture shows: which pod holds which place after each cycle of the simulation.

use std::collections::BTreeMap;

use anyhow::Context;
use kube_batch_api::{name::ObjectKey, status::TaskStatus};
use kube_batch_sim::{
    outcome::{CycleOutcome, GroupOutcome, Outcome},
    world::World,
};

use super::example::simulation;

/// The number of cycles.
pub(super) const N_CYCLES: usize = 14;

/// A place on a node that one pod holds, or for which it is nominated, from one cycle to another.
pub(super) struct Bar {
    pub(super) node: usize,
    pub(super) slot: usize,
    pub(super) job: usize,
    pub(super) from: usize,
    /// The first cycle after which the pod no longer holds the place.
    pub(super) to: usize,
    pub(super) reserved: bool,
}

/// What is drawn.
#[derive(Default)]
pub(super) struct Story {
    /// Nodes by name, with the number of pods drawn on each.
    pub(super) nodes: Vec<(String, usize)>,
    /// Jobs in order of appearance, each with its queue.
    pub(super) jobs: Vec<(String, String)>,
    pub(super) bars: Vec<Bar>,
    /// Queues by name, with the number of their pods on nodes after each cycle.
    pub(super) queues: BTreeMap<String, Vec<usize>>,
    /// Pods that wait after each cycle.
    pub(super) waiting: Vec<usize>,
    /// Cycles in which something happened, with a sentence.
    pub(super) events: Vec<(usize, String)>,
}

/// Runs the example and records who holds which place after each cycle; column 0 is the start.
pub(super) fn simulate() -> anyhow::Result<Story> {
    let mut simulation = simulation()?;
    let mut story = Story::default();
    for name in simulation.world.store.nodes.values().map(|node| node.name.to_string()) {
        story.nodes.push((name, 0));
    }
    // The open bar of each pod.
    let mut open: BTreeMap<ObjectKey, usize> = BTreeMap::new();
    let mut held: Vec<BTreeMap<ObjectKey, usize>> = Vec::new();
    for column in 0..N_CYCLES {
        if column > 0 {
            let cycle = CycleOutcome::of(column as u64, &simulation.cycle(&mut |_| {}).cycle);
            let sentences = sentences(&simulation.world, &cycle);
            story.events.extend(sentences.into_iter().map(|sentence| (column, sentence)));
        }
        let world = &simulation.world;
        let on_nodes = world.pods().filter(|pod| {
            pod.node.is_some() && !matches!(pod.status, TaskStatus::Succeeded | TaskStatus::Failed)
        });
        let mut now: BTreeMap<ObjectKey, (String, bool)> = on_nodes
            .filter_map(|pod| Some((pod.key.clone(), (pod.node.as_ref()?.to_string(), false))))
            .collect();
        let mut counts = BTreeMap::new();
        for pod in now.keys() {
            *counts.entry(world.group_of(pod)).or_insert(0) += 1;
        }
        held.push(counts);
        story.waiting.push(world.pods().filter(|pod| pod.status == TaskStatus::Pending).count());
        for (pod, node) in &world.pipelined {
            now.insert(pod.clone(), (node.to_string(), true));
        }
        open.retain(|pod, index| {
            let bar = &mut story.bars[*index];
            let node = &story.nodes[bar.node].0;
            let stays =
                now.get(pod).is_some_and(|(on, reserved)| on == node && *reserved == bar.reserved);
            if !stays {
                bar.to = column;
            }
            stays
        });
        for (pod, (node, reserved)) in now {
            if open.contains_key(&pod) {
                continue;
            }
            let node = story.nodes.iter().position(|(name, _)| *name == node);
            let node = node.with_context(|| format!("{pod} is on a node that does not exist"))?;
            let taken: Vec<usize> = open
                .values()
                .map(|index| &story.bars[*index])
                .filter(|bar| bar.node == node)
                .map(|bar| bar.slot)
                .collect();
            let slot = (0..).find(|slot| !taken.contains(slot)).unwrap_or_default();
            story.nodes[node].1 = story.nodes[node].1.max(slot + 1);
            let job = world.group_of(&pod).name.to_string();
            let known = story.jobs.iter().position(|(name, _)| *name == job);
            let job = known.unwrap_or_else(|| {
                story.jobs.push((job, String::new()));
                story.jobs.len() - 1
            });
            open.insert(pod, story.bars.len());
            story.bars.push(Bar { node, slot, job, from: column, to: N_CYCLES, reserved });
        }
    }
    let outcome = Outcome::of(Vec::new(), &simulation.world, simulation.last(), Vec::new());
    for (name, queue) in &mut story.jobs {
        let is_it = |group: &&GroupOutcome| short(&group.pod_group) == name;
        let group = outcome.pod_groups.iter().find(is_it);
        *queue = group.and_then(|group| group.queue.clone()).unwrap_or_default();
    }
    for queue in &outcome.queues {
        let of_queue = |counts: &BTreeMap<ObjectKey, usize>| {
            let groups =
                outcome.pod_groups.iter().filter(|g| g.queue.as_ref() == Some(&queue.queue));
            groups
                .map(|group| {
                    let is_it = |(key, _): &(&ObjectKey, _)| key.to_string() == group.pod_group;
                    counts.iter().find(is_it).map_or(0, |(_, count)| *count)
                })
                .sum()
        };
        story.queues.insert(queue.queue.clone(), held.iter().map(of_queue).collect());
    }
    Ok(story)
}

/// The name without its namespace.
fn short(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or_default()
}

/// What a cycle decided, in words: one sentence for each job.
fn sentences(world: &World, cycle: &CycleOutcome) -> Vec<String> {
    let job_of = |pod: &str| {
        let (namespace, name) = pod.split_once('/').unwrap_or_default();
        let key = ObjectKey { namespace: namespace.into(), name: name.into() };
        world.group_of(&key).name.to_string()
    };
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for eviction in &cycle.evictions {
        let (victim, taker) = (job_of(&eviction.pod), short(&eviction.for_));
        let sentence = format!("pods of {victim} are evicted; the places are reserved for {taker}");
        *counts.entry(sentence).or_default() += 1;
    }
    for bind in &cycle.binds {
        *counts.entry(format!("pods of {} start", job_of(&bind.pod))).or_default() += 1;
    }
    counts.into_iter().map(|(sentence, count)| format!("{count} {sentence}")).collect()
}
