//! The `e2e-` test cases of `tests/cases/`, run in a real cluster.
//!
//! They are the end-to-end tests of kube-batch v0.5.0 and similar ones; the simulation runs the
//! same files. Here the real Job and ReplicaSet controllers create the pods, so pods are identified
//! by their owners. No scheduler runs while a step changes objects, so the next scheduler lists all
//! changes before it decides. An expectation that cannot be checked here fails the test.

use std::{collections::BTreeSet, fs, path::PathBuf, thread};

use kube_batch_sim::case::counted;
use kube_batch_testbed::{cluster::Options, nodes::Nodes};
use serde_json::{Map, Value, json};
use xtask_launcher::build::root;

use crate::bed::{Bed, OBSERVATION_PERIOD, SCHEDULER};

/// A test for each file, and the list of them.
macro_rules! scenarios {
    ($($test:ident = $file:literal;)*) => {
        const FILES: &[&str] = &[$($file),*];

        $( #[test]
        fn $test() {
            run_case($file);
        } )*
    };
}

scenarios! {
    best_effort = "e2e-job-best-effort";
    density = "e2e-benchmark-density";
    different_requests_in_one_loop = "e2e-job-different-requests-in-one-loop";
    gang_full_occupied = "e2e-job-gang-full-occupied";
    gang_gpu = "e2e-tutorial-kubeflow-gang-gpu";
    gang_scheduling = "e2e-job-gang-scheduling";
    host_port = "e2e-predicates-host-port";
    job_priority = "e2e-job-priority";
    least_requested = "e2e-nodeorder-least-requested";
    multiple_preemption = "e2e-job-multiple-preemption";
    node_affinity = "e2e-predicates-node-affinity";
    pod_affinity = "e2e-predicates-pod-affinity";
    podgroup_status = "e2e-podgroup-status-lifecycle";
    preemption = "e2e-job-preemption";
    proportion = "e2e-job-proportion";
    reclaim = "e2e-queue-reclaim";
    schedule_job = "e2e-job-schedule-job";
    schedule_multiple_jobs = "e2e-job-schedule-multiple-jobs";
    statement = "e2e-job-statement";
    taints = "e2e-predicates-taints";
    task_priority = "e2e-job-task-priority";
}

fn cases() -> PathBuf {
    root().join("tests/cases")
}

#[test]
fn every_end_to_end_case_is_run() {
    let is_end_to_end = |name: &String| name.starts_with("e2e-");
    let in_directory: BTreeSet<String> = fs::read_dir(cases())
        .expect("the directory of cases can be read")
        .filter_map(|entry| entry.ok()?.path().file_stem()?.to_str().map(str::to_owned))
        .filter(is_end_to_end)
        .collect();
    let run: BTreeSet<String> = FILES.iter().map(|file| (*file).to_owned()).collect();
    assert_eq!(in_directory, run);
}

fn run_case(file: &str) {
    let path = cases().join(file).with_extension("yaml");
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{file}: {error}"));
    let mut case: Map<String, Value> = serde_saphyr::from_str(&text).expect("a case is YAML");
    for ignored in ["name", "area", "description", "rows", "source", "environment"] {
        case.remove(ignored);
    }
    let mut runner = CaseRunner::new(case.remove("config").as_ref());
    runner.apply(case.remove("objects"));
    let cycles = case.remove("cycles");
    let expect = case.remove("expect");
    let only = json!([{"cycles": cycles.unwrap_or(json!(1)), "expect": expect}]);
    let steps = case.remove("steps").unwrap_or(only);
    assert!(case.is_empty(), "{file} has keys that are not supported here: {:?}", case.keys());
    for step in steps.as_array().expect("steps are a list") {
        runner.step(step.as_object().expect("a step is a mapping").clone());
    }
}

struct CaseRunner {
    bed: Bed,
    /// `--scheduler-conf`, unless the case has the built-in configuration.
    conf_flag: Option<String>,
    /// Pods whose binding was checked by an earlier `expect`.
    checked: BTreeSet<String>,
    n_evicted: usize,
    /// Whether objects have changed since the last wait for the controllers.
    is_changed: bool,
}

impl CaseRunner {
    fn new(conf: Option<&Value>) -> Self {
        let options = Options { audit: true, ..Options::default() };
        let bed = Bed::with_options(options, &Nodes { n: 0, ..Nodes::default() });
        bed.install_older_group();
        let path = bed.plane.log_dir().join("scheduler.yaml");
        let conf_flag = conf.map(|conf| {
            // JSON is YAML.
            fs::write(&path, conf.to_string()).expect("a file");
            format!("--scheduler-conf={}", path.display())
        });
        Self { bed, conf_flag, checked: BTreeSet::new(), n_evicted: 0, is_changed: false }
    }

    fn step(&mut self, mut step: Map<String, Value>) {
        self.is_changed |= ["apply", "update", "delete"].iter().any(|key| step.contains_key(*key));
        self.apply(step.remove("apply"));
        for object in objects(step.remove("update")) {
            self.bed.apply(&completed(object));
        }
        for target in items(step.remove("delete")) {
            let text = |key: &str| target[key].as_str().unwrap_or("default").to_owned();
            let (kind, name, namespace) = (text("kind"), text("name"), text("namespace"));
            self.bed
                .kubectl(["delete", &kind, &name, "--namespace", &namespace])
                .unwrap_or_else(|error| panic!("{error}"));
        }
        if ["eventually", "cycles", "expect"].iter().any(|key| step.contains_key(*key)) {
            // Controllers take some time to replace evicted pods.
            if std::mem::take(&mut self.is_changed) {
                self.wait_for_controllers();
            }
            let flags: Vec<&str> = self.conf_flag.as_deref().into_iter().collect();
            self.bed.start_scheduler(&flags);
        }
        if let Some(eventually) = step.remove("eventually") {
            self.bed.eventually("the expectation of the step is met", || {
                self.check(&eventually["expect"])
            });
        }
        if step.remove("cycles").is_some() {
            // The number of cycles depends on the changes; only the final state is compared.
            thread::sleep(OBSERVATION_PERIOD);
        }
        if let Some(expect) = step.remove("expect") {
            self.bed.eventually("the expectation is met", || self.check(&expect));
            self.bed.consistently("the expectation stays met", || self.check(&expect));
            self.checked = self.bound().map(|pod| name(&pod)).collect();
            self.n_evicted = self.evicted();
        }
        if self.bed.n_schedulers() > 0 {
            assert_eq!(self.bed.take_scheduler(0).terminate(), Some(0));
        }
        assert!(step.is_empty(), "keys of a step that are not supported here: {:?}", step.keys());
    }

    fn apply(&self, list: Option<Value>) {
        let objects: Vec<Value> = objects(list).map(completed).collect();
        let namespaces: BTreeSet<&str> =
            objects.iter().filter_map(|object| object["metadata"]["namespace"].as_str()).collect();
        for namespace in namespaces {
            self.bed.create_namespace(namespace);
        }
        for object in &objects {
            self.bed.apply(object);
        }
    }

    /// Waits until every controller has created its pods, and the garbage collector has deleted
    /// those whose controller was deleted.
    fn wait_for_controllers(&self) {
        self.bed.eventually("all controllers have reconciled", || {
            for (kind, n_wanted, n_created) in [
                ("jobs", "/spec/parallelism", "/status/active"),
                ("replicasets", "/spec/replicas", "/status/replicas"),
            ] {
                let is_new = |owner: &Value| owner["status"]["failed"].as_u64().unwrap_or(0) == 0;
                for owner in self.bed.list_all(kind).into_iter().filter(is_new) {
                    let number = |path: &str| owner.pointer(path).and_then(Value::as_u64);
                    if number(n_created).unwrap_or(0) < number(n_wanted).unwrap_or(1) {
                        return Err(format!("{} is not complete", name(&owner)));
                    }
                }
            }
            let owners: BTreeSet<String> = ["jobs", "replicasets"]
                .into_iter()
                .flat_map(|kind| self.bed.list_all(kind))
                .map(|owner| name(&owner))
                .collect();
            let is_orphan = |pod: &Value| {
                let owner = owner_of(pod);
                !owner.is_empty() && !owners.contains(&owner)
            };
            match self.pods().find(is_orphan) {
                Some(pod) => Err(format!("{} still exists", name(&pod))),
                None => Ok(()),
            }
        });
    }

    fn pods(&self) -> impl Iterator<Item = Value> {
        self.bed.list_all("pods").into_iter()
    }

    fn bound(&self) -> impl Iterator<Item = Value> {
        self.pods().filter(|pod| pod["spec"]["nodeName"].is_string())
    }

    /// Number of pods that the scheduler has deleted since the start.
    fn evicted(&self) -> usize {
        let events = self.bed.plane.audit_events().expect("an audit log");
        let is_eviction = |event: &&kube_batch_testbed::audit::AuditEvent| {
            event.user == SCHEDULER && event.verb == "delete" && event.resource == "pods"
        };
        events.iter().filter(is_eviction).count()
    }

    fn check(&self, expect: &Value) -> Result<(), String> {
        for (key, wanted) in mapping(expect) {
            let checked = match key.as_str() {
                "pods" => self.check_pods(wanted),
                "binds" => self.check_binds(wanted),
                "bindCount" => self.check_bind_count(wanted),
                "evictCount" => within(self.evicted() - self.n_evicted, wanted),
                "sameNode" => self.check_same_node(wanted),
                "podGroups" => self.check_groups(wanted),
                _ => panic!("{key} cannot be checked here"),
            };
            checked.map_err(|why| format!("{key}: {why}"))?;
        }
        Ok(())
    }

    fn check_pods(&self, wanted: &Value) -> Result<(), String> {
        let pods: Vec<Value> =
            self.pods().filter(|pod| pod["metadata"]["deletionTimestamp"].is_null()).collect();
        for (group, counts) in mapping(wanted) {
            for (key, n_wanted) in mapping(counts) {
                let phases: &[&str] = match key.as_str() {
                    "running" => &["Running", "Succeeded"],
                    "pending" => &["Pending"],
                    "total" => &["Pending", "Running", "Succeeded", "Failed", "Unknown"],
                    _ => panic!("{key} of pods cannot be checked here"),
                };
                let counts = |pod: &&Value| {
                    let phase = pod["status"]["phase"].as_str().unwrap_or_default();
                    group_of(pod) == *group && phases.contains(&phase)
                };
                let n_actual = pods.iter().filter(counts).count();
                within(n_actual, n_wanted).map_err(|why| format!("{group} {key}: {why}"))?;
            }
        }
        Ok(())
    }

    /// The simulation numbers the pods of an owner, the real controllers do not: for each expected
    /// bind, another pod of the same owner must have been bound to the node.
    fn check_binds(&self, wanted: &Value) -> Result<(), String> {
        let mut unmatched: Vec<Value> = self.newly_bound().collect();
        for (pod, node) in mapping(wanted) {
            let owner = pod.rsplit_once('-').map_or(pod.as_str(), |(owner, _)| owner);
            let matches = |bound: &Value| {
                let actual = &bound["spec"]["nodeName"];
                let choices = node.as_array().map_or(std::slice::from_ref(node), Vec::as_slice);
                (name(bound) == *pod || owner_of(bound) == owner)
                    && choices.iter().any(|choice| choice == "*" || choice == actual)
            };
            let Some(found) = unmatched.iter().position(matches) else {
                return Err(format!("{pod} is not bound to {node}"));
            };
            unmatched.swap_remove(found);
        }
        Ok(())
    }

    fn newly_bound(&self) -> impl Iterator<Item = Value> {
        self.bound().filter(|pod| !self.checked.contains(&name(pod)))
    }

    fn check_bind_count(&self, wanted: &Value) -> Result<(), String> {
        let bound: Vec<Value> = self.newly_bound().collect();
        let Some(counts) = wanted.as_object().filter(|counts| is_count(counts)) else {
            return within(bound.len(), wanted);
        };
        for (key, wanted) in counts {
            match key.as_str() {
                "total" => within(bound.len(), wanted)?,
                "nodes" => {
                    for (node, wanted) in mapping(wanted) {
                        let is_on_node = |pod: &&Value| pod["spec"]["nodeName"] == **node;
                        let n_bound = bound.iter().filter(is_on_node).count();
                        within(n_bound, wanted).map_err(|why| format!("{node}: {why}"))?;
                    }
                }
                _ => panic!("{key} of a count cannot be checked here"),
            }
        }
        Ok(())
    }

    fn check_same_node(&self, wanted: &Value) -> Result<(), String> {
        for together in wanted.as_array().expect("a list of lists") {
            let names = together.as_array().expect("a list");
            let is_one = |pod: &Value| names.iter().any(|name| *name == group_of(pod));
            let nodes: BTreeSet<String> = self
                .newly_bound()
                .filter(is_one)
                .map(|pod| pod["spec"]["nodeName"].to_string())
                .collect();
            if nodes.len() > 1 {
                return Err(format!("they are on {nodes:?}"));
            }
        }
        Ok(())
    }

    fn check_groups(&self, wanted: &Value) -> Result<(), String> {
        let groups: Vec<Value> = ["incubator.k8s.io", "sigs.dev"]
            .into_iter()
            .flat_map(|group| self.bed.list_all(&format!("podgroups.scheduling.{group}")))
            .collect();
        for (key, wanted) in mapping(wanted) {
            let Some(group) = groups.iter().find(|group| name(group) == *key) else {
                return Err(format!("{key} does not exist"));
            };
            for (field, wanted) in mapping(wanted) {
                let actual = &group["status"][field];
                // Zeros are omitted from a status.
                let holds = match field.as_str() {
                    "phase" => actual == wanted,
                    "running" | "succeeded" | "failed" => {
                        actual.as_u64().unwrap_or(0) == wanted.as_u64().expect("a number")
                    }
                    _ => panic!("{field} of a PodGroup cannot be checked here"),
                };
                if !holds {
                    return Err(format!("{key}: {field} is {actual}, not {wanted}"));
                }
            }
        }
        Ok(())
    }
}

/// Adds the fields to an object of a case that the API server requires and the simulation does not.
fn completed(mut object: Value) -> Value {
    match object["kind"].as_str().unwrap_or_default() {
        "Node" => {
            let hostname = object["metadata"]["name"].clone();
            object["metadata"]["labels"]["kubernetes.io/hostname"] = hostname;
            object["status"]["capacity"] = object["status"]["allocatable"].clone();
            let healthy = Nodes::default().manifest(0);
            object["status"]["conditions"] = healthy["status"]["conditions"].clone();
        }
        "Job" => {
            object["spec"]["template"]["spec"]["restartPolicy"] = json!("Never");
            // Evicted pods count as failures.
            object["spec"]["backoffLimit"] = json!(1000);
        }
        "Pod" => {
            for container in object["spec"]["containers"].as_array_mut().into_iter().flatten() {
                let requests = container["resources"]["requests"].clone();
                // An extended resource needs a limit.
                for (resource, amount) in mapping(&requests).filter(|(name, _)| name.contains('/'))
                {
                    container["resources"]["limits"][resource] = amount.clone();
                }
            }
        }
        _ => {}
    }
    object
}

/// The objects of a list; an object with `count: N` stands for N objects.
fn objects(list: Option<Value>) -> impl Iterator<Item = Value> {
    items(list).flat_map(|mut object| {
        let fields = object.as_object_mut().expect("an object is a mapping");
        let count = fields.remove("count").map(|count| count.as_u64().expect("a number"));
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        (0..count.unwrap_or(1)).map(move |step| {
            let mut copy = object.clone();
            if count.is_some() {
                let step = u32::try_from(step).expect("a small number");
                copy["metadata"]["name"] =
                    json!(counted(&name, step).expect("the name contains a number"));
            }
            copy
        })
    })
}

fn items(list: Option<Value>) -> impl Iterator<Item = Value> {
    let list = match list {
        Some(Value::Array(list)) => list,
        Some(other) => panic!("{other} is not a list"),
        None => Vec::new(),
    };
    list.into_iter()
}

fn mapping(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

fn is_count(counts: &Map<String, Value>) -> bool {
    !counts.contains_key("min") && !counts.contains_key("max")
}

fn name(object: &Value) -> String {
    let text = |key: &str| object["metadata"][key].as_str().unwrap_or_default();
    format!("{}/{}", text("namespace"), text("name"))
}

/// The controller of a pod, as `namespace/name`; empty if it has none.
fn owner_of(pod: &Value) -> String {
    let namespace = pod["metadata"]["namespace"].as_str().unwrap_or_default();
    let owner = pod["metadata"]["ownerReferences"][0]["name"].as_str();
    owner.map_or_else(String::new, |owner| format!("{namespace}/{owner}"))
}

/// The group of a pod as in cases: its PodGroup, else its controller, else the pod.
fn group_of(pod: &Value) -> String {
    let namespace = pod["metadata"]["namespace"].as_str().unwrap_or_default();
    match pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"].as_str() {
        Some(group) => format!("{namespace}/{group}"),
        None if owner_of(pod).is_empty() => name(pod),
        None => owner_of(pod),
    }
}

/// Checks a number against a quantity of a case: a number, or a minimum and a maximum.
fn within(n_actual: usize, wanted: &Value) -> Result<(), String> {
    let bound = |key: &str| wanted.get(key).map(|n| n.as_u64().expect("a number") as usize);
    let holds = match wanted.as_u64() {
        Some(n_wanted) => n_actual == n_wanted as usize,
        None => {
            let (min, max) = (bound("min"), bound("max"));
            assert!(min.is_some() || max.is_some(), "{wanted} is not a quantity");
            min.is_none_or(|min| n_actual >= min) && max.is_none_or(|max| n_actual <= max)
        }
    };
    if holds { Ok(()) } else { Err(format!("{n_actual}, wanted {wanted}")) }
}
