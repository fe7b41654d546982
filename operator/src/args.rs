//! The command line.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use kube_batch_cache::snapshot::{SchedulerNames, SnapshotOptions};
use kube_batch_cli::scheduler_name;
use kube_batch_model::{duration, group_version::GroupVersion, name::Name};

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
    #[command(flatten)]
    InCluster(kube_batch_cli::ClusterCommand),
    #[command(flatten)]
    Offline(kube_batch_cli::OfflineCommand),
}

const RUN_EXAMPLES: &str = "\
Examples:
  kube-batch run --kubeconfig ~/.kube/config --scheduler-conf examples/scheduler.yaml
  kube-batch run --leader-elect --lock-object-namespace kube-batch-system

Flags of kube-batch v0.5.0 keep their names and defaults. Flags may be written with underscores
instead of dashes. Boolean flags take an optional value, as in --leader-elect=false. `run` may be
omitted if the first argument is a flag.

Exit codes:
  0  stopped by SIGTERM or SIGINT
  2  invalid command line or configuration, or a fatal error";

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Address of the API server; overrides the one in the kubeconfig.
    #[arg(long, value_name = "URL", env = "KUBE_BATCH_MASTER")]
    pub(crate) master: Option<String>,
    /// Kubeconfig file (default: the service account of the pod).
    #[arg(long, value_name = "FILE", env = "KUBECONFIG")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Scheduler name; only pods with this spec.schedulerName are scheduled. To serve several, repeat
    /// the flag or separate the names with commas; events name the first.
    #[arg(long = "scheduler-name", default_values_t = SchedulerNames::default().iter(), value_name = "NAME",
        value_delimiter = ',', value_parser = scheduler_name, env = "KUBE_BATCH_SCHEDULER_NAME")]
    pub(crate) scheduler_names: Vec<Name>,
    /// Scheduler configuration file, reloaded when it changes (default: a built-in configuration with
    /// the actions allocate and backfill, and all plugins except conformance, pdb,
    /// binpack and reservation).
    #[arg(
        long = "scheduler-conf",
        visible_alias = "config",
        value_name = "FILE",
        env = "KUBE_BATCH_CONFIG"
    )]
    pub(crate) config: Option<PathBuf>,
    /// How often to check whether a scheduling cycle is due; more than 1s has no effect. A change in
    /// the cluster starts a cycle at once.
    #[arg(long, default_value = "1s", value_parser = duration::parse, value_name = "DURATION", env = "KUBE_BATCH_SCHEDULE_PERIOD")]
    pub(crate) schedule_period: Duration,
    /// Queue for PodGroups that name none and for pods without a PodGroup.
    #[arg(long, default_value_t = SnapshotOptions::default().default_queue, value_name = "QUEUE",
        env = "KUBE_BATCH_DEFAULT_QUEUE")]
    pub(crate) default_queue: Name,
    /// Create the default queue, with weight 1, if it is missing when this replica becomes leader.
    #[arg(long, value_name = "BOOL", env = "KUBE_BATCH_CREATE_DEFAULT_QUEUE", value_parser = boolean,
        default_value = "false", num_args = 0..=1, require_equals = true,
        default_missing_value = "true", action = ArgAction::Set)]
    pub(crate) create_default_queue: bool,
    /// Rank PodGroups by their PriorityClass; if false, all have priority 0.
    #[arg(long, value_name = "BOOL", env = "KUBE_BATCH_PRIORITY_CLASS", value_parser = boolean,
        default_value = "true", num_args = 0..=1, require_equals = true,
        default_missing_value = "true", action = ArgAction::Set)]
    pub(crate) priority_class: bool,
    /// Treat this API of PodGroups as not served, such as scheduling.x-k8s.io/v1alpha1; may be repeated.
    #[arg(long = "without-api", value_name = "GROUP/VERSION", env = "KUBE_BATCH_WITHOUT_API", value_parser = other_api,
        value_delimiter = ',')]
    pub(crate) without_apis: Vec<GroupVersion>,
    /// Schedule only while holding a lease; required to run more than one replica.
    #[arg(long, value_name = "BOOL", env = "KUBE_BATCH_LEADER_ELECT", value_parser = boolean,
        default_value = "false", num_args = 0..=1, require_equals = true,
        default_missing_value = "true", action = ArgAction::Set)]
    pub(crate) leader_elect: bool,
    /// Namespace of the Lease kube-batch; required with --leader-elect.
    #[arg(
        long,
        default_value = "",
        hide_default_value = true,
        value_name = "NAMESPACE",
        env = "KUBE_BATCH_LOCK_OBJECT_NAMESPACE"
    )]
    pub(crate) lock_object_namespace: String,
    /// How long a lease is valid without renewal; whole seconds.
    #[arg(long, default_value = "15s", value_parser = duration::parse, value_name = "DURATION", env = "KUBE_BATCH_LEASE_DURATION")]
    pub(crate) lease_duration: Duration,
    /// How long the leader retries a failing renewal before it becomes a standby.
    #[arg(long, default_value = "10s", value_parser = duration::parse, value_name = "DURATION", env = "KUBE_BATCH_RENEW_DEADLINE")]
    pub(crate) renew_deadline: Duration,
    /// Time between attempts to acquire or renew the lease.
    #[arg(long, default_value = "2s", value_parser = duration::parse, value_name = "DURATION", env = "KUBE_BATCH_RETRY_PERIOD")]
    pub(crate) retry_period: Duration,
    /// Address to serve /metrics, /healthz and /readyz on; empty to serve nothing.
    #[arg(
        long,
        default_value = ":8080",
        value_name = "ADDRESS",
        env = "KUBE_BATCH_LISTEN_ADDRESS"
    )]
    pub(crate) listen_address: String,
    /// Serve the scheduler's cache at /debug/snapshot, in a format that `simulate -f` reads. It
    /// contains names from every namespace.
    #[arg(long, value_name = "BOOL", env = "KUBE_BATCH_DEBUG_SNAPSHOT", value_parser = boolean,
        default_value = "false", num_args = 0..=1, require_equals = true,
        default_missing_value = "true", action = ArgAction::Set)]
    pub(crate) debug_snapshot: bool,
    /// Maximum number of concurrent bindings and evictions, of which one namespace uses at most three
    /// quarters. There are half as many concurrent writes of statuses in addition, and a quarter each of
    /// events and of claims and volumes.
    #[arg(long, default_value_t = 48, value_name = "N", env = "KUBE_BATCH_MAX_CONCURRENT_WRITES")]
    pub(crate) max_concurrent_writes: usize,
    /// How many jobs that are not ready have metrics of their own; those that lack most tasks.
    #[arg(long, default_value_t = 100, value_name = "N", env = "KUBE_BATCH_MAX_JOB_METRICS")]
    pub(crate) max_job_metrics: usize,
    /// Append every decision to this file, as one line of JSON; - for standard output.
    #[arg(long, value_name = "FILE", env = "KUBE_BATCH_AUDIT_LOG")]
    pub(crate) audit_log: Option<PathBuf>,
    /// Log verbosity: 0-3 info: gangs that start, evictions, jobs that become unschedulable; 4-5
    /// debug: every decision; 6 and above trace: why each job waits, in every cycle. KUBE_BATCH_LOG
    /// replaces it with levels by module, as in warn,kube_batch=debug.
    #[arg(short, long = "v", default_value_t = 0, value_name = "LEVEL")]
    pub(crate) verbosity: u8,
    /// Log format.
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT", env = "KUBE_BATCH_LOG_FORMAT")]
    pub(crate) log_format: LogFormat,
    /// Logging flags of v0.5.0. They have no effect: logs go to standard error.
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
    /// Plain text, one line per record.
    #[default]
    Text,
    /// One JSON object per record.
    Json,
}

impl RunArgs {
    /// Flags that contradict each other.
    pub(crate) fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.leader_elect && self.lock_object_namespace.is_empty() {
            problems.push(
                "--leader-elect needs --lock-object-namespace, the namespace of the Lease"
                    .to_owned(),
            );
        }
        if self.renew_deadline >= self.lease_duration {
            problems.push(format!(
                "--renew-deadline {:?} must be shorter than --lease-duration {:?}: the \
                 leader must stop before another replica can start",
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

/// Translates a command line of v0.5.0: underscores in flag names become dashes, and a command line
/// that begins with a flag gets the command `run`.
pub(crate) fn legacy_arguments(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
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

/// Parses the version of an API that is not our own.
fn other_api(text: &str) -> Result<GroupVersion, String> {
    let others = || GroupVersion::ALL.into_iter().filter(|version| !version.is_own());
    others().find(|version| version.to_string() == text).ok_or_else(|| {
        let names: Vec<String> = others().map(|version| version.to_string()).collect();
        format!("expected one of {}", names.join(", "))
    })
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
        match Cli::try_parse_from(legacy_arguments(all))?.command {
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
    fn flags_of_v0_5_0_are_accepted() {
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
        assert_eq!(args.scheduler_names, [Name::from("batch")]);
        assert_eq!(args.schedule_period, Duration::from_millis(100));
        assert!(args.leader_elect && !args.priority_class);
        assert_eq!((args.verbosity, &*args.listen_address), (3, ":8081"));
        assert_eq!(args.problems(), Vec::<String>::new());
        assert!(parse(&["--no-such-flag"]).is_err());
        assert!(parse(&["--leader-elect=maybe"]).is_err());
    }

    #[test]
    fn contradicting_flags_are_reported_together() {
        let args = parse(&["--leader-elect", "--renew-deadline=20s", "--schedule-period=0s"]);
        let problems = args.expect("each flag is good").problems();
        assert_eq!(problems.len(), 3, "{problems:?}");
        assert!(problems[0].contains("--lock-object-namespace"));
    }
}
