//! Tests of the test bed with real servers.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    process::Output,
    time::{Duration, Instant},
};

use kube_batch_testbed::{
    Error, Result,
    assets::Binary,
    cluster::{ControlPlane, Options, Server},
    nodes::Nodes,
    pool::{Pool, PooledPlane},
    process::{Process, wait_for},
};
use rustix::process::{Pid, test_kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

const TIMEOUT: Duration = Duration::from_secs(120);

/// Starts etcd and the API server only.
fn api_server_only() -> Result<ControlPlane> {
    ControlPlane::start(Options { controllers: false, kwok: false, ..Options::default() })
}

/// Runs `kubectl` with this kubeconfig.
fn kubectl_as(plane: &ControlPlane, kubeconfig: &Path, arguments: &[&str]) -> Output {
    let mut command = plane.kubectl_command();
    command.env("KUBECONFIG", kubeconfig).args(arguments).output().expect("kubectl runs")
}

#[test]
fn dropped_cluster_leaves_no_processes_and_files() {
    let start = Instant::now();
    let options = Options { scheduler: true, audit: true, ..Options::default() };
    let mut plane = ControlPlane::start(options).unwrap();
    eprintln!("a control plane of five servers starts in {:.1?}", start.elapsed());

    let start = Instant::now();
    plane.create_nodes(&Nodes { n: 100, ..Nodes::default() }).unwrap();
    eprintln!("a hundred nodes are created in {:.1?}", start.elapsed());

    job_completes(&plane).unwrap();
    pod_terminates_after_its_delay(&plane).unwrap();
    claims_are_bound(&plane).unwrap();
    node_of_a_user_becomes_ready(&plane).unwrap();

    let events = plane.audit_events().unwrap();
    let bindings = events.iter().filter(|event| event.subresource == "binding");
    assert!(bindings.clone().count() >= 3);
    for binding in bindings {
        assert_eq!((binding.user.as_str(), binding.code), ("system:kube-scheduler", 201));
    }

    plane.expect_running().unwrap();
    let logs = plane.log_dir();
    let ids = plane.process_ids();
    assert_eq!(ids.len(), 5);
    assert!(ids.iter().all(|id| is_alive(*id)));
    drop(plane);
    assert!(!ids.iter().any(|id| is_alive(*id)));
    assert!(!logs.exists());
}

fn is_alive(id: u32) -> bool {
    let id = i32::try_from(id).ok().and_then(Pid::from_raw).expect("the id of a process");
    test_kill_process(id).is_ok()
}

fn job_completes(plane: &ControlPlane) -> Result<()> {
    plane.apply(
        "
apiVersion: batch/v1
kind: Job
metadata: {name: three}
spec:
  completions: 3
  parallelism: 3
  template:
    metadata:
      annotations: {testbed.kube-batch/run-for: 100ms}
    spec:
      restartPolicy: Never
      containers:
      - {name: main, image: none, resources: {requests: {cpu: '1'}}}
",
    )?;
    plane.kubectl(["wait", "--for=condition=Complete", "job/three", "--timeout=120s"])?;
    Ok(())
}

/// A pod runs until it is deleted, and is visible as terminating until its delay has passed.
fn pod_terminates_after_its_delay(plane: &ControlPlane) -> Result<()> {
    plane.apply(
        "
apiVersion: v1
kind: Pod
metadata:
  name: slow
  annotations: {testbed.kube-batch/stop-after: 1s}
spec:
  nodeName: node-00007
  containers:
  - {name: main, image: none}
",
    )?;
    plane.kubectl(["wait", "--for=condition=Ready", "pod/slow", "--timeout=120s"])?;
    plane.kubectl(["delete", "pod", "slow", "--wait=false"])?;
    let phase_and_deletion = [
        "get",
        "pod",
        "slow",
        "--output",
        "jsonpath={.status.phase} {.metadata.deletionTimestamp}",
    ];
    let printed = plane.kubectl(phase_and_deletion)?;
    // A year of this millennium follows the phase.
    assert!(printed.starts_with("Running 2"), "{printed}");
    plane.kubectl(["wait", "--for=delete", "pod/slow", "--timeout=120s"])?;
    Ok(())
}

/// One claim is provisioned at once, the other when a pod that uses it is scheduled.
fn claims_are_bound(plane: &ControlPlane) -> Result<()> {
    plane.apply(
        "
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: at-once}
spec:
  storageClassName: immediate
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 1Gi}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: on-demand}
spec:
  storageClassName: first-consumer
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 1Gi}}
---
apiVersion: v1
kind: Pod
metadata: {name: consumer}
spec:
  containers:
  - {name: main, image: none}
  volumes:
  - name: data
    persistentVolumeClaim: {claimName: on-demand}
",
    )?;
    let bound = "--for=jsonpath={.status.phase}=Bound";
    plane.kubectl(["wait", bound, "pvc/at-once", "pvc/on-demand", "--timeout=120s"])?;
    plane.kubectl(["wait", "--for=condition=Ready", "pod/consumer", "--timeout=120s"])?;
    plane.kubectl(["delete", "pod/consumer", "pvc/at-once", "pvc/on-demand"])?;
    wait_for("the volumes to be deleted", TIMEOUT, || {
        Ok(plane
            .kubectl(["get", "persistentvolumes", "--output", "name"])?
            .is_empty()
            .then_some(()))
    })?;
    Ok(())
}

fn node_of_a_user_becomes_ready(plane: &ControlPlane) -> Result<()> {
    plane.apply("{apiVersion: v1, kind: Node, metadata: {name: by-hand}}")?;
    plane.kubectl(["wait", "--for=condition=Ready", "node/by-hand", "--timeout=120s"])?;
    let cpu = ["get", "node", "by-hand", "--output", "jsonpath={.status.allocatable.cpu}"];
    assert_eq!(plane.kubectl(cpu)?, "16");
    Ok(())
}

#[test]
fn api_server_restarts_with_its_port_and_data() {
    let mut plane = api_server_only().unwrap();
    let address = plane.api_server_address();
    plane.kubectl(["create", "configmap", "kept", "--from-literal=a=b"]).unwrap();

    plane.stop(Server::ApiServer).unwrap();
    plane.kubectl(["get", "configmap", "kept"]).unwrap_err();
    plane.restart(Server::ApiServer).unwrap();
    plane.kubectl(["get", "configmap", "kept"]).unwrap();

    plane.restart(Server::Etcd).unwrap();
    plane.kubectl(["get", "configmap", "kept"]).unwrap();
    assert_eq!(plane.api_server_address(), address);
}

#[test]
fn clients_may_do_only_what_their_roles_allow() {
    let plane = api_server_only().unwrap();
    plane
        .apply(
            "
apiVersion: v1
kind: Namespace
metadata: {name: system}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: reader, namespace: system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: reader}
rules:
- {apiGroups: [''], resources: [pods], verbs: [list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: reader}
subjects:
- {kind: ServiceAccount, name: reader, namespace: system}
- {apiGroup: rbac.authorization.k8s.io, kind: Group, name: readers}
",
        )
        .unwrap();
    let account = plane.service_account_kubeconfig("system", "reader").unwrap();
    let user = plane.kubeconfig_for_user("ada", &["readers"]).unwrap();
    let unauthenticated = plane.kubeconfig_for_token("invalid").unwrap();
    let unauthorized = plane.kubeconfig_for_user("eve", &[]).unwrap();

    for (client, may_list) in
        [(&account, true), (&user, true), (&unauthenticated, false), (&unauthorized, false)]
    {
        let output = kubectl_as(&plane, client, &["get", "pods"]);
        assert_eq!(output.status.success(), may_list, "{output:?}");
        let output = kubectl_as(&plane, client, &["get", "secrets"]);
        assert!(!output.status.success(), "{output:?}");
    }
}

#[test]
fn failed_start_shows_the_end_of_the_log() {
    let options =
        Options { api_server_flags: vec!["--no-such-flag".to_owned()], ..Options::default() };
    let error = ControlPlane::start(options).unwrap_err();
    let Error::Server { server, log, tail, .. } = error else { panic!("{error}") };
    assert_eq!(server, Binary::ApiServer.name());
    assert!(tail.contains("unknown flag: --no-such-flag"), "{tail}");
    assert!(log.exists());
    fs::remove_dir_all(log.ancestors().nth(2).unwrap()).unwrap();
}

/// Every object except for events and for what the API server keeps for itself: its kind and name, and its content
/// without what changes with each write.
fn all_objects(plane: &ControlPlane) -> Result<BTreeMap<String, Value>> {
    let kinds = plane.kubectl(["api-resources", "--verbs=list", "--output=name"])?;
    let kinds: Vec<&str> = kinds.lines().filter(|kind| !kind.starts_with("events")).collect();
    let args = ["get", &kinds.join(","), "--all-namespaces", "--output=json"];
    let list: Value = serde_json::from_str(&plane.kubectl(args)?).expect("JSON");
    let named = list["items"].as_array().expect("a list").iter().cloned().map(|mut object| {
        let metadata = object["metadata"].as_object_mut().expect("an object has metadata");
        metadata.remove("resourceVersion");
        let [namespace, name] = ["namespace", "name"].map(|key| metadata.get(key).cloned());
        (format!("{} {namespace:?} {name:?}", object["kind"]), object)
    });
    let is_own_lease = |key: &String| key.contains("Lease") && key.contains("apiserver-");
    Ok(named.filter(|(key, _)| !is_own_lease(key)).collect())
}

/// Objects of many kinds, in namespaces and outside.
const MANY_KINDS: &str = "
{apiVersion: v1, kind: Namespace, metadata: {name: team}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: held, namespace: team, finalizers: [example.com/never-removed]}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: account, namespace: team}}
---
{apiVersion: v1, kind: Secret, metadata: {name: secret, namespace: default}, stringData: {a: b}}
---
apiVersion: v1
kind: Service
metadata: {name: service, namespace: team}
spec: {selector: {of: many}, ports: [{port: 80}]}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: claim, namespace: team}
spec: {storageClassName: immediate, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: many, namespace: team}
spec:
  completions: 4
  parallelism: 4
  template:
    metadata:
      labels: {of: many}
      annotations: {testbed.kube-batch/stop-after: 1h}
    spec:
      restartPolicy: Never
      nodeName: node-00000
      containers: [{name: main, image: none}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: replicated, namespace: team}
spec:
  replicas: 3
  selector: {matchLabels: {of: replicated}}
  template:
    metadata: {labels: {of: replicated}}
    spec: {containers: [{name: main, image: none}]}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: budget, namespace: team}
spec: {minAvailable: 1, selector: {matchLabels: {of: many}}}
---
{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: high}, value: 1000}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: extended, labels: {rbac.authorization.k8s.io/aggregate-to-view: 'true'}}
rules: [{apiGroups: [example.com], resources: [things], verbs: [get]}]
---
apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: PriorityLevelConfiguration
metadata: {name: level}
spec: {type: Limited, limited: {nominalConcurrencyShares: 1, limitResponse: {type: Reject}}}
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: lease, namespace: kube-system}
spec: {holderIdentity: another}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.example.com}
spec:
  group: example.com
  names: {kind: Thing, plural: things}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object}}
";

/// Creates, changes and deletes objects of many kinds.
fn make_a_mess(plane: &ControlPlane) -> Result<()> {
    plane.create_nodes(&Nodes { n: 3, ..Nodes::default() })?;
    plane.apply(MANY_KINDS)?;
    plane.kubectl(["wait", "--for=condition=Established", "crd/things.example.com"])?;
    let thing =
        "{apiVersion: example.com/v1, kind: Thing, metadata: {name: thing, namespace: team}}";
    plane.apply(thing)?;
    wait_for_job(plane)?;
    // Neither ends: the pods stop after an hour, and no controller removes the finalizer.
    plane.kubectl(["delete", "pods", "--all", "--namespace=team", "--wait=false"])?;
    plane.kubectl(["delete", "configmap", "held", "--namespace=team", "--wait=false"])?;
    // Objects that were there before.
    plane.kubectl(["label", "namespace", "default", "changed=yes"])?;
    plane.kubectl(["delete", "storageclass", "immediate"])?;
    plane.kubectl(["delete", "serviceaccount", "default", "--namespace=default"])?;
    plane.kubectl(["delete", "clusterrole", "system:kube-dns"])?;
    plane.kubectl(["create", "clusterrole", "system:kube-dns", "--verb=get", "--resource=pods"])?;
    Ok(())
}

/// Waits until the pods of the Job in [`MANY_KINDS`] run.
fn wait_for_job(plane: &ControlPlane) -> Result<()> {
    let running = ["wait", "--for=jsonpath={.status.ready}=4", "job/many", "--namespace=team"];
    plane.kubectl(running.into_iter().chain(["--timeout=120s"])).map(drop)
}

#[test]
fn restored_plane_has_the_objects_that_it_had() {
    let plane = ControlPlane::start(Options::default()).unwrap();
    let mut snapshot = plane.snapshot().unwrap();
    let before = all_objects(&plane).unwrap();
    make_a_mess(&plane).unwrap();
    assert!(all_objects(&plane).unwrap().len() > before.len() + 25);

    let start = Instant::now();
    plane.restore(&mut snapshot).unwrap();
    eprintln!("all objects are restored in {:.1?}", start.elapsed());
    assert_eq!(all_objects(&plane).unwrap(), before);
    let things = plane.kubectl(["get", "things.example.com"]).unwrap_err().to_string();
    assert!(things.contains("the server doesn't have a resource type"), "{things}");

    // It works as a new one does.
    plane.create_nodes(&Nodes { n: 3, ..Nodes::default() }).unwrap();
    plane.apply(MANY_KINDS).unwrap();
    wait_for_job(&plane).unwrap();
}

/// Takes a control plane for a test, with nothing prepared.
fn take(pool: &'static Pool, test: &str) -> Result<PooledPlane> {
    let options = Options { controllers: false, kwok: false, audit: true, ..Options::default() };
    let mut plane = pool.take(test, options, "empty")?;
    if plane.is_new() {
        plane.remember()?;
    }
    Ok(plane)
}

#[test]
fn planes_that_can_be_cleaned_are_used_again() {
    static POOL: Pool = Pool::new();
    let plane = take(&POOL, "first").unwrap();
    let servers = plane.process_ids();
    plane.kubectl(["create", "configmap", "of-first"]).unwrap();
    fs::write(plane.log_dir().join("own.log"), "of the first test").unwrap();
    drop(plane);

    let plane = take(&POOL, "second").unwrap();
    assert_eq!(plane.process_ids(), servers);
    plane.kubectl(["get", "configmap", "of-first"]).unwrap_err();
    plane.kubectl(["create", "configmap", "of-second"]).unwrap();
    let events = plane.audit_events().unwrap();
    let created: Vec<&str> = (events.iter().filter(|event| event.verb == "create"))
        .map(|event| event.name.as_str())
        .collect();
    assert_eq!(created, ["of-second"]);
    let logs = plane.log_dir();
    let tests = fs::read_to_string(logs.join("tests.txt")).unwrap();
    let tests: Vec<&str> = tests.lines().filter_map(|line| line.rsplit(' ').next()).collect();
    assert_eq!(tests, ["first", "second"]);
    assert!(!logs.join("own.log").exists());
    assert!(logs.join("before-1/own.log").exists());

    plane.apply(POLICY).unwrap();
    let plane = replaced(&POOL, plane).unwrap();

    // A client keeps creating objects.
    let client = start_restless_client(&plane).unwrap();
    let mut plane = replaced(&POOL, plane).unwrap();
    drop(client);

    plane.restart(Server::Etcd).unwrap();
    let servers = plane.process_ids();
    drop(plane);
    assert!(!servers.into_iter().any(is_alive), "a plane of which a server was stopped");
}

/// The API server enforces it with a delay.
const POLICY: &str = "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: policy}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  validations: [{expression: 'false'}]
";

/// A client that creates objects for longer than a plane may take to become clean: a fast machine creates 700 a second.
fn start_restless_client(plane: &ControlPlane) -> Result<(Process, TempDir)> {
    let directory = tempfile::tempdir().expect("a directory");
    let object = |nth| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("n-{nth}")}});
    let objects: Vec<Value> = (0..30_000).map(object).collect();
    let file = directory.path().join("objects.json");
    fs::write(&file, json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string())
        .expect("a file");
    let mut client = plane.kubectl_command();
    client.args(["create", "--validate=false", "--filename"]).arg(file);
    let process = Process::start("client", &client, &directory.path().join("log"))?;
    let exists = ["get", "configmap", "n-0"];
    wait_for("its first object", TIMEOUT, || Ok(plane.kubectl(exists).ok()))?;
    Ok((process, directory))
}

/// Gives a plane back, and returns the one of the next test, which must be new; nothing may be left of the first.
fn replaced(pool: &'static Pool, plane: PooledPlane) -> Result<PooledPlane> {
    let (servers, logs) = (plane.process_ids(), plane.log_dir());
    drop(plane);
    let next = take(pool, "next")?;
    assert!(!servers.iter().any(|id| is_alive(*id) || next.process_ids().contains(id)));
    assert!(!logs.exists());
    Ok(next)
}
