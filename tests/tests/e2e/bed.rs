//! A cluster with the scheduler in it, and how tests look at it.

use std::{
    fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
    thread,
    time::{Duration, Instant},
};

use kube_batch_testbed::{
    cluster::{ControlPlane, Options},
    nodes::Nodes,
    process::Process,
};
use kube_batch_tests::build::{self, root};
use serde_json::{Value, json};

/// How long something may take to happen. It takes a second or two; the rest is for a machine with
/// other work.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long something that must not happen is waited for.
pub(crate) const QUIET: Duration = Duration::from_secs(4);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(150);
/// Namespace of the scheduler.
pub(crate) const SYSTEM: &str = "kube-batch-system";
/// The scheduler, as the API server's audit log calls it.
pub(crate) const SCHEDULER: &str = "system:serviceaccount:kube-batch-system:kube-batch";
/// Namespace of what is scheduled.
pub(crate) const NAMESPACE: &str = "test";

/// The scheduler's binary, built once in the profile of this test.
pub(crate) fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| build::debug().expect("it builds"))
}

/// A cluster under test.
pub(crate) struct Bed {
    pub(crate) plane: ControlPlane,
    schedulers: Vec<Scheduler>,
}

/// A scheduler that runs.
pub(crate) struct Scheduler {
    process: Process,
    port: u16,
}

impl Bed {
    /// A cluster of `nodes` with what `deploy/` installs and no scheduler yet.
    pub(crate) fn new(nodes: &Nodes) -> Self {
        Self::with(Options::default(), nodes)
    }

    /// A cluster with nothing in it.
    pub(crate) fn bare() -> Self {
        Self::on(Options::default())
    }

    fn on(options: Options) -> Self {
        let plane = ControlPlane::start(options).unwrap_or_else(|error| panic!("{error}"));
        Self { plane, schedulers: Vec::new() }
    }

    /// A cluster as by [`new`](Self::new), of another kind of control plane.
    pub(crate) fn with(options: Options, nodes: &Nodes) -> Self {
        let bed = Self::on(options);
        bed.install();
        bed.plane.create_nodes(nodes).expect("nodes are made");
        bed.make_namespace(NAMESPACE);
        bed
    }

    /// A namespace that pods can be made in.
    pub(crate) fn make_namespace(&self, name: &str) {
        self.apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}));
        self.eventually("it has a service account", || {
            self.kubectl(["get", "serviceaccount", "default", "--namespace", name]).map(drop)
        });
    }

    /// Applies what `deploy/` holds, and waits until its kinds can be used.
    pub(crate) fn install(&self) {
        let deploy = root().join("deploy");
        let applied =
            self.kubectl(["apply", "--kustomize", deploy.to_str().expect("a plain path")]);
        applied.unwrap_or_else(|error| panic!("deploy/ cannot be installed: {error}"));
        // Tests run the scheduler themselves; on a simulated node it would only seem to run.
        let deployments = ["delete", "deployments", "--all", "--namespace", SYSTEM];
        self.kubectl(deployments).unwrap_or_else(|error| panic!("{error}"));
        let kinds = ["podgroups", "queues"].map(|resource| {
            format!("{resource}.scheduling.incubator.k8s.io,{resource}.scheduling.sigs.dev")
        });
        self.eventually("its kinds are served", || {
            self.kubectl(["get", &kinds.join(","), "--all-namespaces"]).map(drop)
        });
    }

    /// Starts a scheduler with further flags, and the sample configuration unless they name one,
    /// and waits until it knows the cluster.
    pub(crate) fn schedule(&mut self, flags: &[&str]) -> usize {
        let row = self.start(flags);
        self.is_ready(row);
        row
    }

    /// Waits until a scheduler knows the cluster.
    pub(crate) fn is_ready(&self, row: usize) {
        self.eventually("the scheduler is ready", || {
            let (status, body) = self.schedulers[row].get("/readyz");
            if status == 200 { Ok(()) } else { Err(body) }
        });
    }

    /// Starts a scheduler and does not wait.
    pub(crate) fn start(&mut self, flags: &[&str]) -> usize {
        let kubeconfig = self
            .plane
            .service_account_kubeconfig(SYSTEM, "kube-batch")
            .expect("deploy/ has a service account");
        self.start_as(&kubeconfig, flags)
    }

    /// Starts a scheduler that says to be somebody else, and does not wait.
    pub(crate) fn start_as(&mut self, kubeconfig: &Path, flags: &[&str]) -> usize {
        let row = self.schedulers.len();
        let port = free_port();
        let mut command = Command::new(binary());
        command
            .args(["run", "--create-default-queue"])
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .arg(format!("--listen-address=127.0.0.1:{port}"))
            .args(flags)
            .env(
                "KUBE_BATCH_LOG",
                "debug,h2=info,hyper=info,rustls=info,tower=info,kube_client=off",
            );
        if !flags.iter().any(|flag| flag.starts_with("--scheduler-conf")) {
            command.arg("--scheduler-conf").arg(root().join("examples/scheduler.yaml"));
        }
        let log = self.plane.log_dir().join(format!("kube-batch-{row}.log"));
        let process = Process::start(&format!("kube-batch-{row}"), &command, &log)
            .unwrap_or_else(|error| panic!("{error}"));
        self.schedulers.push(Scheduler { process, port });
        row
    }

    /// A scheduler, in the order in which they were started.
    pub(crate) fn scheduler(&self, row: usize) -> &Scheduler {
        &self.schedulers[row]
    }

    /// How many schedulers run.
    pub(crate) fn n_schedulers(&self) -> usize {
        self.schedulers.len()
    }

    /// Takes a scheduler out of the bed, to end it.
    pub(crate) fn take(&mut self, row: usize) -> Scheduler {
        self.schedulers.remove(row)
    }

    /// Runs `kubectl`; its standard output.
    pub(crate) fn kubectl<const N: usize>(&self, args: [&str; N]) -> Result<String, String> {
        let output = self.plane.kubectl(args).map_err(|error| error.to_string())?;
        Ok(output)
    }

    /// Applies an object.
    pub(crate) fn apply(&self, object: &Value) {
        self.plane.apply(&object.to_string()).unwrap_or_else(|error| panic!("{error}"));
    }

    /// All objects of a kind in the test's namespace.
    pub(crate) fn list(&self, kind: &str) -> Vec<Value> {
        self.list_in("--namespace=test", kind)
    }

    /// All objects of a kind.
    pub(crate) fn list_all(&self, kind: &str) -> Vec<Value> {
        self.list_in("--all-namespaces", kind)
    }

    fn list_in(&self, namespace: &str, kind: &str) -> Vec<Value> {
        let text = self
            .kubectl(["get", kind, namespace, "--output", "json"])
            .unwrap_or_else(|error| panic!("{error}"));
        let list: Value = serde_json::from_str(&text).expect("kubectl writes JSON");
        list["items"].as_array().expect("a list has items").clone()
    }

    /// One object in the test's namespace.
    pub(crate) fn get(&self, kind: &str, name: &str) -> Value {
        let text = self.kubectl(["get", kind, name, "--namespace", NAMESPACE, "--output", "json"]);
        text.map_or(Value::Null, |text| serde_json::from_str(&text).expect("kubectl writes JSON"))
    }

    /// Pods of a Job or PodGroup that are in a phase; terminating ones are in none.
    pub(crate) fn pods_in(&self, owner: &str, phase: &str) -> Vec<Value> {
        let mut pods = self.list("pods");
        pods.retain(|pod| {
            pod["metadata"]["labels"]["of"] == owner
                && pod["status"]["phase"] == phase
                && pod["metadata"]["deletionTimestamp"].is_null()
        });
        pods
    }

    /// Waits until so many pods of an owner run.
    pub(crate) fn runs(&self, owner: &str, n_pods: usize) {
        self.eventually(&format!("{n_pods} pods of {owner} run"), || {
            let running = self.pods_in(owner, "Running").len();
            if running == n_pods { Ok(()) } else { Err(format!("{running} run")) }
        });
    }

    /// Waits until something holds.
    pub(crate) fn eventually(&self, what: &str, holds: impl Fn() -> Result<(), String>) {
        let start = Instant::now();
        loop {
            match holds() {
                Ok(()) => return,
                Err(why) if start.elapsed() > PATIENCE => self.fail(&format!("{what}: {why}")),
                Err(_) => thread::sleep(PAUSE),
            }
        }
    }

    /// Checks for a while that something stays true.
    pub(crate) fn always(&self, what: &str, holds: impl Fn() -> Result<(), String>) {
        let start = Instant::now();
        while start.elapsed() < QUIET {
            if let Err(why) = holds() {
                self.fail(&format!("{what}: {why}"));
            }
            thread::sleep(PAUSE);
        }
    }

    /// Watches for a while that no pod of an owner starts.
    pub(crate) fn never_runs(&self, owner: &str) {
        self.always(&format!("nothing of {owner} starts"), || {
            let running = self.pods_in(owner, "Running").len();
            if running == 0 { Ok(()) } else { Err(format!("{running} run")) }
        });
    }

    fn fail(&self, what: &str) -> ! {
        self.plane.keep_logs();
        let mut tails = String::new();
        for scheduler in &self.schedulers {
            let log = scheduler.log();
            let lines: Vec<&str> = log.lines().collect();
            let tail = lines[lines.len().saturating_sub(30)..].join("\n");
            tails.push_str(&format!("\n--- {}\n{tail}", scheduler.process.name()));
        }
        panic!("{what}\nlogs are in {}{tails}", self.plane.log_dir().display());
    }
}

impl Scheduler {
    /// Asks its HTTP server; status and body. No answer is status 0.
    pub(crate) fn get(&self, path: &str) -> (u16, String) {
        self.try_get(path).unwrap_or_else(|error| (0, error.to_string()))
    }

    fn try_get(&self, path: &str) -> std::io::Result<(u16, String)> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        write!(stream, "GET {path} HTTP/1.0\r\nHost: scheduler\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        let status = text.split(' ').nth(1).and_then(|status| status.parse().ok());
        let body = text.split_once("\r\n\r\n").map(|(_, body)| body.to_owned());
        Ok((status.unwrap_or(0), body.unwrap_or_default()))
    }

    /// What it has logged.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.process.log()).unwrap_or_default()
    }

    /// The value of a metric, all its series added up; 0 if it is not there.
    pub(crate) fn metric(&self, name: &str) -> f64 {
        let (_, text) = self.get("/metrics");
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let values = lines.filter_map(|line| {
            let (series, value) = line.rsplit_once(' ')?;
            let matches = series == name || series.starts_with(&format!("{name}{{"));
            matches.then(|| value.parse::<f64>().ok()).flatten()
        });
        values.sum()
    }

    /// Whether it leads, as it says itself.
    pub(crate) fn leads(&self) -> bool {
        self.metric("kube_batch_leader") == 1.0
    }

    /// Ends it as Kubernetes would, and says with which code it ended.
    pub(crate) fn terminate(self) -> Option<i32> {
        self.process.stop(Duration::from_secs(30)).expect("it ends").code()
    }

    /// Ends it in the middle of whatever it does.
    pub(crate) fn kill(self) {
        self.process.kill().expect("it ends");
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    listener.local_addr().expect("it has an address").port()
}

/// A Job of `n` pods that never finishes, each requesting `cpu`.
pub(crate) fn job(name: &str, n: usize, cpu: &str) -> Value {
    json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "parallelism": n,
            "completions": n,
            "template": {
                "metadata": {
                    "labels": {"of": name},
                    "annotations": {"scheduling.k8s.io/group-name": name},
                },
                "spec": {
                    "schedulerName": "kube-batch",
                    "restartPolicy": "Never",
                    "containers": [{
                        "name": "work",
                        "image": "busybox",
                        "resources": {"requests": {"cpu": cpu}},
                    }],
                },
            },
        },
    })
}

/// Nodes of so many cores.
pub(crate) fn nodes(n: usize, cpu: &str) -> Nodes {
    Nodes { n, cpu: cpu.to_owned(), ..Nodes::default() }
}

/// A PodGroup of the newer API group.
pub(crate) fn group(name: &str, min_member: usize) -> Value {
    json!({
        "apiVersion": "scheduling.sigs.dev/v1alpha2",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"minMember": min_member},
    })
}

/// A queue of the newer API group.
pub(crate) fn queue(name: &str, weight: u32) -> Value {
    json!({
        "apiVersion": "scheduling.sigs.dev/v1alpha2",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {"weight": weight},
    })
}

pub(crate) fn priority_class(name: &str, value: i32) -> Value {
    json!({
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
    })
}
