//! The schedulers that are measured, as processes.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use jiff::Timestamp;
use kube_batch_testbed::{
    audit::AuditEvent,
    cluster::{ControlPlane, Server},
    process::Process,
};

/// Maximum time for a contender to bind all pods.
const TIMEOUT: Duration = Duration::from_secs(400);

/// The name of the log of kube-batch.
pub(crate) const LOG: &str = "kube-batch.log";
/// Which log lines say how long each hop takes.
const HOPS_FILTER: &str = "warn,kube_batch::run::effects=trace";

/// A scheduler that can be started.
pub(crate) enum Scheduler {
    /// This binary of kube-batch.
    KubeBatch(PathBuf),
    KubeScheduler,
}

/// A scheduler that runs.
pub(crate) struct Running {
    /// Its user in the audit log.
    pub(crate) user: &'static str,
    pub(crate) started: Timestamp,
    /// Of kube-scheduler, the control plane knows the process.
    process: Option<Process>,
}

impl Scheduler {
    /// The name of the scheduler in its pods.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::KubeBatch(_) => "kube-batch",
            Self::KubeScheduler => "default-scheduler",
        }
    }

    /// Starts it. If `logs_hops`, kube-batch logs how long each hop of a pod takes.
    pub(crate) fn start(&self, plane: &mut ControlPlane, logs_hops: bool) -> Running {
        match self {
            Self::KubeBatch(binary) => kube_batch(plane, binary, logs_hops),
            Self::KubeScheduler => {
                let started = Timestamp::now();
                plane.restart(Server::Scheduler).expect("kube-scheduler starts");
                Running { user: "system:kube-scheduler", started, process: None }
            }
        }
    }
}

fn kube_batch(plane: &ControlPlane, binary: &Path, logs_hops: bool) -> Running {
    let kubeconfig = plane
        .service_account_kubeconfig("kube-batch-system", "kube-batch")
        .expect("deploy/ has a service account");
    let mut command = Command::new(binary);
    command.args(["run", "--create-default-queue", "--listen-address=", "--kubeconfig"]);
    command.arg(kubeconfig);
    if logs_hops {
        command.arg("--log-format=json").env("KUBE_BATCH_LOG", HOPS_FILTER);
    }
    let log = plane.log_dir().join(LOG);
    let started = Timestamp::now();
    let process =
        Process::start("kube-batch", &command, &log).unwrap_or_else(|error| panic!("{error}"));
    let user = "system:serviceaccount:kube-batch-system:kube-batch";
    Running { user, started, process: Some(process) }
}

impl Running {
    /// CPU time in seconds, and peak memory in MB.
    pub(crate) fn usage(&self, plane: &ControlPlane) -> (f64, u64) {
        let id = self.process.as_ref().map(Process::id);
        id.or_else(|| plane.process_id(Server::Scheduler)).map_or((0.0, 0), usage)
    }

    /// Whether this is a binding that the API server has accepted.
    pub(crate) fn has_bound(&self, event: &AuditEvent) -> bool {
        is_binding(event, self.user)
    }

    /// Waits until this number of pods is bound.
    pub(crate) fn wait_until_bound(&self, plane: &ControlPlane, n_pods: usize) {
        let start = Instant::now();
        // Reads only new events, because reading uses the cores that are measured.
        let mut log = plane.audit_reader();
        let mut n_bound = 0;
        while start.elapsed() < TIMEOUT {
            let events = log.read().expect("an audit log");
            n_bound += events.iter().filter(|event| self.has_bound(event)).count();
            if n_bound >= n_pods {
                return;
            }
            thread::sleep(Duration::from_secs(1));
        }
        plane.keep_logs();
        eprintln!("not all pods were bound; logs are in {}", plane.log_dir().display());
    }

    /// Waits until the scheduler has written nothing for this time: the conditions of many waiting pods take long to write.
    pub(crate) fn wait_until_quiet(&self, plane: &ControlPlane, quiet: Duration) {
        let start = Instant::now();
        let mut log = plane.audit_reader();
        let mut last_write = start;
        while last_write.elapsed() < quiet && start.elapsed() < TIMEOUT {
            let events = log.read().expect("an audit log");
            if events.iter().any(|event| is_write(event, self.user) && !is_of_lease(event)) {
                last_write = Instant::now();
            }
            thread::sleep(Duration::from_millis(500));
        }
    }
}

/// Whether this user has bound a pod.
pub(crate) fn is_binding(event: &AuditEvent, user: &str) -> bool {
    event.user == user
        && event.verb == "create"
        && event.subresource == "binding"
        && event.code < 300
}

/// Whether this user has changed an object.
pub(crate) fn is_write(event: &AuditEvent, user: &str) -> bool {
    event.user == user && ["create", "update", "patch", "delete"].contains(&event.verb.as_str())
}

/// Whether this renews the lease of the leader, as it does also while nothing happens.
fn is_of_lease(event: &AuditEvent) -> bool {
    event.resource == "leases"
}

/// CPU time of a process in seconds, and its peak memory in MB.
pub(crate) fn usage(pid: u32) -> (f64, u64) {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks: f64 = after_name
        .split_whitespace()
        .skip(11)
        .take(2)
        .filter_map(|ticks| ticks.parse::<f64>().ok())
        .sum();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let peak_kb = peak.and_then(|text| text.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    (ticks / 100.0, peak_kb.unwrap_or(0) / 1024)
}
