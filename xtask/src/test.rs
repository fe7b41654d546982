//! All tests.

mod cargo_test;
mod output;
mod summary;
mod targets;

use std::{
    num::NonZero,
    process::{Command, ExitCode, ExitStatus},
    thread,
};

use anyhow::{Context, ensure};
use xtask_launcher::build;

use self::{
    cargo_test::CargoTest,
    output::Failure,
    summary::Summary,
    targets::{LeftOut, with_servers, without_servers},
};

/// Which tests to run.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Args {
    /// Number of random clusters that each law plays [default: a number of its own, or 50 with --quick].
    #[arg(long)]
    seeds: Option<u32>,
    /// Leave out no tests: fail at the start if a program that some of them need is missing.
    #[arg(long, conflicts_with = "quick")]
    complete: bool,
    /// Only unit and property tests, test cases and simulation tests: a minute or two after a change.
    #[arg(long)]
    quick: bool,
}

impl Args {
    fn cargo_test(self, selection: Vec<String>) -> CargoTest {
        let seeds = self.seeds.or(self.quick.then_some(50));
        CargoTest { selection, skipped: Vec::new(), seeds, n_threads: None, gives_way: false }
    }
}

/// Runs unit, property, documentation, case, simulation and end-to-end tests, and simulates the operator. All of
/// them run, also after one failed; the last lines that are printed say what failed and what was left out.
pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let summary = if args.quick { quick(args)? } else { all(args)? };
    println!("\n{}", summary.lines().join("\n"));
    Ok(if summary.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn quick(args: Args) -> anyhow::Result<Summary> {
    let left_out = LeftOut::here();
    let tests = CargoTest { skipped: left_out.skipped, ..args.cargo_test(without_servers()?) };
    let results = tests.run()?;
    Ok(Summary {
        n_passed: results.n_passed,
        failures: results.failures,
        left_out: left_out.reasons,
    })
}

fn all(args: Args) -> anyhow::Result<Summary> {
    let left_out = LeftOut::here();
    ensure!(
        !args.complete || left_out.reasons.is_empty(),
        "some tests cannot run:\n  {}",
        left_out.reasons.join("\n  ")
    );
    // Tests that wait for servers leave most of the processors to the others, which only compute.
    let servers = CargoTest { n_threads: Some(n_clusters()), ..args.cargo_test(with_servers()) };
    let servers = (!left_out.servers).then(|| servers.start());
    let others = CargoTest { gives_way: true, ..args.cargo_test(without_servers()?) };
    let mut results = CargoTest { skipped: left_out.skipped, ..others }.run()?;
    // Without the binaries, what follows would only repeat the messages of the compiler.
    if !results.has_compile_errors {
        let documentation = args.cargo_test(DOCUMENTATION.map(str::to_owned).to_vec());
        results.append(documentation.run()?);
        results.failures.extend(operator_failure()?);
        if let Some(servers) = servers {
            results.append(servers.finish()?);
        }
    }
    Ok(Summary {
        n_passed: results.n_passed,
        failures: results.failures,
        left_out: left_out.reasons,
    })
}

/// Tests in documentation. Cargo runs them only apart from other tests.
const DOCUMENTATION: [&str; 2] = ["--workspace", "--doc"];

/// How many clusters run at a time. Their tests spend more time waiting than computing.
fn n_clusters() -> usize {
    2 * thread::available_parallelism().map_or(1, NonZero::get)
}

/// Steps of the operator's simulation among the tests: half a minute.
const SIMULATED_STEPS: &str = "250000";

fn operator_failure() -> anyhow::Result<Option<Failure>> {
    let arguments = ["--steps", SIMULATED_STEPS].map(str::to_owned);
    let status = operator_simulation(&arguments)?;
    let command = format!("cargo xtask simulate-operator {}", arguments.join(" "));
    Ok((!status.success()).then(|| Failure::of_process(&command, status)))
}

/// Simulates the operator.
pub(crate) fn simulate_operator(arguments: &[String]) -> anyhow::Result<()> {
    let status = operator_simulation(arguments)?;
    ensure!(status.success(), "the simulation of the operator failed");
    Ok(())
}

fn operator_simulation(arguments: &[String]) -> anyhow::Result<ExitStatus> {
    let binary = build::operator_sim().context("build the simulation")?;
    Command::new(binary).args(arguments).status().context("run the simulation")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use xtask_launcher::{SELECTION, build::root};

    #[test]
    fn continuous_integration_compiles_the_same_selection() {
        let script = fs::read_to_string(root().join(".ci/run")).expect("a file");
        assert!(script.contains(&format!("cargo build {} ", SELECTION.join(" "))));
    }
}
