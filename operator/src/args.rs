//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// A batch scheduler for Kubernetes: gangs start whole or not at all, queues get their fair share.
#[derive(Debug, Parser)]
#[command(name = "kube-batch", version, max_term_width = 100, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show what the scheduler would do with the objects of manifests; no cluster is needed.
    #[command(after_help = SIMULATE_EXAMPLES)]
    Simulate(SimulateArgs),
    /// Play case files and say which hold: unit tests for a scheduling policy.
    #[command(after_help = TEST_EXAMPLES)]
    Test(TestArgs),
    /// Print the completion script of a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Write the manual pages into a folder.
    Man {
        /// The folder.
        folder: PathBuf,
    },
}

const SIMULATE_EXAMPLES: &str = "\
Examples:
  kube-batch simulate -f examples/gang.yaml
  kube-batch simulate -f nodes.yaml -f jobs/ --config examples/scheduler.yaml
  kubectl get nodes,pods,podgroups,queues -A -o yaml | kube-batch simulate -f -
  kube-batch simulate -f examples/ -o json | jq '.cycles[].binds[]'

Exit codes:
  0  cycles were run
  1  nothing was run: no nodes and pods to look at, or --strict and a problem in the input
  2  the command line or the configuration is wrong";

const TEST_EXAMPLES: &str = "\
Examples:
  kube-batch test cases/
  kube-batch test cases/gang-waits-for-room.yaml

Exit codes:
  0  every case holds
  1  a case does not hold
  2  a file cannot be read";

#[derive(Debug, Args)]
pub(crate) struct SimulateArgs {
    /// Manifests: a file, a folder with everything below it, or - for standard input. YAML of one or
    /// many documents, JSON, and lists as kubectl prints them.
    #[arg(short, long = "filename", value_name = "FILE|DIR|-", required = true, num_args = 1..)]
    pub(crate) filenames: Vec<PathBuf>,
    /// Scheduler configuration; built-in: allocate and backfill, with all plugins but conformance.
    #[arg(long, visible_alias = "scheduler-conf", value_name = "FILE", env = "KUBE_BATCH_CONFIG")]
    pub(crate) config: Option<PathBuf>,
    /// Run so many cycles; otherwise until nothing changes any more.
    #[arg(long, value_name = "N", conflicts_with = "until", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) cycles: Option<u64>,
    /// Run cycles for so much virtual time, one a second: 90, 90s, 15m, 2h.
    #[arg(long, value_name = "DURATION", value_parser = seconds)]
    pub(crate) until: Option<u64>,
    /// What to print.
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) output: Format,
    /// Run nothing if anything in the input is wrong.
    #[arg(long)]
    pub(crate) strict: bool,
    /// Name of the scheduler; only pods that name it are placed.
    #[arg(long, default_value = "kube-batch", value_name = "NAME")]
    pub(crate) scheduler_name: String,
    /// Queue of groups that name none, and of pods without a group.
    #[arg(long, default_value = "default", value_name = "QUEUE")]
    pub(crate) default_queue: String,
    /// Whether PriorityClasses rank jobs.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, value_name = "BOOL")]
    pub(crate) priority_class: bool,
}

/// What `simulate` prints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Tables for people.
    #[default]
    Table,
    /// JSON; see docs/simulate.md.
    Json,
    /// The same as YAML.
    Yaml,
}

#[derive(Debug, Args)]
pub(crate) struct TestArgs {
    /// Case files, and folders with case files.
    #[arg(required = true, value_name = "FILE|DIR")]
    pub(crate) paths: Vec<PathBuf>,
}

/// Reads a duration in whole seconds.
fn seconds(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: u64 =
        digits.parse().map_err(|_| "expected a number, and s, m or h after it".to_owned())?;
    let factor = match &text[digits.len()..] {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        unit => return Err(format!("unknown unit \"{unit}\": s, m or h")),
    };
    number.checked_mul(factor).ok_or_else(|| "too long".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn durations_have_units() {
        assert_eq!(seconds("90"), Ok(90));
        assert_eq!(seconds("15m"), Ok(900));
        assert_eq!(seconds("2h"), Ok(7200));
        assert!(seconds("2d").is_err());
        assert!(seconds("m").is_err());
        assert!(seconds("99999999999999999h").is_err());
    }
}
