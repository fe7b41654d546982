//! The commands that run without a cluster, and their arguments.

mod cluster;
mod values;

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use kube_batch_cache::snapshot::{SchedulerNames, SnapshotOptions};
use kube_batch_manifest::object::Kind;
use kube_batch_model::{duration, name::Name};

pub use self::{
    cluster::ClusterCommand,
    values::{scheduler_name, scheduler_names},
};
pub(crate) use self::{
    cluster::{JobCommand, JobListArgs, QueueCommand, ShowArgs},
    values::Format,
};

/// A command that runs without a cluster.
#[derive(Debug, Subcommand)]
pub enum OfflineCommand {
    /// Show what the scheduler would do with the objects of manifests; no cluster is needed.
    #[command(after_help = simulate_examples())]
    Simulate(SimulateArgs),
    /// Run policy test cases and report which pass.
    #[command(after_help = TEST_EXAMPLES)]
    Test(TestArgs),
    /// Check a scheduler configuration, or convert one of Volcano's scheduler, or its queues.
    #[command(after_help = CHECK_CONFIG_EXAMPLES)]
    CheckConfig(CheckConfigArgs),
    /// Print the completion script for a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Write the manual pages to a directory.
    Man {
        /// Target directory; created if it is missing.
        directory: PathBuf,
    },
}

/// Examples and exit codes of `simulate`; the kinds are those that it reads.
fn simulate_examples() -> String {
    let kinds = Kind::kubectl_list();
    format!(
        "\
Examples:
  kube-batch simulate -f examples/gang.yaml
  kube-batch simulate -f nodes.yaml -f jobs/ --config examples/scheduler.yaml
  kube-batch simulate --kubeconfig ~/.kube/config --config scheduler.yaml -f my-job.yaml
  kube-batch simulate -f examples/gang.yaml -o json | jq '.cycles[].binds[]'

Without --config, nothing is reclaimed or preempted. Give the configuration of the scheduler that
runs in the cluster; that of the manifests in deploy/ is also examples/scheduler.yaml.

The same from a dump of the cluster; leave out the kinds that it does not serve:
  kubectl get -A -o yaml {kinds} |
    kube-batch simulate -f - -f my-job.yaml

Exit codes:
  0  the simulation ran
  1  nothing was run: the input has no nodes and no pods, or --strict found a problem in it
  2  invalid command line or configuration, a file that cannot be read, or a cluster that cannot be
     reached"
    )
}

const TEST_EXAMPLES: &str = "\
Examples:
  kube-batch test cases/
  kube-batch test cases/gang-waits-for-room.yaml --verbose
  kube-batch test cases/ --config scheduler.yaml --fail-fast
  kube-batch test cases/ -o junit > report.xml

docs/cases.md describes the format of test cases.

Exit codes:
  0  every case passed
  1  a case failed
  2  a file cannot be read, a case is invalid, or there are no cases";

const CHECK_CONFIG_EXAMPLES: &str = "\
Examples:
  kube-batch check-config scheduler.yaml
  kube-batch check-config volcano-scheduler.conf > scheduler.yaml
  kubectl get configmap -n volcano-system volcano-scheduler-configmap \\
      -o jsonpath='{.data.volcano-scheduler\\.conf}' | kube-batch check-config - > scheduler.yaml
  kubectl get queues.scheduling.volcano.sh -o yaml | kube-batch check-config - > queues.yaml

A configuration of kube-batch is checked as `run` checks it. A file that is not valid, but names an
action or a plugin that only Volcano has, is converted: standard output gets the equivalent
configuration. Standard error lists everything that has no equivalent or decides differently, with
the reason and what to do instead: as a warning if decisions may differ from Volcano's, and as a
note if not. Manifests with queues are converted to queues of kube-batch in the same way, with warnings
where more is promised than there is.

Exit codes:
  0  the configuration is valid, or was converted; there may be warnings
  2  invalid command line or configuration, or a file that cannot be read";

#[derive(Debug, Args)]
pub struct CheckConfigArgs {
    /// Scheduler configuration file, or - for standard input.
    #[arg(value_name = "FILE|-")]
    pub(crate) file: PathBuf,
    /// Convert the file as one of Volcano's even if it is also valid for kube-batch: the defaults of
    /// arguments differ.
    #[arg(long)]
    pub(crate) volcano: bool,
}

#[derive(Debug, Args)]
pub struct SimulateArgs {
    /// Manifests to read: a file, a directory (recursively), or - for standard input. YAML, JSON,
    /// and lists as printed by kubectl.
    #[arg(short, long = "filename", value_name = "FILE|DIR|-", num_args = 1..,
        required_unless_present_any = ["kubeconfig", "context"])]
    pub(crate) filenames: Vec<PathBuf>,
    /// Jobs that are submitted over time: a CSV file with a row for each, see docs/simulate.md.
    #[arg(long = "trace", value_name = "FILE|-")]
    pub(crate) traces: Vec<PathBuf>,
    /// Read the cluster of this kubeconfig, and then -f, whose objects replace those of the same
    /// name. The cluster is only read.
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig (default: its current context). Without --kubeconfig, the cluster is
    /// read with the kubeconfig that kubectl would use.
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// Scheduler configuration file. Default: allocate and backfill, with all plugins except
    /// conformance, pdb, binpack and reservation.
    #[arg(long, visible_alias = "scheduler-conf", value_name = "FILE", env = "KUBE_BATCH_CONFIG")]
    pub(crate) config: Option<PathBuf>,
    /// Number of cycles to run (default: until nothing changes).
    #[arg(long, value_name = "N", conflicts_with = "until", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) cycles: Option<u64>,
    /// Virtual time to simulate, one cycle a second, such as 90, 90s, 1m30s or 2h.
    #[arg(long, value_name = "DURATION", value_parser = seconds)]
    pub(crate) until: Option<u64>,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) output: SimulateFormat,
    /// In tables, list where each pod was placed, every eviction and every node.
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Treat warnings and errors in the input as fatal.
    #[arg(long)]
    pub(crate) strict: bool,
    /// Scheduler name; only pods with this spec.schedulerName are scheduled. To serve several, repeat
    /// the flag or separate the names with commas; events name the first.
    #[arg(long = "scheduler-name", default_values_t = SchedulerNames::default().iter(), value_name = "NAME",
        value_delimiter = ',', value_parser = scheduler_name)]
    pub(crate) scheduler_names: Vec<Name>,
    /// Queue for PodGroups that name none and for pods without a PodGroup.
    #[arg(long, default_value_t = SnapshotOptions::default().default_queue, value_name = "QUEUE")]
    pub(crate) default_queue: Name,
    /// Rank PodGroups by their PriorityClass; if false, all have priority 0.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, value_name = "BOOL")]
    pub(crate) priority_class: bool,
}

#[derive(Debug, Args)]
pub struct TestArgs {
    /// Case files, and directories of case files.
    #[arg(required = true, value_name = "FILE|DIR")]
    pub(crate) paths: Vec<PathBuf>,
    /// Scheduler configuration file to use in every case, instead of the case's own.
    #[arg(long, visible_alias = "scheduler-conf", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) output: TestFormat,
    /// Stop after the first case that fails or is invalid.
    #[arg(long)]
    pub(crate) fail_fast: bool,
    /// For a case that fails, show what happened in each cycle and why jobs wait; show the duration
    /// of every case.
    #[arg(short, long)]
    pub(crate) verbose: bool,
}

/// Output format of `simulate`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum SimulateFormat {
    /// Tables.
    #[default]
    Table,
    /// JSON, described in docs/simulate.md.
    Json,
    /// The data of `json` as YAML.
    Yaml,
    /// A picture of what the jobs of each queue hold over time.
    Svg,
}

/// Output format of `test`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum TestFormat {
    /// A line for each case, and the differences of those that fail.
    #[default]
    Text,
    /// JSON, described in docs/cases.md.
    Json,
    /// JUnit XML, as CI systems read it.
    Junit,
}

/// Parses a duration of one whole second or more; a bare number is seconds.
fn seconds(text: &str) -> Result<u64, String> {
    let parsed = duration::parse_or_seconds(text).ok().filter(|time| time.subsec_nanos() == 0);
    parsed.map(|time| time.as_secs()).filter(|seconds| *seconds > 0).ok_or_else(|| {
        "expected at least one second, in whole seconds: a number, or a duration such as 90s, \
         1m30s or 2h"
            .to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_simulation_runs_for_whole_seconds() {
        for (text, expected) in [("90", 90), ("15m", 900), ("2h", 7200), ("1m30s", 90), ("1", 1)] {
            assert_eq!(seconds(text), Ok(expected), "{text}");
        }
        for text in ["2d", "m", "1500ms", "99999999999999999h", "-1s", "0", "0s"] {
            let problem = seconds(text).expect_err(text);
            assert!(problem.starts_with("expected at least one second"), "{text}: {problem}");
        }
    }
}
