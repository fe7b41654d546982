//! Development commands of the workspace: `cargo xtask --help`.

mod bench;
mod chart;
mod codegen;
mod deny;
mod dist;
mod envtest;
mod instructions;
mod monitoring;
mod sbom;
mod static_binary;
mod test;
mod tidy;
mod tools;
mod up;
mod values;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

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
    /// Measure the duration of a scheduling cycle on the benchmark shapes, and check its decisions; see --help.
    #[command(disable_help_flag = true)]
    Bench(Passed),
    /// Count the instructions of small cycles, and compare them with the committed counts; needs
    /// valgrind, and installs it as root on Debian.
    Instructions(instructions::Args),
    /// Measure what hostile objects of one namespace cost everyone else in time and memory; see --help.
    #[command(disable_help_flag = true)]
    Hostile(Passed),
    /// Measure pods bound per second against a real API server, compared with a plain loop of
    /// bindings and with kube-scheduler; see --help.
    #[command(disable_help_flag = true)]
    BenchCluster(Passed),
    /// Simulate replicas of the scheduler against a model of the API server, with faults; see --help.
    #[command(disable_help_flag = true)]
    SimulateOperator(Passed),
    /// Build the servers of the test bed, and Helm, and print the directory of the servers, for
    /// KUBEBUILDER_ASSETS.
    Envtest,
    /// Run a cluster with simulated nodes and the scheduler in it, until Ctrl-C.
    Up(up::Args),
}

/// Arguments of another program.
#[derive(Debug, clap::Args)]
struct Passed {
    /// Arguments of the program, such as --help.
    #[arg(allow_hyphen_values = true, trailing_var_arg = true)]
    arguments: Vec<String>,
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
        Command::Bench(Passed { arguments }) => bench::run("cycle", &arguments),
        Command::Instructions(args) => instructions::run(&args),
        Command::Hostile(Passed { arguments }) => bench::run("hostile", &arguments),
        Command::BenchCluster(Passed { arguments }) => bench::run("cluster", &arguments),
        Command::SimulateOperator(Passed { arguments }) => test::simulate_operator(&arguments),
        Command::Envtest => envtest::run(),
        Command::Up(args) => up::run(&args),
    }?;
    Ok(ExitCode::SUCCESS)
}
