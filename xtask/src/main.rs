//! Development commands of the workspace: `cargo xtask --help`.

mod bench;
mod chart;
mod codegen;
mod deny;
mod dist;
mod envtest;
mod instructions;
mod monitoring;
mod performance;
mod policy;
mod sbom;
mod static_binary;
mod test;
mod tidy;
mod tools;
mod up;
mod values;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use kube_batch_tests::shapes::kinds::description;

/// Development commands of the kube-batch workspace.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Write the generated files: CRD manifests, the admission policy, the schema of `simulate -o json`, the
    /// Helm chart, and the table of the benchmark.
    Codegen {
        /// Write nothing; fail if a file is out of date.
        #[arg(long)]
        check: bool,
    },
    /// Check the repository: crate dependencies, circular use, manifests, generated files, links,
    /// the chart, the dashboards and the alerts.
    Tidy,
    /// Check dependencies against deny.toml: licences, sources, bans and advisories.
    Deny(deny::Args),
    /// Write the SBOM of the binary to target/dist.
    Sbom,
    /// Write files of a release to target/dist.
    Dist(dist::Args),
    /// Build the static binary, and run it in a cluster as the image runs it.
    StaticBinary,
    /// Run all tests, and list those that fail at the end. As root on Debian, install the programs
    /// that they need first; elsewhere, leave out tests whose programs are missing.
    Test(test::Args),
    /// Measure the duration of a scheduling cycle on the benchmark shapes, and check its decisions.
    #[command(after_help = description())]
    Bench(bench::Args),
    /// Count the instructions of small cycles, and compare them with the committed counts; needs
    /// valgrind, and installs it as root on Debian.
    Instructions(instructions::Args),
    /// Measure what hostile objects of one namespace cost everyone else in time and memory.
    Hostile {
        /// Kinds of hostile objects (default: all).
        kinds: Vec<String>,
        /// Add the plugin `reservation` to the configuration.
        #[arg(long)]
        reservations: bool,
        /// Put no turn off, however large it is.
        #[arg(long)]
        large_turns: bool,
    },
    /// Measure pods bound per second against a real API server, compared with a plain loop of
    /// bindings and with kube-scheduler; see --help.
    #[command(disable_help_flag = true)]
    BenchCluster {
        /// Shapes and flags of the benchmark.
        #[arg(allow_hyphen_values = true, trailing_var_arg = true)]
        args: Vec<String>,
    },
    /// Simulate replicas of the scheduler against a model of the API server, with faults; see --help.
    #[command(disable_help_flag = true)]
    SimulateOperator {
        /// Flags of the simulation.
        #[arg(allow_hyphen_values = true, trailing_var_arg = true)]
        args: Vec<String>,
    },
    /// Build the servers of the test bed, and Helm, and print the directory of the servers, for
    /// KUBEBUILDER_ASSETS.
    Envtest,
    /// Run a cluster with simulated nodes and the scheduler in it, until Ctrl-C.
    Up(up::Args),
}

fn main() -> anyhow::Result<ExitCode> {
    match Args::parse().command {
        Command::Codegen { check: true } => codegen::check(),
        Command::Codegen { check: false } => codegen::write(),
        Command::Tidy => tidy::run(),
        Command::Deny(args) => deny::run(args),
        Command::Sbom => dist::sbom().map(|path| println!("{}", path.display())),
        Command::Dist(args) => dist::run(&args),
        Command::StaticBinary => static_binary::run(),
        Command::Test(args) => return test::run(args),
        Command::Bench(args) => bench::run(&args),
        Command::Instructions(args) => instructions::run(&args),
        Command::Hostile { kinds, reservations, large_turns } => {
            let flags = [(reservations, "--reservations"), (large_turns, "--large-turns")];
            let flags = flags.into_iter().filter(|(is_set, _)| *is_set);
            let flags = flags.map(|(_, flag)| flag.to_owned());
            let arguments: Vec<String> = flags.chain(kinds).collect();
            test::bench("hostile", &arguments)
        }
        Command::BenchCluster { args } => test::bench("cluster", &args),
        Command::SimulateOperator { args } => test::simulate_operator(&args),
        Command::Envtest => envtest::run(),
        Command::Up(args) => up::run(&args),
    }?;
    Ok(ExitCode::SUCCESS)
}
