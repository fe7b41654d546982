//! The command line.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};

/// A batch scheduler for Kubernetes: gangs start whole or not at all, queues get their fair share.
#[derive(Debug, Parser)]
#[command(name = "kube-batch", version, max_term_width = 100, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Schedule the pods of a cluster.
    #[command(after_help = RUN_EXAMPLES)]
    Run(Box<RunArgs>),
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

const RUN_EXAMPLES: &str = "\
Examples:
  kube-batch run --kubeconfig ~/.kube/config --scheduler-conf examples/scheduler.yaml
  kube-batch run --leader-elect --lock-object-namespace kube-batch-system

Names and defaults are those of kube-batch v0.5.0: underscores may stand for dashes, switches are
written --leader-elect or --leader-elect=false, and `run` may be left out before a flag.

Exit codes:
  0  told to stop by SIGTERM or SIGINT
  2  it cannot go on, or the command line or the configuration is wrong";

const SIMULATE_EXAMPLES: &str = "\
Examples:
  kube-batch simulate -f examples/gang.yaml
  kube-batch simulate -f nodes.yaml -f jobs/ --config examples/scheduler.yaml
  kubectl get nodes,pods,podgroups,queues -A -o yaml | kube-batch simulate -f -
  kube-batch simulate -f examples/gang.yaml -o json | jq '.cycles[].binds[]'

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

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Address of the API server; instead of the one in the kubeconfig.
    #[arg(long, value_name = "URL", env = "KUBE_BATCH_MASTER")]
    pub(crate) master: Option<String>,
    /// Kubeconfig file; without one, the service account of the pod this runs in.
    #[arg(long, value_name = "FILE", env = "KUBECONFIG")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Only pods with this `spec.schedulerName` are scheduled.
    #[arg(
        long,
        default_value = "kube-batch",
        value_name = "NAME",
        env = "KUBE_BATCH_SCHEDULER_NAME"
    )]
    pub(crate) scheduler_name: String,
    /// Scheduler configuration, read again when it changes; built-in: allocate and backfill, with
    /// all plugins but conformance.
    #[arg(
        long = "scheduler-conf",
        visible_alias = "config",
        value_name = "FILE",
        env = "KUBE_BATCH_CONFIG"
    )]
    pub(crate) config: Option<PathBuf>,
    /// A cycle runs after a change, and at the latest after so long.
    #[arg(long, default_value = "1s", value_parser = duration, value_name = "DURATION", env = "KUBE_BATCH_SCHEDULE_PERIOD")]
    pub(crate) schedule_period: Duration,
    /// Queue of groups that name none, and of pods without a group.
    #[arg(long, default_value = "default", value_name = "QUEUE", env = "KUBE_BATCH_DEFAULT_QUEUE")]
    pub(crate) default_queue: String,
    /// Make the default queue, with weight 1, if there is none when this replica begins to lead.
    #[arg(long, value_name = "BOOL", env = "KUBE_BATCH_CREATE_DEFAULT_QUEUE", value_parser = boolean,
        default_value = "false", num_args = 0..=1, require_equals = true,
        default_missing_value = "true", action = ArgAction::Set)]
    pub(crate) create_default_queue: bool,
    /// Whether PriorityClasses rank jobs.
    #[arg(long, value_name = "BOOL", env = "KUBE_BATCH_PRIORITY_CLASS", value_parser = boolean,
        default_value = "true", num_args = 0..=1, require_equals = true,
        default_missing_value = "true", action = ArgAction::Set)]
    pub(crate) priority_class: bool,
    /// Decide only while holding a lock: for more than one replica.
    #[arg(long, value_name = "BOOL", env = "KUBE_BATCH_LEADER_ELECT", value_parser = boolean,
        default_value = "false", num_args = 0..=1, require_equals = true,
        default_missing_value = "true", action = ArgAction::Set)]
    pub(crate) leader_elect: bool,
    /// Namespace of the lock, a Lease named kube-batch.
    #[arg(
        long,
        default_value = "",
        hide_default_value = true,
        value_name = "NAMESPACE",
        env = "KUBE_BATCH_LOCK_OBJECT_NAMESPACE"
    )]
    pub(crate) lock_object_namespace: String,
    /// After so long without renewal another replica may take the lock; whole seconds.
    #[arg(long, default_value = "15s", value_parser = duration, value_name = "DURATION", env = "KUBE_BATCH_LEASE_DURATION")]
    pub(crate) lease_duration: Duration,
    /// After so long without renewal the leader stops deciding.
    #[arg(long, default_value = "10s", value_parser = duration, value_name = "DURATION", env = "KUBE_BATCH_RENEW_DEADLINE")]
    pub(crate) renew_deadline: Duration,
    /// How often the lock is tried or renewed.
    #[arg(long, default_value = "2s", value_parser = duration, value_name = "DURATION", env = "KUBE_BATCH_RETRY_PERIOD")]
    pub(crate) retry_period: Duration,
    /// Address of /metrics, /healthz and /readyz; empty for none.
    #[arg(
        long,
        default_value = ":8080",
        value_name = "ADDRESS",
        env = "KUBE_BATCH_LISTEN_ADDRESS"
    )]
    pub(crate) listen_address: String,
    /// Serve /debug/snapshot: all the scheduler knows, as a file that `simulate -f` reads.
    #[arg(long, value_name = "BOOL", env = "KUBE_BATCH_DEBUG_SNAPSHOT", value_parser = boolean,
        default_value = "false", num_args = 0..=1, require_equals = true,
        default_missing_value = "true", action = ArgAction::Set)]
    pub(crate) debug_snapshot: bool,
    /// So many writes are sent to the API server at once.
    #[arg(long, default_value_t = 32, value_name = "N", env = "KUBE_BATCH_MAX_CONCURRENT_WRITES")]
    pub(crate) max_concurrent_writes: usize,
    /// How much is logged: 0 to 3 what happens, 4 and 5 why, more everything. KUBE_BATCH_LOG
    /// chooses by module.
    #[arg(short, long = "v", default_value_t = 0, value_name = "LEVEL")]
    pub(crate) verbosity: u8,
    /// Logs for people or for machines.
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT", env = "KUBE_BATCH_LOG_FORMAT")]
    pub(crate) log_format: LogFormat,
    /// Logging flags of v0.5.0, which have no effect: logs go to standard error at once.
    #[command(flatten)]
    pub(crate) without_effect: WithoutEffect,
}

#[derive(Debug, Args)]
pub(crate) struct WithoutEffect {
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    logtostderr: Option<String>,
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    alsologtostderr: Option<String>,
    #[arg(long, hide = true)]
    log_dir: Option<String>,
    #[arg(long, hide = true)]
    log_backtrace_at: Option<String>,
    #[arg(long, hide = true)]
    log_flush_frequency: Option<String>,
    #[arg(long, hide = true)]
    stderrthreshold: Option<String>,
    #[arg(long, hide = true)]
    vmodule: Option<String>,
}

/// How logs are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// One line each, for people.
    #[default]
    Text,
    /// One JSON object each.
    Json,
}

impl RunArgs {
    /// What does not fit together.
    pub(crate) fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.leader_elect && self.lock_object_namespace.is_empty() {
            problems.push(
                "--leader-elect needs --lock-object-namespace, the namespace of the lock"
                    .to_owned(),
            );
        }
        if self.renew_deadline >= self.lease_duration {
            problems.push(format!(
                "--renew-deadline {:?} must be shorter than --lease-duration {:?}: a leader stops \
                 before another one starts",
                self.renew_deadline, self.lease_duration
            ));
        }
        if self.retry_period >= self.renew_deadline {
            problems.push(format!(
                "--retry-period {:?} must be shorter than --renew-deadline {:?}",
                self.retry_period, self.renew_deadline
            ));
        }
        if self.lease_duration.subsec_nanos() != 0 {
            problems.push("--lease-duration must be whole seconds".to_owned());
        }
        if self.schedule_period.is_zero() || self.retry_period.is_zero() {
            problems.push("--schedule-period and --retry-period must be longer than 0".to_owned());
        }
        if self.max_concurrent_writes == 0 {
            problems.push("--max-concurrent-writes must be at least 1".to_owned());
        }
        problems
    }
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

/// The command line as v0.5.0 took it: underscores in the names of flags stand for dashes, and
/// flags without a command are those of `run`.
pub(crate) fn as_before(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = arguments
        .into_iter()
        .map(|argument| match argument.to_str() {
            Some(text) if text.starts_with("--") => {
                let (name, value) = text.split_once('=').unwrap_or((text, ""));
                let equals = if text.contains('=') { "=" } else { "" };
                format!("{}{equals}{value}", name.replace('_', "-")).into()
            }
            _ => argument,
        })
        .collect();
    let first = arguments.get(1).and_then(|argument| argument.to_str()).unwrap_or_default();
    let is_flag = first.starts_with('-') && first != "-";
    if is_flag && !["-h", "--help", "-V", "--version"].contains(&first) {
        arguments.insert(1, "run".into());
    }
    arguments
}

/// Go's spellings of true and false.
fn boolean(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err("expected true or false".to_owned()),
    }
}

/// Reads a duration as Go writes it: numbers with units from ns to h, one after the other.
fn duration(text: &str) -> Result<Duration, String> {
    let expected = || "expected a duration such as 100ms, 1.5s or 1m30s".to_owned();
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let mut rest = text;
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(expected)?;
        let (number, unit) = rest.split_at(digits);
        let end = unit.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(unit.len());
        let (unit, after) = unit.split_at(end);
        let number: f64 = number.parse().map_err(|_| expected())?;
        let seconds = match unit {
            "ns" => 1e-9,
            "us" | "µs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return Err(expected()),
        };
        let part =
            Duration::try_from_secs_f64(number * seconds).map_err(|_| "too long".to_owned())?;
        total = total.checked_add(part).ok_or_else(|| "too long".to_owned())?;
        rest = after;
    }
    if text.is_empty() { Err(expected()) } else { Ok(total) }
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

    fn parse(arguments: &[&str]) -> Result<RunArgs, clap::Error> {
        let all = ["kube-batch"].iter().chain(arguments).map(OsString::from);
        match Cli::try_parse_from(as_before(all))?.command {
            Command::Run(args) => Ok(*args),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_manual_has_every_flag() {
        let manual = include_str!("../../docs/install.md");
        let command = Cli::command();
        let run = command.find_subcommand("run").expect("it is a command");
        let mut rows = 0;
        for argument in run.get_arguments() {
            let Some(flag) = argument.get_long() else { continue };
            if argument.is_hide_set() {
                assert!(manual.contains(&format!("`--{flag}`")), "--{flag} is not mentioned");
                continue;
            }
            let quoted =
                |text: &str| if text.is_empty() { String::new() } else { format!(" `{text}`") };
            let environment = argument.get_env().and_then(|name| name.to_str()).unwrap_or_default();
            let default = argument.get_default_values().first().and_then(|value| value.to_str());
            let mut row = format!("| `--{flag}` |{} |", quoted(environment));
            if let Some(default) = default {
                row = format!("{row}{} |", quoted(default));
            }
            assert!(manual.contains(&row), "docs/install.md has no row {row}");
            rows += 1;
        }
        assert_eq!(
            manual.matches("| `--").count(),
            rows,
            "docs/install.md has flags that are gone"
        );
    }

    #[test]
    fn flags_are_those_of_before() {
        let args = parse(&[
            "--scheduler_name=batch",
            "--schedule-period=100ms",
            "--leader-elect",
            "--lock_object_namespace=kube-system",
            "--priority-class=false",
            "--logtostderr",
            "--v=3",
            "--listen-address=:8081",
            "--log-flush-frequency=5s",
        ])
        .expect("flags of v0.5.0");
        assert_eq!(args.scheduler_name, "batch");
        assert_eq!(args.schedule_period, Duration::from_millis(100));
        assert!(args.leader_elect && !args.priority_class);
        assert_eq!((args.verbosity, &*args.listen_address), (3, ":8081"));
        assert_eq!(args.problems(), Vec::<String>::new());
        assert!(parse(&["--no-such-flag"]).is_err());
        assert!(parse(&["--leader-elect=maybe"]).is_err());
    }

    #[test]
    fn what_does_not_fit_together_is_told() {
        let args = parse(&["--leader-elect", "--renew-deadline=20s", "--schedule-period=0s"]);
        let problems = args.expect("each flag is good").problems();
        assert_eq!(problems.len(), 3, "{problems:?}");
        assert!(problems[0].contains("--lock-object-namespace"));
    }

    #[test]
    fn durations_are_those_of_go() {
        for (text, millis) in
            [("100ms", 100), ("1s", 1000), ("1m30s", 90_000), ("1.5s", 1500), ("0", 0)]
        {
            assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "5", "s", "1d", "1..5s", "-1s", "99999999999999999999h"] {
            assert!(duration(text).is_err(), "{text}");
        }
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
