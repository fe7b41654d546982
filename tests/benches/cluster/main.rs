//! Schedulers against a real API server: `cargo xtask bench-cluster --help`.
//!
//! It compares contenders, one after the other, each with a new control plane: a bare loop that only posts the bindings,
//! this scheduler, and kube-scheduler. Either all pods are created before a contender starts, and it shows how many are
//! bound in a second; or pods arrive while it runs, and it shows how long each waits. Times are taken from the audit log
//! of the API server.

mod arrivals;
mod burst;
mod figures;
mod hops;
mod scheduler;
mod setup;

use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use xtask_launcher::build;

use self::{
    arrivals::{Arrivals, ArrivalsResult},
    burst::{Burst, BurstResult, Contender},
    scheduler::Scheduler,
};

/// Measures schedulers against a real API server.
#[derive(Parser)]
#[command(bin_name = "cargo xtask bench-cluster")]
struct Args {
    /// Shapes to run: GANGSxPODS, or GANGSxPODS+RUNNING to start with this many running pods and
    /// also measure the idle scheduler; with the prefix native-, the gangs are PodGroups of
    /// Kubernetes, which kube-scheduler starts whole too. Or arrivals-RATE: single pods of 100m,
    /// RATE of them a second. With arrivals-RATE+RUNNING, RUNNING other pods run on the nodes; with
    /// arrivals-RATE+RUNNING+WAITING, WAITING gangs that do not fit wait too.
    #[arg(value_parser = Shape::parse,
        default_values = ["100x100", "10000x1", "1x10000", "10x1+20000"])]
    shapes: Vec<Shape>,
    /// Number of nodes of the cluster (default: 1000; 500 if pods arrive).
    #[arg(long)]
    nodes: Option<usize>,
    /// Contenders to run.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [
        ContenderName::Loop, ContenderName::KubeBatch, ContenderName::KubeScheduler,
    ])]
    contenders: Vec<ContenderName>,
    /// Binaries of kube-batch to compare (default: the one built from this repository).
    #[arg(long, value_delimiter = ',')]
    binaries: Vec<PathBuf>,
    /// Number of runs of each contender; with more than one, medians are printed at the end, and of
    /// arrivals all runs as one.
    #[arg(long, default_value_t = 1)]
    rounds: usize,
    /// For pods that arrive, also show how long each hop to their binding takes, from the log of
    /// kube-batch. Writing that log makes the scheduler a little slower.
    #[arg(long)]
    hops: bool,
    /// Passed to every benchmark by Cargo.
    #[arg(long, hide = true)]
    bench: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ContenderName {
    /// A loop that only posts the bindings, over HTTP/1.1.
    Loop,
    /// A loop that only posts the bindings, over one HTTP/2 connection.
    LoopHttp2,
    /// A loop that only posts the bindings, over four HTTP/2 connections.
    LoopHttp2x4,
    KubeBatch,
    KubeScheduler,
}

impl ContenderName {
    /// The contenders of this name, with the names that the table shows.
    fn contenders(self, args: &Args) -> Vec<(String, Contender)> {
        let value = self.to_possible_value().expect("every contender has a name");
        let contender = match self {
            Self::Loop => Contender::Loop(None),
            Self::LoopHttp2 => Contender::Loop(Some(1)),
            Self::LoopHttp2x4 => Contender::Loop(Some(4)),
            Self::KubeBatch if args.binaries.is_empty() => {
                // Built now, so that a build does not disturb a measurement.
                let binary = build::release().expect("the scheduler builds");
                Contender::Scheduler(Scheduler::KubeBatch(binary))
            }
            Self::KubeBatch => {
                let named = args.binaries.iter().map(|binary| {
                    let name = binary.file_name().unwrap_or(binary.as_os_str());
                    let scheduler = Scheduler::KubeBatch(binary.clone());
                    (name.display().to_string(), Contender::Scheduler(scheduler))
                });
                return named.collect();
            }
            Self::KubeScheduler => Contender::Scheduler(Scheduler::KubeScheduler),
        };
        vec![(value.get_name().to_owned(), contender)]
    }
}

#[derive(Clone, Debug)]
struct Shape {
    name: String,
    kind: ShapeKind,
}

#[derive(Clone, Debug)]
enum ShapeKind {
    Burst(Burst),
    Arrivals(Arrivals),
}

impl Shape {
    fn parse(name: &str) -> Result<Self, String> {
        let burst = || Some(ShapeKind::Burst(Burst::parse(name)?));
        let arrivals = || Some(ShapeKind::Arrivals(Arrivals::parse(name)?));
        let kind = burst().or_else(arrivals).ok_or(
            "expected GANGSxPODS, GANGSxPODS+RUNNING, arrivals-RATE or arrivals-RATE+RUNNING+WAITING, \
             such as 100x100 or arrivals-50",
        )?;
        Ok(Self { name: name.to_owned(), kind })
    }
}

fn main() {
    let args = Args::parse();
    let contenders: Vec<(String, Contender)> =
        args.contenders.iter().flat_map(|name| name.contenders(&args)).collect();
    for shape in &args.shapes {
        match &shape.kind {
            ShapeKind::Burst(burst) => bursts(&args, &shape.name, burst, &contenders),
            ShapeKind::Arrivals(arrivals) => {
                measure_arrivals(&args, &shape.name, arrivals, &contenders);
            }
        }
    }
}

fn bursts(args: &Args, shape: &str, burst: &Burst, contenders: &[(String, Contender)]) {
    let all: Vec<_> = contenders.iter().map(|(name, contender)| (&**name, contender)).collect();
    let run = |contender: &&Contender| burst.run(contender, args.nodes.unwrap_or(1000));
    let table = Table {
        shape,
        header: BurstResult::header(),
        row: BurstResult::row,
        summary: ("medians", BurstResult::median),
    };
    table.fill(args.rounds, &all, run);
}

fn measure_arrivals(
    args: &Args,
    shape: &str,
    arrivals: &Arrivals,
    contenders: &[(String, Contender)],
) {
    // A bare loop knows all pods beforehand.
    let schedulers = contenders.iter().filter_map(|(name, contender)| match contender {
        Contender::Loop(_) => None,
        Contender::Scheduler(scheduler) => Some((&**name, scheduler)),
    });
    let run =
        |scheduler: &&Scheduler| arrivals.run(scheduler, args.nodes.unwrap_or(500), args.hops);
    let table = Table {
        shape,
        header: ArrivalsResult::header(),
        row: ArrivalsResult::row,
        summary: ("all runs", ArrivalsResult::together),
    };
    table.fill(args.rounds, &schedulers.collect::<Vec<_>>(), run);
}

/// A table of results of one kind.
struct Table<'a, R> {
    shape: &'a str,
    header: String,
    row: fn(&R) -> String,
    /// What is printed after more than one round.
    summary: (&'static str, fn(&[R]) -> R),
}

impl<R> Table<'_, R> {
    /// Runs all contenders in turns, and prints a row for each run.
    fn fill<C>(&self, rounds: usize, contenders: &[(&str, C)], run: impl Fn(&C) -> R) {
        println!("{:20} {:16} {}", "shape", "contender", self.header);
        let mut results: Vec<Vec<R>> = contenders.iter().map(|_| Vec::new()).collect();
        for _ in 0..rounds {
            for ((name, contender), results) in contenders.iter().zip(&mut results) {
                let result = run(contender);
                self.show(name, &result);
                results.push(result);
            }
        }
        let (title, summarise) = self.summary;
        if rounds > 1 {
            println!("{title}");
            for ((name, _), results) in contenders.iter().zip(&results) {
                self.show(name, &summarise(results));
            }
        }
    }

    fn show(&self, contender: &str, result: &R) {
        println!("{:20} {contender:16} {}", self.shape, (self.row)(result));
    }
}
