//! A control plane: its servers, and how tests use them.
//!
//! To a scheduler it looks like a cluster.
//! The API server with its validation, admission, RBAC and watches, etcd and the controllers are real.
//! KWOK simulates the kubelets and the volumes; without KWOK there are none.

mod flags;
pub mod snapshot;
mod uses;

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs,
    io::{self, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, SystemTime},
};

use crate::{
    assets::{Assets, Binary},
    audit::{self, AuditEvent, AuditReader},
    certificates::{Authority, Identity, Keys},
    directory::{Directory, Part},
    error::{Error, Result},
    kubeconfig::{self, Credentials},
    process::{Process, wait_for},
    stages,
};

/// The names in the certificate of the API server. 10.0.0.1 is the first address of the service network, which is
/// the address of the API server for pods.
const API_SERVER_NAMES: [&str; 4] =
    ["127.0.0.1", "localhost", "10.0.0.1", "kubernetes.default.svc"];

/// The file of the audit log, among the other logs.
const AUDIT_LOG: &str = "audit.log";

/// Maximum time until a server is ready. It usually takes a few seconds; the rest is for a loaded machine.
const START_TIMEOUT: Duration = Duration::from_secs(180);

/// Time between two checks whether the API server is ready; each check starts a process.
const READY_PAUSE: Duration = Duration::from_millis(300);

/// Number of attempts if a port is taken between being found and being used.
const N_ATTEMPTS: u32 = 5;

/// The options of a control plane. The defaults suit a test of a scheduler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Run the controllers of Kubernetes. Without them, Jobs create no pods and no garbage is collected.
    pub controllers: bool,
    /// Simulate the kubelets of all nodes. Without them, bound pods stay pending and nodes send no heartbeats.
    pub kwok: bool,
    /// Run kube-scheduler, for pods that name no other scheduler.
    pub scheduler: bool,
    /// Write an audit log.
    pub audit: bool,
    /// Turn off rate limits and heartbeats of nodes, so that they do not affect a benchmark.
    pub load: bool,
    /// Serve Kubernetes' own PodGroups, and let the Job controller create them.
    pub pod_groups: bool,
    /// Additional flags for the API server.
    pub api_server_flags: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            controllers: true,
            kwok: true,
            scheduler: false,
            audit: false,
            load: false,
            pod_groups: false,
            api_server_flags: Vec::new(),
        }
    }
}

impl Options {
    /// The binaries that a control plane with these options needs.
    pub fn binaries(&self) -> Vec<Binary> {
        let servers = self.servers().into_iter().map(Server::binary);
        servers.chain([Binary::Kubectl]).collect()
    }

    fn servers(&self) -> Vec<Server> {
        let optional = [
            (self.controllers, Server::Controllers),
            (self.kwok, Server::Kwok),
            (self.scheduler, Server::Scheduler),
        ];
        let chosen = optional.into_iter().filter(|(chosen, _)| *chosen).map(|(_, server)| server);
        [Server::Etcd, Server::ApiServer].into_iter().chain(chosen).collect()
    }

    /// Whether nodes send heartbeats. Five a second for a hundred nodes are part of a cluster, but
    /// fifty for a thousand would be part of what a benchmark measures.
    const fn has_heartbeats(&self) -> bool {
        self.kwok && !self.load
    }
}

/// A server of a control plane, in the order in which they start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Server {
    /// The store behind the API server.
    Etcd,
    /// The API server.
    ApiServer,
    /// The controllers of Kubernetes.
    Controllers,
    /// The kubelets of all nodes, and the provisioner of volumes.
    Kwok,
    /// The scheduler of Kubernetes.
    Scheduler,
}

impl Server {
    fn binary(self) -> Binary {
        match self {
            Self::Etcd => Binary::Etcd,
            Self::ApiServer => Binary::ApiServer,
            Self::Controllers => Binary::ControllerManager,
            Self::Kwok => Binary::Kwok,
            Self::Scheduler => Binary::Scheduler,
        }
    }

    /// Its user name, which the audit log shows.
    fn user(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::ApiServer => "kube-apiserver",
            Self::Controllers => "system:kube-controller-manager",
            Self::Kwok => "kwok",
            Self::Scheduler => "system:kube-scheduler",
        }
    }
}

/// A running control plane. Dropping it ends its servers and removes its files.
pub struct ControlPlane {
    options: Options,
    assets: Assets,
    authority: Authority,
    service_account_keys: Keys,
    serving: Identity,
    ports: Ports,
    /// The running servers, without those that were stopped.
    processes: BTreeMap<Server, Process>,
    n_kubeconfigs: AtomicU32,
    /// The audit log since the test began that uses it.
    audit: AuditReader,
    /// Number of tests that have begun to use it.
    n_uses: u32,
    /// Whether a server was stopped or restarted.
    is_altered: bool,
    /// The last field, so that it is dropped after the processes that write to it.
    directory: Directory,
}

#[derive(Clone, Copy, Debug)]
struct Ports {
    etcd: u16,
    etcd_peer: u16,
    api_server: u16,
}

impl ControlPlane {
    /// Starts a control plane and waits until pods can be created in it.
    ///
    /// # Errors
    ///
    /// Those of [`Assets::provide`]; [`Error::Server`] if a server does not become ready, with the end of its
    /// log, which is kept.
    pub fn start(options: Options) -> Result<Self> {
        let assets = Assets::provide(&options.binaries())?;
        for _ in 1..N_ATTEMPTS {
            match Self::attempt(&options, &assets) {
                Err(error) if is_address_in_use(&error) => {}
                done => return done,
            }
        }
        Self::attempt(&options, &assets)
    }

    fn attempt(options: &Options, assets: &Assets) -> Result<Self> {
        let mut plane = Self::prepare(options.clone(), assets.clone())?;
        let started = plane.start_all();
        match started {
            Ok(()) => Ok(plane),
            Err(error) => {
                if !is_address_in_use(&error) {
                    plane.keep_logs();
                }
                Err(error)
            }
        }
    }

    /// Creates the directory, certificates and configuration files of the servers.
    fn prepare(options: Options, assets: Assets) -> Result<Self> {
        let directory = Directory::new()?;
        let certificates = directory.part(Part::Certificates);
        let authority = Authority::new(&certificates)?;
        let serving = authority.server("kube-apiserver", &API_SERVER_NAMES, None)?;
        let service_account_keys = authority.service_account_keys()?;
        let [etcd, etcd_peer, api_server] =
            free_ports().map_err(Error::io("find free ports on 127.0.0.1"))?;
        let plane = Self {
            options,
            assets,
            authority,
            service_account_keys,
            serving,
            ports: Ports { etcd, etcd_peer, api_server },
            processes: BTreeMap::new(),
            n_kubeconfigs: AtomicU32::new(0),
            audit: AuditReader::new(directory.part(Part::Logs).join(AUDIT_LOG)),
            n_uses: 0,
            is_altered: false,
            directory,
        };
        let file = |name: &str, content: &str| {
            let path = certificates.join(name);
            fs::write(&path, content).map_err(Error::io(format!("write {}", path.display())))
        };
        file("audit-policy.yaml", audit::POLICY)?;
        file("kwok.yaml", &stages::config(plane.options.has_heartbeats()))?;
        plane.write_user("admin", "admin", &["system:masters"])?;
        for server in [Server::Controllers, Server::Kwok, Server::Scheduler] {
            // The test bed does not test the roles of these servers.
            plane.write_user(server.binary().name(), server.user(), &["system:masters"])?;
        }
        Ok(plane)
    }

    fn start_all(&mut self) -> Result<()> {
        // The API server waits for etcd by itself.
        self.spawn(Server::Etcd)?;
        self.spawn(Server::ApiServer)?;
        self.wait_until_ready()?;
        for server in self.options.servers() {
            if !self.processes.contains_key(&server) {
                self.spawn(server)?;
            }
        }
        if self.options.kwok {
            self.apply(stages::STORAGE_CLASSES)?;
        }
        if self.options.controllers {
            // Without this service account the API server admits no pod.
            let timeout = format!("--timeout={}s", START_TIMEOUT.as_secs());
            let account = "serviceaccount/default";
            self.kubectl(["wait", "--for=create", account, &timeout]).map_err(|error| {
                self.processes.get_mut(&Server::Controllers).map_or(error, |controllers| {
                    controllers.problem("did not create the default service account in time")
                })
            })?;
        }
        self.expect_running()
    }

    fn spawn(&mut self, server: Server) -> Result<()> {
        let name = server.binary().name();
        let log = self.log_dir().join(format!("{name}.log"));
        let process = Process::start(name, &self.command(server), &log)?;
        self.processes.insert(server, process);
        Ok(())
    }

    /// Waits for etcd and the API server.
    fn wait_until_ready(&mut self) -> Result<()> {
        let waited = wait_for("the API server", START_TIMEOUT, || {
            self.expect_running()?;
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.ports.api_server));
            if TcpStream::connect(address).is_err() {
                return Ok(None);
            }
            if self.kubectl(["get", "--raw", "/readyz"]).is_ok() {
                return Ok(Some(()));
            }
            thread::sleep(READY_PAUSE);
            Ok(None)
        });
        match (waited, self.processes.get(&Server::ApiServer)) {
            (Err(Error::Timeout { .. }), Some(api_server)) => {
                Err(api_server.problem(format!("is not ready after {} s", START_TIMEOUT.as_secs())))
            }
            (waited, _) => waited,
        }
    }

    /// Fails if a server has ended without being stopped.
    ///
    /// # Errors
    ///
    /// [`Error::Server`] with the end of its log.
    pub fn expect_running(&mut self) -> Result<()> {
        self.processes.values_mut().try_for_each(Process::expect_running)
    }

    /// Kills a server (SIGKILL); its data are kept. Does nothing if it is not running.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if it cannot be killed.
    pub fn stop(&mut self, server: Server) -> Result<()> {
        self.is_altered = true;
        self.processes.remove(&server).map_or(Ok(()), |process| process.kill().map(|_| ()))
    }

    /// Restarts a server with the same port and data; kills it first if it is running. Also starts a
    /// server that the options exclude. Returns when the API server is ready.
    ///
    /// # Errors
    ///
    /// [`Error::Server`] if it does not become ready, with the end of its log; the API server needs etcd.
    pub fn restart(&mut self, server: Server) -> Result<()> {
        self.stop(server)?;
        self.spawn(server)?;
        self.wait_until_ready()
    }

    /// `https://127.0.0.1:PORT`.
    pub fn api_server_address(&self) -> String {
        format!("https://127.0.0.1:{}", self.ports.api_server)
    }

    /// The certificate of the authority that signed the certificate of the API server.
    pub fn certificate_authority(&self) -> PathBuf {
        self.authority.certificate()
    }

    /// The kubeconfig of a cluster administrator.
    pub fn kubeconfig(&self) -> PathBuf {
        self.user_kubeconfig("admin")
    }

    /// The serving certificate of the API server and its key, as PEM files. A proxy on 127.0.0.1 can
    /// use the same.
    pub fn serving_certificate(&self) -> (&Path, &Path) {
        (&self.serving.certificate, &self.serving.key)
    }

    /// A certificate like that of the API server, and its key, which expired an hour ago.
    ///
    /// # Errors
    ///
    /// [`Error::Certificate`] or [`Error::Io`] if it cannot be created.
    pub fn expired_serving_certificate(&self) -> Result<(PathBuf, PathBuf)> {
        let expired = SystemTime::now() - Duration::from_secs(3600);
        let identity = self.authority.server("expired", &API_SERVER_NAMES, Some(expired))?;
        Ok((identity.certificate, identity.key))
    }

    /// A new kubeconfig that authenticates with `token`.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if it cannot be written.
    pub fn kubeconfig_for_token(&self, token: &str) -> Result<PathBuf> {
        let path = self.new_kubeconfig();
        self.write_kubeconfig(&path, &Credentials::Token(token))?;
        Ok(path)
    }

    /// A new kubeconfig of an existing service account, valid for a day.
    ///
    /// # Errors
    ///
    /// [`Error::Kubectl`] if there is no such service account.
    pub fn service_account_kubeconfig(&self, namespace: &str, name: &str) -> Result<PathBuf> {
        let token =
            self.kubectl(["create", "token", name, "--namespace", namespace, "--duration", "24h"])?;
        self.kubeconfig_for_token(token.trim())
    }

    /// A new kubeconfig of a user in groups, with the names that role bindings use.
    ///
    /// # Errors
    ///
    /// [`Error::Certificate`] or [`Error::Io`] if it cannot be created.
    pub fn kubeconfig_for_user(&self, user: &str, groups: &[&str]) -> Result<PathBuf> {
        let path = self.new_kubeconfig();
        self.renew_kubeconfig(&path, user, groups, None)?;
        Ok(path)
    }

    /// Writes the kubeconfig of a user in groups to a file, with a new certificate; with `expires`, it is valid until
    /// then.
    ///
    /// # Errors
    ///
    /// [`Error::Certificate`] or [`Error::Io`] if it cannot be created.
    pub fn renew_kubeconfig(
        &self,
        path: &Path,
        user: &str,
        groups: &[&str],
        expires: Option<SystemTime>,
    ) -> Result<()> {
        let file = path.file_stem().and_then(OsStr::to_str).expect("a kubeconfig has a name");
        let identity = self.authority.client(file, user, groups, expires)?;
        self.write_kubeconfig(path, &Credentials::Certificate(&identity))
    }

    /// Runs `kubectl` as administrator and returns what it printed.
    ///
    /// # Errors
    ///
    /// [`Error::Kubectl`] with its standard error.
    pub fn kubectl<A: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = A>,
    ) -> Result<String> {
        self.kubectl_stdin(arguments, "")
    }

    /// Like [`kubectl`](Self::kubectl), with `input` on its standard input.
    ///
    /// # Errors
    ///
    /// [`Error::Kubectl`] with its standard error.
    pub fn kubectl_stdin<A: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = A>,
        input: &str,
    ) -> Result<String> {
        let mut command = self.kubectl_command();
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        command.stderr(Stdio::piped());
        let mut child = command.spawn().map_err(Error::io("run kubectl"))?;
        let mut stdin = child.stdin.take().expect("standard input is piped");
        let output = thread::scope(|scope| {
            // On another thread than reading its output, or both processes could block. If kubectl ends
            // without reading all input, its exit status and standard error give the reason.
            scope.spawn(move || stdin.write_all(input.as_bytes()));
            child.wait_with_output()
        });
        let output = output.map_err(Error::io("run kubectl"))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let arguments: Vec<_> = command.get_args().map(OsStr::to_string_lossy).collect();
        let stderr = String::from_utf8_lossy(&output.stderr).trim_end().to_owned();
        Err(Error::Kubectl { arguments: arguments.join(" "), stderr })
    }

    /// A command that runs `kubectl` of the same release as administrator, still without arguments.
    pub fn kubectl_command(&self) -> Command {
        let mut command = Command::new(self.assets.path(Binary::Kubectl));
        command.env("KUBECONFIG", self.kubeconfig()).env("HOME", self.directory.part(Part::Home));
        command
    }

    /// Applies manifests, YAML or JSON.
    ///
    /// # Errors
    ///
    /// [`Error::Kubectl`] if the API server rejects one; those before it are applied.
    pub fn apply(&self, manifests: &str) -> Result<()> {
        self.kubectl_stdin(["apply", "--filename", "-"], manifests).map(|_| ())
    }

    /// Applies the CRDs of a directory and waits until the API server serves their kinds.
    ///
    /// # Errors
    ///
    /// [`Error::Kubectl`] if the API server rejects one.
    pub fn apply_crds(&self, directory: &Path) -> Result<()> {
        let filename = format!("--filename={}", directory.display());
        self.kubectl(["apply", &filename])?;
        self.kubectl(["wait", "--for=condition=Established", &filename]).map(|_| ())
    }

    /// The binaries that it was started from.
    pub fn assets(&self) -> &Assets {
        &self.assets
    }

    /// The directory of the logs: `etcd.log`, `kube-apiserver.log` and so on; tests may add their own.
    pub fn log_dir(&self) -> PathBuf {
        self.directory.part(Part::Logs)
    }

    /// Keeps the logs. This is automatic when a panic drops the control plane.
    pub fn keep_logs(&self) {
        self.directory.keep_logs();
    }

    fn audit_log(&self) -> PathBuf {
        self.log_dir().join(AUDIT_LOG)
    }

    /// A reader of the audit log; [`Options::audit`] must be set. It begins at the start of the control plane, or of
    /// the test for which a [`Pool`](crate::pool::Pool) gave it out.
    pub fn audit_reader(&self) -> AuditReader {
        self.audit.clone()
    }

    /// The events of the audit log so far.
    ///
    /// # Errors
    ///
    /// Those of [`AuditReader::read`].
    pub fn audit_events(&self) -> Result<Vec<AuditEvent>> {
        self.audit_reader().read()
    }

    /// The process id of a server, if it is running.
    pub fn process_id(&self, server: Server) -> Option<u32> {
        self.processes.get(&server).map(Process::id)
    }

    /// Process ids of the running servers.
    pub fn process_ids(&self) -> Vec<u32> {
        self.processes.values().map(Process::id).collect()
    }

    /// Whether all servers run, and were never stopped, and nothing has failed that the logs are kept for.
    pub(crate) fn is_as_started(&self) -> bool {
        !self.is_altered && !self.directory.are_logs_kept()
    }

    /// The directory of all its files.
    pub(crate) fn root(&self) -> PathBuf {
        self.directory.root()
    }

    fn user_kubeconfig(&self, file: &str) -> PathBuf {
        self.directory.part(Part::Certificates).join(format!("{file}.kubeconfig"))
    }

    fn new_kubeconfig(&self) -> PathBuf {
        let nth = self.n_kubeconfigs.fetch_add(1, Ordering::Relaxed);
        self.user_kubeconfig(&format!("client-{nth}"))
    }

    fn write_user(&self, file: &str, user: &str, groups: &[&str]) -> Result<()> {
        self.renew_kubeconfig(&self.user_kubeconfig(file), user, groups, None)
    }

    fn write_kubeconfig(&self, path: &Path, credentials: &Credentials<'_>) -> Result<()> {
        let authority = self.authority.certificate();
        kubeconfig::write(path, &self.api_server_address(), &authority, credentials)
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        // Clients first, or they would log errors about missing servers.
        while let Some((_, process)) = self.processes.pop_last() {
            drop(process);
        }
    }
}

impl std::fmt::Debug for ControlPlane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ControlPlane")
            .field("address", &self.api_server_address())
            .field("processes", &self.processes)
            .finish_non_exhaustive()
    }
}

/// Free ports. If one is taken before it is used, the server fails and other ports are tried.
fn free_ports<const N: usize>() -> io::Result<[u16; N]> {
    let mut listeners = Vec::with_capacity(N);
    let mut ports = [0; N];
    for port in &mut ports {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        *port = listener.local_addr()?.port();
        // Listeners stay open until all ports are found, or the same port could be found twice.
        listeners.push(listener);
    }
    Ok(ports)
}

fn is_address_in_use(error: &Error) -> bool {
    matches!(error, Error::Server { tail, .. } if tail.contains("address already in use"))
}
