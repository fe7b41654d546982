//! Chores of the workspace: `cargo xtask --help`.

mod chart;
mod codegen;
mod envtest;
mod monitoring;
mod picture;
mod test;
mod tidy;
mod up;

use clap::{Parser, Subcommand};
use kube_batch_tests::build::root;

/// Chores of the kube-batch workspace.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Args {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Debug, Subcommand)]
enum Chore {
    /// Write the generated files: CRD manifests, the schema of `simulate -o json`, the Helm chart, the
    /// picture in README.md.
    Codegen {
        /// Write nothing; fail if a file is not what would be written.
        #[arg(long)]
        check: bool,
    },
    /// Check the house rules: crate edges, manifests, generated files, links, what is deployed.
    Tidy,
    /// Run everything that tests.
    Test {
        /// Seeds of the random worlds, for the simulation tests.
        #[arg(long, default_value_t = 2000)]
        seeds: u32,
    },
    /// Time a scheduling cycle over the bench shapes.
    Bench {
        /// Shapes to run; all standard ones if none is named.
        shapes: Vec<String>,
    },
    /// Count the pods bound per second against a real API server, beside a loop that does nothing
    /// else and the scheduler of Kubernetes; --help says more.
    #[command(disable_help_flag = true)]
    BenchCluster {
        /// Shapes and flags of the benchmark.
        #[arg(allow_hyphen_values = true, trailing_var_arg = true)]
        args: Vec<String>,
    },
    /// Provide the servers of the test bed and print their folder, for KUBEBUILDER_ASSETS.
    Envtest,
    /// Run a cluster with simulated nodes and the scheduler in it, until Ctrl-C.
    Up(up::Args),
}

fn main() -> anyhow::Result<()> {
    match Args::parse().chore {
        Chore::Codegen { check: true } => codegen::check(),
        Chore::Codegen { check: false } => codegen::write(),
        Chore::Tidy => tidy::run(),
        Chore::Test { seeds } => test::run(seeds),
        Chore::Bench { shapes } => test::bench("cycle", &shapes),
        Chore::BenchCluster { args } => test::bench("cluster", &args),
        Chore::Envtest => envtest::run(),
        Chore::Up(args) => up::run(&args),
    }
}
