//! What a contender finds when it starts: a control plane with nodes, PodGroups and pods.

use std::path::Path;

use futures::StreamExt;
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::{client::legacy::connect::HttpConnector, rt::TokioExecutor};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, Config,
    api::PostParams,
    client::{Body, ClientBuilder, ConfigExt},
    config::{KubeConfigOptions, Kubeconfig},
};
use kube_batch_testbed::{
    cluster::{ControlPlane, Options},
    nodes::Nodes,
};
use serde_json::{Value, json};
use tower::ServiceBuilder;
use xtask_launcher::build::root;

/// Number of concurrent calls of a loop: the best value found on two cores.
pub(crate) const N_CONCURRENT: usize = 32;
pub(crate) const NAMESPACE: &str = "bench";
/// The annotation that names a PodGroup of kube-batch.
const GROUP_NAME: &str = "scheduling.k8s.io/group-name";

/// Nodes with 32 cores and 256Gi.
pub(crate) fn nodes(n: usize) -> Nodes {
    Nodes { n, cpu: "32".into(), memory: "256Gi".into(), ..Nodes::default() }
}

/// Starts a control plane with this number of nodes. Only with `pod_groups` does it serve PodGroups of Kubernetes.
pub(crate) fn plane(n_nodes: usize, pod_groups: bool) -> ControlPlane {
    let options =
        Options { kwok: false, audit: true, load: true, pod_groups, ..Options::default() };
    let plane = ControlPlane::start(options).unwrap_or_else(|error| panic!("{error}"));
    let deploy = root().join("deploy");
    plane
        .kubectl(["apply", "--kustomize", deploy.to_str().expect("a plain path")])
        .unwrap_or_else(|error| panic!("{error}"));
    plane.create_nodes(&nodes(n_nodes)).expect("nodes are created");
    plane.kubectl(["create", "namespace", NAMESPACE]).expect("a namespace");
    plane
}

/// A PodGroup that starts when it has this number of pods.
pub(crate) fn group(name: &str, minimum: usize, is_native: bool) -> Value {
    let (version, spec) = if is_native {
        let gang = json!({"gang": {"minCount": minimum}});
        ("scheduling.k8s.io/v1beta1", json!({"schedulingPolicy": gang}))
    } else {
        ("scheduling.sigs.dev/v1alpha2", json!({"minMember": minimum}))
    };
    json!({
        "apiVersion": version,
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": spec,
    })
}

/// A pod that names this scheduler and belongs to no PodGroup.
pub(crate) fn pod(name: &str, scheduler: &str, cpu: &str, memory: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "schedulerName": scheduler,
            "containers": [{
                "name": "work",
                "image": "busybox",
                "resources": {"requests": {"cpu": cpu, "memory": memory}},
            }],
        },
    })
}

/// Makes a pod a member of a PodGroup.
pub(crate) fn join(pod: &mut Value, group: &str, is_native: bool) {
    if is_native {
        pod["spec"]["schedulingGroup"] = json!({"podGroupName": group});
    } else {
        pod["metadata"]["annotations"] = json!({GROUP_NAME: group});
    }
}

/// Small pods that run, the same number on each node.
pub(crate) fn running(n: usize, n_nodes: usize, scheduler: &str) -> impl Iterator<Item = Value> {
    let nodes = nodes(n_nodes);
    (0..n).map(move |nth| {
        let mut pod = pod(&format!("running-{nth:05}"), scheduler, "100m", "1Gi");
        pod["spec"]["nodeName"] = json!(nodes.name(nth % n_nodes));
        pod
    })
}

/// Creates pods concurrently, because `kubectl` is too slow for thousands of them.
pub(crate) fn create_pods(kubeconfig: &Path, pods: impl Iterator<Item = Value>) {
    on_threads(async {
        let client = client(kubeconfig).await;
        let api: Api<Pod> = Api::namespaced(client, NAMESPACE);
        futures::stream::iter(pods)
            .map(|pod| create_pod(api.clone(), pod))
            .buffer_unordered(N_CONCURRENT)
            .for_each(|()| async {})
            .await;
    });
}

pub(crate) async fn create_pod(api: Api<Pod>, pod: Value) {
    let pod = serde_json::from_value(pod).expect("a pod");
    api.create(&PostParams::default(), &pod).await.expect("a pod is created");
}

pub(crate) async fn config(kubeconfig: &Path) -> Config {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).expect("a kubeconfig");
    Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .expect("a configuration")
}

pub(crate) async fn client(kubeconfig: &Path) -> Client {
    Client::try_from(config(kubeconfig).await).expect("a client")
}

/// A client that sends all requests over one HTTP/2 connection.
pub(crate) fn http2_client(config: &Config) -> Client {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    let connector = HttpsConnectorBuilder::new()
        .with_tls_config(config.rustls_client_config().expect("certificates"))
        .https_only()
        .enable_http2()
        .wrap_connector(connector);
    let http: hyper_util::client::legacy::Client<_, Body> =
        hyper_util::client::legacy::Client::builder(TokioExecutor::new())
            .http2_only(true)
            .build(connector);
    let service = ServiceBuilder::new().layer(config.base_uri_layer()).service(http);
    ClientBuilder::new(service, NAMESPACE).build()
}

pub(crate) fn on_threads<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.expect("threads").block_on(work)
}
