//! A cluster with the scheduler in it, and what tests need to observe it.

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
    cluster::Options,
    nodes::Nodes,
    pool::{Pool, PooledPlane},
    process::Process,
};
use serde_json::{Value, json};
use xtask_launcher::build::{self, root};

use crate::reader::{self, Reader};

/// Maximum time until a condition holds. It usually takes a second or two; the rest is for a
/// loaded machine.
const TIMEOUT: Duration = Duration::from_secs(60);
/// How long [`Bed::consistently`] observes a condition.
pub(crate) const OBSERVATION_PERIOD: Duration = Duration::from_secs(4);
/// Time between two checks of a condition.
const POLL_INTERVAL: Duration = Duration::from_millis(150);
/// Namespace of the scheduler.
pub(crate) const SYSTEM: &str = "kube-batch-system";
/// User name of the scheduler in the audit log of the API server.
pub(crate) const SCHEDULER: &str = "system:serviceaccount:kube-batch-system:kube-batch";
/// Namespace of the pods that the scheduler schedules.
pub(crate) const NAMESPACE: &str = "test";

/// The path of the scheduler's binary, which is built once in the profile of this test.
pub(crate) fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| build::debug().expect("the scheduler builds"))
}

/// The control planes of all tests.
static PLANES: Pool = Pool::new();

/// A cluster under test.
pub(crate) struct Bed {
    /// The first field, so that they are killed before the control plane is given to another test.
    schedulers: Vec<Scheduler>,
    reader: Reader,
    pub(crate) plane: PooledPlane,
}

/// A running scheduler.
pub(crate) struct Scheduler {
    process: Process,
    port: u16,
}

impl Bed {
    /// Starts a cluster with `nodes` and the objects of `deploy/`, but no scheduler.
    pub(crate) fn new(nodes: &Nodes) -> Self {
        Self::with_options(Options::default(), nodes)
    }

    /// Starts a cluster without nodes and without the objects of `deploy/`.
    pub(crate) fn empty() -> Self {
        Self::empty_with_options(Options::default())
    }

    /// Like [`empty`](Self::empty), with these options of the control plane.
    pub(crate) fn empty_with_options(options: Options) -> Self {
        let mut bed = Self::take(options, "empty");
        bed.remember();
        bed
    }

    /// Like [`new`](Self::new), with these options of the control plane.
    pub(crate) fn with_options(options: Options, nodes: &Nodes) -> Self {
        let mut bed = Self::take(options, "installed");
        if bed.plane.is_new() {
            bed.install();
            bed.wait_until_removed(&["replicasets.apps", "pods"]);
            bed.remember();
        }
        bed.plane.create_nodes(nodes).expect("nodes are created");
        bed.create_namespace(NAMESPACE);
        bed
    }

    /// A control plane in this state, which has to be prepared if it is new. All have an audit log, so that tests
    /// with and without one use the same.
    fn take(options: Options, state: &'static str) -> Self {
        let options = Options { audit: true, ..options };
        let thread = thread::current();
        // The harness names a thread after its test.
        let plane = PLANES.take(thread.name().unwrap_or("a test"), options, state);
        let plane = plane.unwrap_or_else(|error| panic!("{error}"));
        let reader = Reader::new(&plane.kubeconfig());
        Self { schedulers: Vec::new(), reader, plane }
    }

    /// Remembers the state of a new control plane for the tests after this one.
    fn remember(&mut self) {
        if self.plane.is_new() {
            self.plane.remember().unwrap_or_else(|error| panic!("{error}"));
        }
    }

    /// Waits until the garbage collector has deleted everything of these kinds.
    fn wait_until_removed(&self, kinds: &[&str]) {
        for kind in kinds {
            self.eventually(&format!("{kind} are deleted"), || {
                let left = self.kubectl(["get", kind, "--all-namespaces", "--output=name"])?;
                if left.is_empty() { Ok(()) } else { Err(left) }
            });
        }
    }

    /// Creates a namespace and waits until pods can be created in it.
    pub(crate) fn create_namespace(&self, name: &str) {
        self.apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}));
        self.eventually(&format!("namespace {name} has a service account"), || {
            self.reader.get(&format!("/api/v1/namespaces/{name}/serviceaccounts/default")).map(drop)
        });
    }

    /// Applies the manifests in `deploy/` and waits until the API server serves their kinds.
    pub(crate) fn install(&self) {
        let deploy = root().join("deploy");
        let applied =
            self.kubectl(["apply", "--kustomize", deploy.to_str().expect("a plain path")]);
        applied.unwrap_or_else(|error| panic!("deploy/ cannot be installed: {error}"));
        // Tests start the scheduler themselves: simulated nodes run no containers.
        let deployments = ["delete", "deployments", "--all", "--namespace", SYSTEM];
        self.kubectl(deployments).unwrap_or_else(|error| panic!("{error}"));
        self.wait_until_served("scheduling.sigs.dev");
    }

    /// Installs the older API group and waits until the API server serves its kinds.
    pub(crate) fn install_older_group(&self) {
        self.install_component("v1alpha1");
        self.wait_until_served("scheduling.incubator.k8s.io");
    }

    /// Applies a directory of `deploy/components`.
    pub(crate) fn install_component(&self, name: &str) {
        let component = root().join("deploy/components").join(name);
        let applied =
            self.kubectl(["apply", "--kustomize", component.to_str().expect("a plain path")]);
        applied.unwrap_or_else(|error| panic!("{name} cannot be installed: {error}"));
    }

    fn wait_until_served(&self, group: &str) {
        self.eventually(&format!("PodGroups and Queues of {group} are served"), || {
            ["podgroups", "queues"].into_iter().try_for_each(|plural| {
                let path = reader::path(&format!("{plural}.{group}"), None).expect("a known group");
                self.reader.get(&path).map(drop)
            })
        });
    }

    /// Starts a scheduler with these additional flags and waits until it is ready. It uses the
    /// sample configuration unless the flags name another.
    pub(crate) fn start_scheduler(&mut self, flags: &[&str]) -> usize {
        let row = self.spawn_scheduler(flags);
        self.wait_until_ready(row);
        row
    }

    /// Waits until a scheduler is ready: it has listed all objects.
    pub(crate) fn wait_until_ready(&self, row: usize) {
        self.eventually("the scheduler is ready", || {
            let (status, body) = self.schedulers[row].get("/readyz");
            if status == 200 { Ok(()) } else { Err(body) }
        });
    }

    /// Starts a scheduler without waiting until it is ready.
    pub(crate) fn spawn_scheduler(&mut self, flags: &[&str]) -> usize {
        let kubeconfig = self
            .plane
            .service_account_kubeconfig(SYSTEM, "kube-batch")
            .expect("deploy/ has a service account");
        self.spawn_scheduler_as(&kubeconfig, flags)
    }

    /// Starts a scheduler with this kubeconfig, without waiting until it is ready.
    pub(crate) fn spawn_scheduler_as(&mut self, kubeconfig: &Path, flags: &[&str]) -> usize {
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

    /// The scheduler at this position, in the order in which they were started.
    pub(crate) fn scheduler(&self, row: usize) -> &Scheduler {
        &self.schedulers[row]
    }

    /// Number of running schedulers.
    pub(crate) fn n_schedulers(&self) -> usize {
        self.schedulers.len()
    }

    /// Removes a scheduler from the list, so that the caller can stop it.
    pub(crate) fn take_scheduler(&mut self, row: usize) -> Scheduler {
        self.schedulers.remove(row)
    }

    /// Runs `kubectl` and returns its standard output.
    pub(crate) fn kubectl<const N: usize>(&self, args: [&str; N]) -> Result<String, String> {
        let output = self.plane.kubectl(args).map_err(|error| error.to_string())?;
        Ok(output)
    }

    /// Applies an object.
    pub(crate) fn apply(&self, object: &Value) {
        self.plane.apply(&object.to_string()).unwrap_or_else(|error| panic!("{error}"));
    }

    /// Lists the objects of a kind in the namespace of the test.
    pub(crate) fn list(&self, kind: &str) -> Vec<Value> {
        self.list_in(kind, Some(NAMESPACE))
    }

    /// Lists the objects of a kind in all namespaces.
    pub(crate) fn list_all(&self, kind: &str) -> Vec<Value> {
        self.list_in(kind, None)
    }

    fn list_in(&self, kind: &str, namespace: Option<&str>) -> Vec<Value> {
        let list = match reader::path(kind, namespace) {
            Some(path) => self.reader.get(&path),
            None => {
                let namespace = namespace.map(|name| format!("--namespace={name}"));
                let namespace = namespace.as_deref().unwrap_or("--all-namespaces");
                self.read(["get", kind, namespace, "--output", "json"])
            }
        };
        let mut list = list.unwrap_or_else(|error| panic!("{kind}: {error}"));
        let Value::Array(items) = list["items"].take() else { panic!("{kind}: no list: {list}") };
        items
    }

    /// An object in the namespace of the test; `Null` if it does not exist.
    pub(crate) fn get(&self, kind: &str, name: &str) -> Value {
        let object = match reader::path(kind, Some(NAMESPACE)) {
            Some(path) => self.reader.get(&format!("{path}/{name}")),
            None => self.read(["get", kind, name, "--namespace", NAMESPACE, "--output", "json"]),
        };
        object.unwrap_or_default()
    }

    fn read<const N: usize>(&self, args: [&str; N]) -> Result<Value, String> {
        let text = self.kubectl(args)?;
        Ok(serde_json::from_str(&text).expect("kubectl writes JSON"))
    }

    /// The pods of a Job that are in this phase and are not being terminated.
    pub(crate) fn pods_in(&self, owner: &str, phase: &str) -> Vec<Value> {
        let mut pods = self.list("pods");
        pods.retain(|pod| {
            pod["metadata"]["labels"]["of"] == owner
                && pod["status"]["phase"] == phase
                && pod["metadata"]["deletionTimestamp"].is_null()
        });
        pods
    }

    /// Number of pods of a Job, in any namespace, that are bound to a node.
    pub(crate) fn n_bound(&self, owner: &str) -> usize {
        let pods = self.list_all("pods");
        let is_bound = |pod: &&Value| {
            pod["metadata"]["labels"]["of"] == owner && pod["spec"]["nodeName"].is_string()
        };
        pods.iter().filter(is_bound).count()
    }

    /// Waits until `n_pods` pods of a Job are bound, and returns how long that took.
    pub(crate) fn wait_until_bound(&self, owner: &str, n_pods: usize) -> Duration {
        let start = Instant::now();
        self.eventually(&format!("{n_pods} pods of {owner} are bound"), || {
            let bound = self.n_bound(owner);
            if bound == n_pods { Ok(()) } else { Err(format!("{bound} are bound")) }
        });
        start.elapsed()
    }

    /// Waits until exactly `n_pods` pods of a Job are running.
    pub(crate) fn wait_until_running(&self, owner: &str, n_pods: usize) {
        self.eventually(&format!("{n_pods} pods of {owner} are running"), || {
            let running = self.pods_in(owner, "Running").len();
            if running == n_pods { Ok(()) } else { Err(format!("{running} are running")) }
        });
    }

    /// Waits until a condition holds; fails the test if it does not in time.
    pub(crate) fn eventually(&self, what: &str, holds: impl Fn() -> Result<(), String>) {
        let start = Instant::now();
        loop {
            match holds() {
                Ok(()) => return,
                Err(why) if start.elapsed() > TIMEOUT => self.fail(&format!("{what}: {why}")),
                Err(_) => thread::sleep(POLL_INTERVAL),
            }
        }
    }

    /// Fails the test if a condition does not hold during the whole observation period.
    pub(crate) fn consistently(&self, what: &str, holds: impl Fn() -> Result<(), String>) {
        let start = Instant::now();
        while start.elapsed() < OBSERVATION_PERIOD {
            if let Err(why) = holds() {
                self.fail(&format!("{what}: {why}"));
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Waits until pods of a Job are pending, and fails the test if one is running during the observation
    /// period. Without the wait, a Job whose controller is late would pass with no pod at all.
    pub(crate) fn expect_waiting(&self, owner: &str) {
        let waits = || {
            let [n_pending, n_running] =
                ["Pending", "Running"].map(|phase| self.pods_in(owner, phase).len());
            if n_pending > 0 && n_running == 0 {
                Ok(())
            } else {
                Err(format!("{n_pending} are pending, {n_running} are running"))
            }
        };
        self.eventually(&format!("pods of {owner} are pending"), waits);
        self.consistently(&format!("no pod of {owner} is running"), waits);
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
    /// Sends a GET request to its HTTP server and returns the status and the body; status 0 means
    /// that there was no response.
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

    /// Its log so far.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.process.log()).unwrap_or_default()
    }

    /// The sum of all series of a metric; 0 if there is none.
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

    /// Whether its metrics report that it is the leader.
    pub(crate) fn is_leader(&self) -> bool {
        self.metric("kube_batch_leader") == 1.0
    }

    /// Stops it with SIGTERM, as a kubelet does, and returns its exit code.
    pub(crate) fn terminate(self) -> Option<i32> {
        self.process.stop(Duration::from_secs(30)).expect("the scheduler ends").code()
    }

    /// Its exit code, if it has ended.
    pub(crate) fn exit_code(&mut self) -> Option<i32> {
        self.process.ended().expect("its state is known")?.code()
    }

    /// Suspends it with SIGSTOP.
    pub(crate) fn suspend(&self) {
        self.process.suspend().expect("the scheduler is running");
    }

    /// Resumes it with SIGCONT.
    pub(crate) fn resume(&self) {
        self.process.resume().expect("the scheduler is suspended");
    }

    /// Kills it with SIGKILL.
    pub(crate) fn kill(self) {
        self.process.kill().expect("the scheduler ends");
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    listener.local_addr().expect("a listener has an address").port()
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

/// The pods `NAME-0`, `NAME-1` and so on of a Job, without the Job: they can be created all at once, and
/// nothing replaces them.
pub(crate) fn pods(name: &str, n: usize, cpu: &str) -> Vec<Value> {
    let template = &job(name, 1, cpu)["spec"]["template"];
    let pod = |nth: usize| {
        let mut pod = template.clone();
        pod["apiVersion"] = json!("v1");
        pod["kind"] = json!("Pod");
        pod["metadata"]["name"] = json!(format!("{name}-{nth}"));
        pod["metadata"]["namespace"] = json!(NAMESPACE);
        pod
    };
    (0..n).map(pod).collect()
}

/// `n` nodes with this amount of CPU.
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
