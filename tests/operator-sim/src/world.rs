//! The world of an episode: the server, the processes, what the cluster's own controllers do, and the
//! rules that must hold at every step.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use fastrand::Rng;
use serde_json::{Value, json};
use tokio::time::{Duration, Instant};

use crate::{
    configuration::Configuration,
    devices::{
        controllers::{attach_devices, review_claim, waits_for_driver},
        rules::{problem_of_binding, problem_of_change, shared_device},
        slice,
    },
    nodes::{is_ready, set_ready},
    outages::Outages,
    pods::{RESOURCE, members, number, requested, used},
    report::Counts,
    script::{N_REPLICAS, TENANTS, Way},
    server::{
        Answer, CLAIMS, KUBERNETES_GROUPS, Key, Kind, LEASES, NODES, PODS, Path, RESOURCE_CLAIMS,
        SLICES, Server, failure, not_found,
    },
    traffic::{Admission, Faults, Overtaken, Sent, WatchFault},
};

/// How many lines of the trace are kept.
const N_LINES: usize = 400;
/// For how long after a change of a node by others a binding may find it fuller than the scheduler knew:
/// longer than watches are delayed and decisions wait to be sent.
const STALE: Duration = Duration::from_secs(180);

/// How long a leader goes on that cannot read the lease: the default of the flag.
const RENEW_DEADLINE: Duration = Duration::from_secs(10);

/// How long the server waits for a webhook.
const WEBHOOK_TIMEOUT: Duration = Duration::from_secs(10);

/// A process of the scheduler. One that is killed is not started again: another takes its place.
#[derive(Debug)]
struct Process {
    identity: String,
    faults: Faults,
    n_resets: u64,
    /// Whether it has read that someone holds the lease.
    knows_holder: bool,
}

/// A pod that was evicted for a job.
#[derive(Clone, Debug)]
pub(crate) struct Eviction {
    pub(crate) at: Instant,
    pub(crate) pod: Key,
    /// Namespace and name of the job, as the message says.
    pub(crate) by: String,
}

/// What a controller does later.
#[derive(Clone, Debug)]
pub(crate) enum Chore {
    /// The kubelet starts the containers of a pod.
    Start(Key, Value),
    /// The kubelet has stopped the containers of a pod.
    Stop(Key, Value),
    /// The garbage collector deletes the pods of a node that is deleted.
    Collect(String),
    /// A user creates an object again whose kind was not served for a while.
    Apply { kind: Kind, key: Key, object: Box<Value> },
    /// A driver publishes the devices of a node that was made again.
    Publish(Key),
    /// A node becomes ready, or is not ready any more.
    Flap { node: Key, until: Instant },
    /// Kubernetes removes a PodGroup of its own that is being deleted, once its pods are gone.
    RemoveGroup(Key),
    /// The volume controller binds a claim.
    BindClaim(Key),
    /// The claim controller looks for users of a claim for devices that are gone.
    ReviewClaim(Key),
    /// The driver attaches the devices of a claim, or fails to.
    AttachDevices(Key),
}

/// Everything but the processes themselves.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) server: Server,
    /// Whether jobs get reservations.
    reserves: bool,
    pub(crate) rng: Rng,
    processes: Vec<Process>,
    chores: BTreeMap<(Instant, u64), Chore>,
    n_chores: u64,
    /// The claims for devices that are reviewed later.
    reviews: BTreeSet<Key>,
    n_steps: u64,
    start: Instant,
    /// When the capacity of a node was last changed by others, or what they run on it.
    disturbed: BTreeMap<String, Instant>,
    /// Nodes of pods that processes have bound, by uid.
    bound: BTreeMap<String, String>,
    /// When a process last wrote anything but its lease.
    pub(crate) last_write: Option<(Instant, String)>,
    pub(crate) counts: Counts,
    /// What becomes of requests of one sort.
    pub(crate) outages: Outages,
    pub(crate) watch_faults: BTreeMap<Kind, WatchFault>,
    /// The change that the watch of a process sends next, although it has sent a later one.
    pub(crate) overtaken: BTreeMap<(usize, Kind), Overtaken>,
    /// The objects of the kinds that are not served for a while.
    pub(crate) unserved: BTreeMap<Kind, Vec<(Key, Value)>>,
    /// When the pod of the next binding or eviction is made again.
    pub(crate) recreates: Option<Way>,
    /// By replica.
    configurations: [Configuration; N_REPLICAS],
    /// By tenant.
    admission: [Admission; TENANTS.len()],
    /// When the last change of users and the last fault were, once that is known.
    pub(crate) calm_since: Option<Instant>,
    /// What was evicted since.
    pub(crate) evicted: Vec<Eviction>,
    /// The pods that were bound since, and when.
    pub(crate) bound_since: Vec<(Instant, Key)>,
    /// The process that wrote the lease last, unless it released it.
    last_holder: String,
    /// Holders of the lease that need not know yet that it was deleted, and until when they may write.
    deposed: BTreeMap<String, Instant>,
    /// Devices that two leaders gave to two claims.
    shared_devices: BTreeSet<String>,
    /// The first rule that was broken.
    broken: Option<String>,
    lines: VecDeque<String>,
    hash: u64,
}

impl World {
    /// The configuration of a replica as its file has it now.
    pub(crate) fn configuration(&self, replica: usize) -> Configuration {
        self.configurations[replica]
    }

    /// The text of a configuration, or why it cannot be read.
    pub(crate) fn text_of(&self, configuration: Configuration) -> Result<String, String> {
        configuration.text(self.reserves)
    }

    pub(crate) fn configure(&mut self, replica: usize, configuration: Configuration) {
        self.configurations[replica] = configuration;
    }

    pub(crate) fn new(seed: u64) -> Self {
        Self {
            server: Server::default(),
            reserves: seed.is_multiple_of(2),
            rng: Rng::with_seed(seed),
            processes: Vec::new(),
            chores: BTreeMap::new(),
            n_chores: 0,
            reviews: BTreeSet::new(),
            n_steps: 0,
            start: Instant::now(),
            disturbed: BTreeMap::new(),
            bound: BTreeMap::new(),
            last_write: None,
            counts: Counts::default(),
            outages: Outages::default(),
            watch_faults: BTreeMap::new(),
            overtaken: BTreeMap::new(),
            unserved: BTreeMap::new(),
            recreates: None,
            configurations: Default::default(),
            admission: Default::default(),
            calm_since: None,
            evicted: Vec::new(),
            bound_since: Vec::new(),
            last_holder: String::new(),
            deposed: BTreeMap::new(),
            shared_devices: BTreeSet::new(),
            broken: None,
            lines: VecDeque::new(),
            hash: 0xcbf2_9ce4_8422_2325,
        }
    }

    /// Adds a process; returns its number.
    pub(crate) fn add_process(&mut self, identity: &str) -> usize {
        let faults = Faults::default();
        let identity = identity.to_owned();
        self.processes.push(Process { identity, faults, n_resets: 0, knows_holder: false });
        self.processes.len() - 1
    }

    pub(crate) fn faults(&self, process: usize) -> Faults {
        self.processes[process].faults
    }

    pub(crate) fn set_faults(&mut self, process: usize, faults: Faults) {
        self.processes[process].faults = faults;
    }

    pub(crate) fn set_admission(&mut self, tenant: usize, admission: Admission) {
        self.admission[tenant] = admission;
    }

    /// What the admission webhooks answer to a request, if they refuse it, and after what time.
    pub(crate) fn admit(&self, sent: &Sent) -> (Option<Answer>, Duration) {
        let none = (None, Duration::ZERO);
        let Some(path) = Path::parse(&sent.path) else { return none };
        let (namespace, name) = path.key();
        let tenant = TENANTS.iter().position(|tenant| *tenant == namespace);
        if sent.method != "POST" || path.subresource != "binding" {
            return none;
        }
        let is_odd = name.bytes().map(u32::from).sum::<u32>() % 2 == 1;
        match tenant.map(|tenant| self.admission[tenant]).unwrap_or_default() {
            Admission::RejectsHalf if is_odd => (Some(failure(403, "denied")), Duration::ZERO),
            Admission::RejectsAll => (Some(failure(403, "denied")), Duration::ZERO),
            Admission::IsDead => (Some(failure(500, "the webhook is dead")), WEBHOOK_TIMEOUT),
            Admission::Accepts | Admission::RejectsHalf => none,
        }
    }

    pub(crate) fn n_resets(&self, process: usize) -> u64 {
        self.processes[process].n_resets
    }

    /// Breaks the connections of a process.
    pub(crate) fn reset(&mut self, process: usize) {
        self.processes[process].n_resets += 1;
    }

    pub(crate) fn step(&mut self) {
        self.n_steps += 1;
    }

    pub(crate) const fn n_steps(&self) -> u64 {
        self.n_steps
    }

    /// Records what happens, for the trace of a failure and to compare two runs.
    pub(crate) fn log(&mut self, text: &str) {
        let line = format!("{:10.3} {text}", self.start.elapsed().as_secs_f64());
        for byte in line.bytes() {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        if self.lines.len() == N_LINES {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
    }

    /// A number that is different if anything in the trace is.
    pub(crate) const fn hash(&self) -> u64 {
        self.hash
    }

    /// The last lines of the trace.
    pub(crate) fn lines(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().map(String::as_str)
    }

    pub(crate) fn break_rule(&mut self, what: String) {
        self.log(&format!("BROKEN: {what}"));
        self.broken.get_or_insert(what);
    }

    /// The first rule that was broken.
    pub(crate) fn broken(&self) -> Option<&str> {
        self.broken.as_deref()
    }

    /// A request leaves a process: it must lead if it writes.
    pub(crate) fn check_sent(&mut self, sent: &Sent) {
        let Some(path) = Path::parse(&sent.path) else { return };
        if sent.method == "GET" || path.kind == LEASES {
            return;
        }
        let identity = self.processes[sent.process].identity.clone();
        // A lease that was deleted is still held until another process has it.
        let holder = &self.last_holder;
        let is_deposed = self.deposed.get(&identity).is_some_and(|until| Instant::now() < *until);
        if *holder != identity && !is_deposed {
            let what = format!(
                "{identity} sends {} {} while {holder:?} holds the lease",
                sent.method, sent.path
            );
            self.break_rule(what);
        }
    }

    /// The pod that is made again while this request or its answer is on its way, if one is.
    pub(crate) fn take_recreated(&mut self, sent: &Sent, way: Way) -> Option<Key> {
        let path = Path::parse(&sent.path)?;
        let is_decision =
            matches!((sent.method.as_str(), path.subresource), ("POST", "binding") | ("DELETE", _));
        self.recreates.take_if(|at| path.kind == PODS && is_decision && *at == way)?;
        Some(path.key())
    }

    /// An answer has shown a process that someone holds the lease.
    pub(crate) fn set_knows_holder(&mut self, process: usize) {
        self.processes[process].knows_holder = true;
    }

    /// A process has written the lease.
    fn lease_is_written(&mut self, process: usize, lease: &Value) {
        let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned();
        if holder == self.last_holder {
            return;
        }
        self.log(&format!("the lease is {holder:?}'s"));
        let former = std::mem::replace(&mut self.last_holder, holder);
        // A process that has just started takes a lease that does not exist at once.
        if !self.processes[process].knows_holder && !former.is_empty() {
            self.deposed.insert(former, Instant::now() + RENEW_DEADLINE);
        }
    }

    /// The identity in the lease; empty if it is not held.
    pub(crate) fn holder(&self) -> String {
        let lease = self.server.all(LEASES).next().map(|(_, lease)| lease);
        let holder = lease.and_then(|lease| lease["spec"]["holderIdentity"].as_str());
        holder.unwrap_or_default().to_owned()
    }

    /// A request arrives at the server.
    pub(crate) fn request(&mut self, sent: &Sent) -> Answer {
        let Some(path) = Path::parse(&sent.path) else { return not_found() };
        let key = path.key();
        let before = matches!(path.kind, PODS | RESOURCE_CLAIMS)
            .then(|| self.server.get(path.kind, &key).cloned())
            .flatten();
        let answer = self.server.answer(&sent.method, &path, &sent.query, &sent.body);
        if sent.method == "GET" {
            return answer;
        }
        let who = self.processes[sent.process].identity.clone();
        if path.kind != LEASES {
            // What an event says.
            let note = sent.body["note"].as_str().map(|note| format!(": {note}"));
            let note = note.unwrap_or_default();
            self.log(&format!("{who} {} {} -> {}{note}", sent.method, sent.path, answer.0));
            self.last_write = Some((Instant::now(), format!("{} {}", sent.method, sent.path)));
        } else if answer.0 < 300 {
            self.lease_is_written(sent.process, &answer.1);
        }
        let selected = &answer.1["metadata"]["annotations"]["volume.kubernetes.io/selected-node"];
        if path.kind == CLAIMS && selected.is_string() && answer.1["spec"]["volumeName"].is_null() {
            self.later(300, 6_000, Chore::BindClaim(key.clone()));
        }
        if path.kind == RESOURCE_CLAIMS && answer.0 < 300 {
            let name = answer.1["metadata"]["name"].as_str().unwrap_or(&key.1);
            self.claim_has_changed(&(key.0.clone(), name.to_owned()), before.as_deref());
        }
        if path.kind == PODS && answer.0 < 300 {
            match (sent.method.as_str(), path.subresource) {
                ("POST", "binding") => {
                    if self.deposed.contains_key(&who) && who != self.last_holder {
                        // To the leader it is a change by others.
                        self.disturb(sent.body["target"]["name"].as_str().unwrap_or_default());
                    }
                    self.check_binding(&key, &sent.body);
                }
                ("DELETE", _) => {
                    self.counts.n_evictions += 1;
                    if let Some(pod) = before {
                        self.note_eviction(&key, &pod);
                        self.stops(&key, &pod["metadata"]["uid"]);
                    }
                }
                _ => {}
            }
        }
        answer
    }

    /// A process has changed a claim for devices, or created or deleted it.
    fn claim_has_changed(&mut self, key: &Key, before: Option<&Value>) {
        let has_devices = |claim: &Value| claim["status"]["allocation"].is_object();
        let after = self.server.get(RESOURCE_CLAIMS, key);
        let is_deallocated =
            before.is_some_and(has_devices) && !after.is_some_and(|claim| has_devices(claim));
        self.counts.n_claims += u64::from(before.is_none());
        self.counts.n_deallocations += u64::from(is_deallocated);
        if let Some(problem) = problem_of_change(&self.server, key, is_deallocated) {
            self.break_rule(problem);
        }
        self.check_devices();
        if waits_for_driver(&self.server, key) {
            self.later(100, 8_000, Chore::AttachDevices(key.clone()));
        }
        self.review_later(key);
    }

    /// No device is given to two claims. Two replicas that led at the same time may do that.
    fn check_devices(&mut self) {
        while let Some((device, problem)) = shared_device(&self.server, &self.shared_devices) {
            if !self.had_two_leaders() {
                return self.break_rule(problem);
            }
            self.log(&format!("two leaders: {problem}"));
            self.shared_devices.insert(device);
        }
    }

    /// Whether two replicas led at the same time not long ago, because a process that had just started took a lease
    /// that was deleted.
    fn had_two_leaders(&self) -> bool {
        let now = Instant::now();
        self.deposed.values().any(|until| *until + STALE > now)
    }

    /// Lets the claim controller look at a claim later, and again while anyone uses it.
    pub(crate) fn review_later(&mut self, key: &Key) {
        if self.reviews.insert(key.clone()) {
            self.later(1_000, 10_000, Chore::ReviewClaim(key.clone()));
        }
    }

    /// Keeps for whom a pod was evicted, once no change and no fault can be in the way any more.
    fn note_eviction(&mut self, key: &Key, pod: &Value) {
        let is_calm = self.calm_since.is_some_and(|since| since.elapsed() > STALE);
        let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
        let mut messages = conditions
            .filter(|condition| condition["type"] == "DisruptionTarget")
            .filter_map(|condition| condition["message"].as_str());
        let by = messages.find_map(|message| {
            let (_, by) = message
                .split_once("preempted for ")
                .or_else(|| message.split_once("reclaims its share for "))?;
            by.split(' ').next()
        });
        if let Some(by) = by.filter(|_| is_calm) {
            let (at, pod, by) = (Instant::now(), key.clone(), by.to_owned());
            self.evicted.push(Eviction { at, pod, by });
        }
    }

    fn check_binding(&mut self, key: &Key, binding: &Value) {
        self.counts.n_bindings += 1;
        let node = binding["target"]["name"].as_str().unwrap_or_default().to_owned();
        let uid = binding["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        if let Some(other) = self.bound.insert(uid, node.clone()) {
            self.break_rule(format!("pod {}/{} is bound to {node} and to {other}", key.0, key.1));
        }
        let disturbed = self.disturbed.get(&node).is_some_and(|since| since.elapsed() < STALE);
        if let Some(object) = self.server.get(NODES, &(String::new(), node.clone()))
            && !disturbed
        {
            // Nodes that do not advertise devices have them in slices, if at all.
            let advertised = object["status"]["allocatable"][RESOURCE].is_string();
            for resource in ["cpu", "pods"].into_iter().chain(advertised.then_some(RESOURCE)) {
                let allocatable = number(&object["status"]["allocatable"][resource]);
                let used = used(&self.server, &node, resource);
                // A pod that requests none of it may go to a node that others have made too small.
                let requests = self.server.get(PODS, key).map_or(0, |pod| requested(pod, resource));
                if used > allocatable && requests > 0 {
                    let what =
                        format!("{resource} of {node}: {used} of {allocatable} used after {key:?}");
                    self.break_rule(what);
                    break;
                }
            }
        }
        let pod = self.server.get(PODS, key).expect("it was bound");
        let uid = pod["metadata"]["uid"].clone();
        if let Some(problem) = problem_of_binding(&self.server, key, pod) {
            self.break_rule(format!("pod {}/{} is bound to {node}: {problem}", key.0, key.1));
        }
        if self.calm_since.is_some() {
            self.bound_since.push((Instant::now(), key.clone()));
        }
        self.later(200, 2_000, Chore::Start(key.clone(), uid));
    }

    /// Others have changed what a node has, or what they use of it.
    pub(crate) fn disturb(&mut self, node: &str) {
        self.disturbed.insert(node.to_owned(), Instant::now());
    }

    pub(crate) fn identity(&self, process: usize) -> &str {
        &self.processes[process].identity
    }

    /// How long the episode has lasted.
    pub(crate) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// A pod is being deleted: its kubelet stops it later.
    pub(crate) fn stops(&mut self, key: &Key, uid: &Value) {
        if self.server.get(PODS, key).is_some_and(|pod| pod["metadata"]["uid"] == *uid) {
            self.later(100, 3_000, Chore::Stop(key.clone(), uid.clone()));
        }
    }

    /// Lets a controller do something after a time between these, in milliseconds.
    pub(crate) fn later(&mut self, from: u64, to: u64, chore: Chore) {
        let after = Duration::from_millis(self.rng.u64(from..=to));
        self.chores.insert((Instant::now() + after, self.n_chores), chore);
        self.n_chores += 1;
    }

    /// When the next chore is due.
    pub(crate) fn next_chore(&self) -> Option<Instant> {
        self.chores.first_key_value().map(|((due, _), _)| *due)
    }

    /// Does the chores that are due; returns whether there were any.
    pub(crate) fn do_chores(&mut self) -> bool {
        let mut n_done = 0;
        while let Some(entry) = self.chores.first_entry().filter(|e| e.key().0 <= Instant::now()) {
            let chore = entry.remove();
            n_done += 1;
            self.do_chore(chore);
        }
        n_done > 0
    }

    fn do_chore(&mut self, chore: Chore) {
        self.step();
        match chore {
            Chore::Start(key, uid) => {
                let Some(pod) = self.server.get(PODS, &key) else { return };
                let node = pod["spec"]["nodeName"].as_str().unwrap_or_default().to_owned();
                let starts = pod["metadata"]["uid"] == uid && pod["status"]["phase"] == "Pending";
                if starts && self.server.get(NODES, &(String::new(), node)).is_some() {
                    self.log(&format!("{}/{} runs", key.0, key.1));
                    self.server
                        .change_object(PODS, &key, |pod| pod["status"]["phase"] = json!("Running"));
                }
            }
            Chore::Stop(key, uid) => {
                let is_it = |pod: &Value| {
                    pod["metadata"]["uid"] == uid
                        && pod["metadata"]["deletionTimestamp"].is_string()
                };
                if self.server.get(PODS, &key).is_some_and(|pod| is_it(pod)) {
                    self.log(&format!("{}/{} has stopped", key.0, key.1));
                    self.server.remove(PODS, &key);
                }
            }
            Chore::Collect(node) => {
                if self.server.get(NODES, &(String::new(), node.clone())).is_some() {
                    return;
                }
                let is_there = |pod: &Value| pod["spec"]["nodeName"] == *node;
                let pods = self.server.all(PODS).filter(|(_, pod)| is_there(pod));
                let keys: Vec<Key> = pods.map(|(key, _)| key.clone()).collect();
                for key in keys {
                    self.log(&format!("{}/{} is collected", key.0, key.1));
                    self.server.remove(PODS, &key);
                }
            }
            Chore::Apply { kind, key, object } => {
                if !self.server.is_absent(kind) && self.server.get(kind, &key).is_none() {
                    self.log(&format!("{} {} is created again", kind.plural, key.1));
                    self.server.put(kind, &key, *object);
                }
            }
            Chore::Publish(node) => {
                if self.server.get(NODES, &node).is_some() {
                    self.server.put(SLICES, &node, slice(&node.1));
                }
            }
            Chore::Flap { node, until } => {
                let Some(object) = self.server.get(NODES, &node) else { return };
                let ends = self.calm_since.is_some() || until <= Instant::now();
                let becomes_ready = ends || !is_ready(object);
                self.log(&format!(
                    "{} is {}ready",
                    node.1,
                    if becomes_ready { "" } else { "not " }
                ));
                set_ready(&mut self.server, &node, becomes_ready);
                if !ends {
                    self.later(1_000, 1_000, Chore::Flap { node, until });
                }
            }
            Chore::RemoveGroup(key) => {
                if members(&self.server, KUBERNETES_GROUPS, &key).is_empty() {
                    self.server.remove(KUBERNETES_GROUPS, &key);
                } else {
                    self.later(1_000, 5_000, Chore::RemoveGroup(key));
                }
            }
            Chore::ReviewClaim(key) => {
                self.reviews.remove(&key);
                let review = review_claim(&mut self.server, &key);
                review.done.iter().for_each(|line| self.log(line));
                if review.is_followed {
                    self.review_later(&key);
                }
            }
            Chore::AttachDevices(key) if waits_for_driver(&self.server, &key) => {
                // It fails sometimes, but not in the calm time.
                let fails = self.calm_since.is_none() && self.rng.u32(0..4) == 0;
                let condition = if fails { "AttachFailed" } else { "Attached" };
                self.log(&format!("devices of claim {}/{}: {condition}", key.0, key.1));
                attach_devices(&mut self.server, &key, condition);
            }
            Chore::AttachDevices(_) => {}
            Chore::BindClaim(key) => {
                self.log(&format!("claim {}/{} is bound", key.0, key.1));
                self.server.change_object(CLAIMS, &key, |claim| {
                    claim["metadata"]["annotations"]["pv.kubernetes.io/bind-completed"] =
                        json!("yes");
                    claim["spec"]["volumeName"] = json!(format!("volume-of-{}", key.1));
                });
            }
        }
    }
}
