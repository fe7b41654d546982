//! The picture of the README: what the scheduler does over some cycles, drawn from a simulation of
//! an example.

use std::collections::BTreeMap;

use anyhow::{Context, bail};
use kube_batch_api::{
    facts::FactError,
    name::{Name, ObjectKey},
    status::TaskStatus,
};
use kube_batch_cache::snapshot::SnapshotOptions;
use kube_batch_framework::candidates::Search;
use kube_batch_manifest::{
    diagnostic::Diagnostic,
    dump::Dump,
    object::Object,
    place::Place,
    reader::{Reader, Sink},
    source::collect_sources,
};
use kube_batch_scheduler::{conf, registry::Registry};
use kube_batch_sim::{
    outcome::{CycleOutcome, GroupOutcome, Outcome},
    simulation::Simulation,
    world::{Environment, World},
};
use kube_batch_tests::build::root;

/// The example that is simulated, its configuration, and the number of cycles.
const EXAMPLE: &str = "examples/borrow-and-reclaim.yaml";
const CONF: &str = "examples/scheduler.yaml";
const N_CYCLES: usize = 14;

/// Sizes in pixels.
const LEFT: usize = 136;
const TOP: usize = 64;
const COLUMN: usize = 52;
const SLOT: usize = 17;
const NODE_GAP: usize = 10;
const LINE: usize = 20;

/// Colours of one appearance.
struct Theme {
    name: &'static str,
    text: &'static str,
    faint: &'static str,
    lane: &'static str,
    /// One for each job, in order of appearance. From Okabe and Ito's palette, which people with
    /// impaired colour vision can tell apart; darker or lighter for contrast with the text on them.
    jobs: [&'static str; 4],
    on_job: &'static str,
}

const THEMES: [Theme; 2] = [
    Theme {
        name: "light",
        text: "#1f2328",
        faint: "#59636e",
        lane: "#eaeef2",
        jobs: ["#0072b2", "#b35900", "#00795a", "#8f4574"],
        on_job: "#ffffff",
    },
    Theme {
        name: "dark",
        text: "#f0f6fc",
        faint: "#9198a1",
        lane: "#21262d",
        jobs: ["#56b4e9", "#e69f00", "#2fc79a", "#dd94bf"],
        on_job: "#0d1117",
    },
];

/// A place on a node that one pod holds, or for which it is nominated, from one cycle to another.
struct Bar {
    node: usize,
    slot: usize,
    job: usize,
    from: usize,
    /// The first cycle after which the pod no longer holds the place.
    to: usize,
    reserved: bool,
}

/// What is drawn.
#[derive(Default)]
struct Story {
    /// Nodes by name, with the number of pods drawn on each.
    nodes: Vec<(String, usize)>,
    /// Jobs in order of appearance, each with its queue.
    jobs: Vec<(String, String)>,
    bars: Vec<Bar>,
    /// Queues by name, with the number of their pods on nodes after each cycle.
    queues: BTreeMap<String, Vec<usize>>,
    /// Pods that wait after each cycle.
    waiting: Vec<usize>,
    /// Cycles in which something happened, with a sentence.
    events: Vec<(usize, String)>,
}

/// The generated pictures: path below the root, and content.
pub(crate) fn files() -> anyhow::Result<Vec<(String, String)>> {
    let story = simulate()?;
    let path = |theme: &Theme| format!("docs/images/borrow-and-reclaim-{}.svg", theme.name);
    Ok(THEMES.iter().map(|theme| (path(theme), draw(&story, theme))).collect())
}

struct WorldSink {
    world: World,
    problems: Vec<String>,
}

impl Sink for WorldSink {
    fn object(&mut self, object: Object, _: &Place<'_>) -> Result<(), FactError> {
        self.world.apply(object)
    }

    fn dump(&mut self, dump: Dump) {
        self.world.restore(dump);
    }

    fn problem(&mut self, problem: Diagnostic) {
        self.problems.push(problem.to_string());
    }
}

fn simulation() -> anyhow::Result<Simulation> {
    let text =
        std::fs::read_to_string(root().join(CONF)).with_context(|| format!("read {CONF}"))?;
    let Ok(read) = conf::parse(&text, &Registry::builtin()) else { bail!("{CONF} has errors") };
    let options = SnapshotOptions {
        scheduler_name: Name::from("kube-batch"),
        default_queue: Name::from("default"),
        priority_class: true,
    };
    let world = World::new(Environment::default(), options, read.conf.metadata_prefixes());
    let mut sink = WorldSink { world, problems: Vec::new() };
    let (sources, _) = collect_sources(&[root().join(EXAMPLE)]);
    Reader::new().read_sources(&sources, &mut sink);
    if sources.is_empty() || !sink.problems.is_empty() {
        bail!("{EXAMPLE}: {}", sink.problems.join("; "));
    }
    sink.world.run_controllers();
    Ok(Simulation::new(sink.world, read.conf, Search::Index))
}

/// Runs the example and records who holds which place after each cycle; column 0 is the start.
fn simulate() -> anyhow::Result<Story> {
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

fn draw(story: &Story, theme: &Theme) -> String {
    let Theme { text, faint, lane, jobs, on_job, .. } = theme;
    let x = |column: usize| LEFT + column * COLUMN;
    let mut tops = Vec::new();
    let mut y = TOP;
    for (_, slots) in &story.nodes {
        tops.push(y);
        y += slots * SLOT + NODE_GAP;
    }
    let bottom = y - NODE_GAP;
    let rows = story.queues.len() + 1;
    let height = bottom + 16 + rows * LINE + 16 + story.events.len() * LINE + 8;
    let width = x(N_CYCLES) + 8;
    let mut svg = String::new();
    let mut line = |text: String| {
        svg.push_str(&text);
        svg.push('\n');
    };
    line(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         width=\"{width}\" height=\"{height}\" font-family=\"system-ui, 'DejaVu Sans', sans-serif\" \
         font-size=\"13\" fill=\"{text}\">"
    ));
    line(format!("<!-- Generated from {EXAMPLE} by `cargo xtask codegen`; do not edit. -->"));
    line("<title>Pods on four nodes over fourteen scheduling cycles</title>".to_owned());
    // Legend.
    let mut at = LEFT;
    for ((job, queue), colour) in story.jobs.iter().zip(jobs) {
        let name = format!("{job}, queue {queue}");
        line(format!(
            "<rect x=\"{at}\" y=\"8\" width=\"14\" height=\"14\" rx=\"3\" fill=\"{colour}\"/>"
        ));
        line(format!("<text x=\"{}\" y=\"20\">{name}</text>", at + 20));
        at += 36 + name.len() * 7;
    }
    line(format!(
        "<rect x=\"{at}\" y=\"8.5\" width=\"13\" height=\"13\" rx=\"3\" fill=\"none\" stroke=\"{faint}\" \
         stroke-dasharray=\"3 2\"/>"
    ));
    line(format!("<text x=\"{}\" y=\"20\">reserved</text>", at + 20));
    // Cycles.
    line(format!(
        "<text x=\"{}\" y=\"{}\" text-anchor=\"end\" fill=\"{faint}\">after cycle</text>",
        LEFT - 12,
        TOP - 10
    ));
    for column in 0..N_CYCLES {
        let happened = story.events.iter().any(|(cycle, _)| *cycle == column);
        let (weight, colour) = if happened { ("bold", text) } else { ("normal", faint) };
        let label = if column == 0 { "start".to_owned() } else { column.to_string() };
        line(format!(
            "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\" font-weight=\"{weight}\" \
             fill=\"{colour}\">{label}</text>",
            x(column) + COLUMN / 2,
            TOP - 10
        ));
    }
    // Nodes.
    for ((name, slots), top) in story.nodes.iter().zip(&tops) {
        line(format!(
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{name}</text>",
            LEFT - 12,
            top + slots * SLOT / 2 + 5
        ));
        for slot in 0..*slots {
            line(format!(
                "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"3\" fill=\"{lane}\"/>",
                x(0),
                top + slot * SLOT,
                N_CYCLES * COLUMN,
                SLOT - 2
            ));
        }
    }
    for bar in &story.bars {
        let (left, top) = (x(bar.from) + 1, tops[bar.node] + bar.slot * SLOT);
        let (width, height) = ((bar.to - bar.from) * COLUMN - 2, SLOT - 2);
        let colour = jobs[bar.job % jobs.len()];
        if bar.reserved {
            line(format!(
                "<rect x=\"{left}.5\" y=\"{top}.5\" width=\"{}\" height=\"{}\" rx=\"3\" fill=\"none\" \
                 stroke=\"{colour}\" stroke-dasharray=\"3 2\"/>",
                width - 1,
                height - 1
            ));
            continue;
        }
        line(format!(
            "<rect x=\"{left}\" y=\"{top}\" width=\"{width}\" height=\"{height}\" rx=\"3\" \
             fill=\"{colour}\"/>"
        ));
        line(format!(
            "<text x=\"{}\" y=\"{}\" font-size=\"11\" fill=\"{on_job}\">{}</text>",
            left + 6,
            top + 12,
            story.jobs[bar.job].0
        ));
    }
    // Numbers.
    let mut y = bottom + 16 + 12;
    let waiting = ("pods waiting".to_owned(), &story.waiting);
    let queues = story.queues.iter().map(|(name, counts)| (format!("CPUs, {name}"), counts));
    for (label, counts) in queues.chain([waiting]) {
        line(format!("<text x=\"{}\" y=\"{y}\" text-anchor=\"end\">{label}</text>", LEFT - 12));
        for (column, count) in counts.iter().enumerate() {
            line(format!(
                "<text x=\"{}\" y=\"{y}\" text-anchor=\"middle\">{count}</text>",
                x(column) + COLUMN / 2
            ));
        }
        y += LINE;
    }
    y += 16;
    for (cycle, sentence) in &story.events {
        line(format!(
            "<text x=\"{}\" y=\"{y}\" text-anchor=\"end\" font-weight=\"bold\">cycle {cycle}</text>",
            LEFT - 12
        ));
        line(format!("<text x=\"{LEFT}\" y=\"{y}\">{sentence}</text>"));
        y += LINE;
    }
    line("</svg>".to_owned());
    svg
}
