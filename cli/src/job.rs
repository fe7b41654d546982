//! `kube-batch job`: shows the jobs of a cluster, and why they wait.

use std::io::{self, Write};

use jiff::Timestamp;
use kube_batch_api::kind::Kind;
use kube_batch_cache::snapshot::SnapshotOptions;
use kube_batch_model::{
    cluster::Cluster, column::JobIdx, facts::metadata::MetadataPrefixes,
    object_status::UNSCHEDULABLE, status::TaskStatus,
};
use kube_batch_sim::world::{Environment, World};
use serde::Serialize;

use crate::{
    commands::{JobCommand, JobListArgs, scheduler_names},
    exit::Exit,
    live::{ClusterAccess, Lists},
    load::load_lists_quietly,
    show::{Shown, show},
    table::{Align, Cell, TextTable, age},
    terminal::{self, GOOD, WAITING},
};

/// What the scheduler makes jobs of.
const KINDS: [Kind; 6] = [
    Kind::Pod,
    Kind::PodGroup,
    Kind::CompositePodGroup,
    Kind::Queue,
    Kind::PriorityClass,
    Kind::Namespace,
];

/// Runs a command.
pub(crate) fn run(command: &JobCommand, cluster: &dyn ClusterAccess) -> anyhow::Result<Exit> {
    let JobCommand::List(args) = command;
    show(&args.show, &args.target(), &KINDS, cluster, &mut |out, lists| {
        let now = Timestamp::now();
        let jobs = jobs(args, lists);
        Shown { exit: Exit::Ok, data: &jobs, print: &|out| print(out, &jobs, now) }
            .write(out, args.show.output)
    })
}

/// A job of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Job {
    /// `namespace/name` of its PodGroup, its controller or its pod.
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    queue: Option<String>,
    phase: String,
    min: u32,
    running: u32,
    pending: u32,
    priority: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    waiting_since: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
}

/// The jobs of a cluster, those that wait first, the longest before the others.
fn jobs(args: &JobListArgs, lists: Lists) -> Vec<Job> {
    let options = SnapshotOptions {
        scheduler_names: scheduler_names(&args.scheduler_names),
        default_queue: args.default_queue.clone(),
        ..SnapshotOptions::default()
    };
    let mut world = World::new(Environment::default(), options, MetadataPrefixes::default());
    let problems = load_lists_quietly(lists, &mut world);
    problems.iter().for_each(|problem| terminal::warning(problem));
    let cluster = world.snapshot().cluster;
    let is_ours = |job: &JobIdx| {
        cluster.jobs.tasks[*job].iter().any(|task| cluster.tasks.ours[task])
            || cluster.jobs.tasks[*job].is_empty()
    };
    let is_wanted = |job: &JobIdx| {
        let Some(wanted) = &args.queue else { return true };
        let queues = &cluster.queues;
        let path = cluster.jobs.queue[*job].into_iter().flat_map(|queue| queues.tree.path(queue));
        path.into_iter().any(|queue| *queues.facts[queue].name == **wanted)
    };
    let all = cluster.jobs.key.ids().filter(is_ours).filter(is_wanted);
    let mut jobs: Vec<Job> = all.map(|job| of(&cluster, job)).collect();
    jobs.sort_by_key(|job| (job.waiting_since.is_none(), job.waiting_since, job.name.clone()));
    jobs
}

fn of(cluster: &Cluster, job: JobIdx) -> Job {
    let jobs = &cluster.jobs;
    let counts = &jobs.counts[job];
    let group = jobs.group[job].as_ref();
    let tasks = || jobs.tasks[job].iter();
    let pending =
        || tasks().filter(|task| cluster.tasks.placement[*task].status == TaskStatus::Pending);
    let (reason, message) = why(cluster, job).unzip();
    let oldest = pending().map(|task| cluster.tasks.facts[task].created).min();
    let started = group.filter(|_| message.is_some() && tasks().next().is_none());
    Job {
        name: jobs.key[job].to_string(),
        queue: jobs.queue[job].map(|queue| cluster.queues.facts[queue].name.to_string()),
        phase: phase(cluster, job),
        min: jobs.min_available[job],
        running: counts.of(TaskStatus::Running),
        pending: u32::try_from(pending().count()).unwrap_or(u32::MAX),
        priority: jobs.priority[job],
        waiting_since: oldest.or_else(|| started.map(|group| group.created)),
        reason,
        message,
    }
}

/// The phase in the status of its PodGroup, or what that would be.
fn phase(cluster: &Cluster, job: JobIdx) -> String {
    let jobs = &cluster.jobs;
    let stored = jobs.group[job].as_ref().map(|group| &*group.status.phase).unwrap_or_default();
    if !stored.is_empty() {
        return stored.to_owned();
    }
    let counts = &jobs.counts[job];
    let n_ended = counts.of(TaskStatus::Succeeded) + counts.of(TaskStatus::Failed);
    let n_tasks = u32::try_from(jobs.tasks[job].iter().count()).unwrap_or(u32::MAX);
    match n_tasks {
        1.. if n_ended == n_tasks => "Completed",
        _ if counts.ready() >= jobs.min_available[job].max(1) => "Running",
        _ => "Pending",
    }
    .to_owned()
}

/// The reason and the sentence why a job, or some of its pods, wait.
fn why(cluster: &Cluster, job: JobIdx) -> Option<(String, String)> {
    let group = cluster.jobs.group[job].as_ref();
    let conditions = group.into_iter().flat_map(|group| &group.status.conditions);
    let mut unschedulable =
        conditions.filter(|own| own.type_ == UNSCHEDULABLE && own.status == "True");
    if let Some(condition) = unschedulable.next() {
        return Some((condition.reason.clone(), condition.message.clone()));
    }
    let mut pods = cluster.jobs.tasks[job].iter();
    let unscheduled = pods.find_map(|task| cluster.tasks.facts[task].unscheduled.clone());
    unscheduled.map(|(reason, message)| (reason.to_string(), message.to_string()))
}

fn print(out: &mut dyn Write, jobs: &[Job], now: Timestamp) -> io::Result<()> {
    if jobs.is_empty() {
        terminal::note("there are no jobs");
        return Ok(());
    }
    let mut table = TextTable::new([
        ("JOB", Align::Left),
        ("QUEUE", Align::Left),
        ("PHASE", Align::Left),
        ("MIN", Align::Right),
        ("RUNNING", Align::Right),
        ("PENDING", Align::Right),
        ("PRIORITY", Align::Right),
        ("WAITS", Align::Right),
        ("WHY", Align::Left),
    ]);
    for job in jobs {
        let style = if job.phase == "Pending" || job.phase == "Unknown" { WAITING } else { GOOD };
        let waits = job.waiting_since.map(|since| age(now.duration_since(since).as_secs()));
        table.row([
            (&*job.name).into(),
            job.queue.as_deref().unwrap_or("-").into(),
            Cell::styled(style, &*job.phase),
            job.min.to_string().into(),
            job.running.to_string().into(),
            job.pending.to_string().into(),
            job.priority.to_string().into(),
            waits.unwrap_or_default().into(),
            why_in_words(job).into(),
        ]);
    }
    table.print(out, terminal::width())
}

fn why_in_words(job: &Job) -> String {
    match (&job.reason, &job.message) {
        (Some(reason), Some(message)) if !message.is_empty() => format!("{reason}: {message}"),
        (Some(reason), _) => reason.clone(),
        _ => String::new(),
    }
}
