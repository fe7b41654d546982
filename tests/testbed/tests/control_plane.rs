//! Tests of the test bed with real servers.

use std::{
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
    process::wait_for,
};
use rustix::process::{Pid, test_kill_process};

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
