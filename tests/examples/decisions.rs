//! Prints every decision of case files and of random clusters, to compare two versions:
//! `cargo run --release -p kube-batch-tests --example decisions -- SEEDS tests/cases > decisions`.

use std::{
    fs,
    io::{self, Write},
    path::Path,
};

use kube_batch_framework::{candidates::Search, report::Cycle};
use kube_batch_model::decision::Decision;
use kube_batch_scheduler::registry::Registry;
use kube_batch_sim::{case::Case, runner::run_case_observed};
use kube_batch_tests::random_cluster::RandomCluster;
use kube_batch_yaml::{Limits, parse};

fn main() -> io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let usage = || io::Error::other("usage: decisions SEEDS [DIRECTORY]");
    let n_seeds: u64 = arguments.next().and_then(|n| n.parse().ok()).ok_or_else(usage)?;
    let mut out = io::BufWriter::new(io::stdout().lock());
    if let Some(directory) = arguments.next() {
        let mut paths: Vec<_> =
            fs::read_dir(directory)?.map(|e| e.map(|e| e.path())).collect::<Result<_, _>>()?;
        paths.sort();
        for path in paths {
            run_case(&mut out, &name(&path), &fs::read_to_string(&path)?)?;
        }
    }
    for seed in 0..n_seeds {
        run_case(&mut out, &format!("seed {seed}"), &RandomCluster::new(seed).case())?;
    }
    out.flush()
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().display().to_string()
}

fn run_case(out: &mut impl Write, name: &str, text: &str) -> io::Result<()> {
    let document = parse(text, &Limits::default()).map_err(io::Error::other)?;
    let case = Case::read(&document, &Registry::builtin());
    let case = case.map_err(|problems| io::Error::other(format!("{name}: {problems:?}")))?;
    let mut n_cycles = 0;
    let mut written = Ok(());
    run_case_observed(&case, Search::Index, &mut |simulation| {
        n_cycles += 1;
        if let Some(last) = simulation.last() {
            let shown = show(out, &format!("{name} cycle {n_cycles}"), &last.cycle);
            if written.is_ok() {
                written = shown;
            }
        }
    })
    .map_err(|problems| {
        let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
        io::Error::other(lines.join("\n"))
    })?;
    written
}

fn show(out: &mut impl Write, at: &str, cycle: &Cycle) -> io::Result<()> {
    for decision in &cycle.decisions {
        match decision {
            Decision::Bind { pod, node, claims, .. } => {
                writeln!(out, "{at}: bind {} {node} {}", pod.key, claims.len())?;
            }
            Decision::Evict { pod, node, cause } => {
                let (reason, by) = (cause.reason(), &cause.job().job);
                writeln!(out, "{at}: evict {} {node} {reason} {by}", pod.key)?;
            }
            Decision::Nominate { pod, node, .. } => {
                writeln!(out, "{at}: nominate {} {node}", pod.key)?;
            }
            Decision::Withdraw { pod } => writeln!(out, "{at}: withdraw {}", pod.key)?,
            Decision::Deallocate { claim, .. } => writeln!(out, "{at}: deallocate {claim}")?,
        }
    }
    for job in cycle.jobs.iter() {
        writeln!(out, "{at}: job {} {} {}", job.key, job.phase, job.unplaced.len())?;
        if let Some((reason, words)) = job.unschedulable_in_words() {
            writeln!(out, "{at}: waits {reason}: {words}")?;
        }
        if let Some(why) = &job.unplaced_because {
            writeln!(out, "{at}: pods wait {}: {}", why.reason_of_pods(), why.words())?;
        }
        if let Some(eviction) = &job.evicted {
            writeln!(out, "{at}: evicted {}: {eviction}", eviction.cause.reason())?;
        }
    }
    Ok(())
}
