//! Reads objects over one connection: a `kubectl` process for each look would take more of the processors than what
//! is tested.

use std::{path::Path, time::Duration};

use hyper::Request;
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::Value;
use tokio::runtime::Runtime;

/// Maximum time until a server responds.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Resources that tests name without their group, and the path of their group.
const GROUPS: [(&str, &str); 8] = [
    ("events", "api/v1"),
    ("nodes", "api/v1"),
    ("persistentvolumeclaims", "api/v1"),
    ("pods", "api/v1"),
    ("replicasets", "apis/apps/v1"),
    ("jobs", "apis/batch/v1"),
    ("poddisruptionbudgets", "apis/policy/v1"),
    ("resourceclaims", "apis/resource.k8s.io/v1"),
];

/// Versions of groups that tests name.
const VERSIONS: [(&str, &str); 2] =
    [("scheduling.sigs.dev", "v1alpha2"), ("scheduling.incubator.k8s.io", "v1alpha1")];

/// A client of an API server.
pub(crate) struct Reader {
    runtime: Runtime,
    client: Client,
}

impl Reader {
    /// A client with this kubeconfig.
    pub(crate) fn new(kubeconfig: &Path) -> Self {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build().expect("a runtime");
        let kubeconfig = Kubeconfig::read_from(kubeconfig).expect("a kubeconfig");
        let options = KubeConfigOptions::default();
        let client = runtime.block_on(async {
            let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
            Client::try_from(config.expect("a valid kubeconfig")).expect("a client")
        });
        Self { runtime, client }
    }

    /// The response to a GET request.
    pub(crate) fn get(&self, path: &str) -> Result<Value, String> {
        let request = Request::get(path).body(Vec::new()).expect("a valid path");
        let response = self.runtime.block_on(async {
            tokio::time::timeout(TIMEOUT, self.client.request::<Value>(request)).await
        });
        match response {
            Ok(response) => response.map_err(|error| error.to_string()),
            Err(_) => Err(format!("{path}: no response after {} s", TIMEOUT.as_secs())),
        }
    }
}

/// The path of a resource's objects in a namespace, or in all, if `resource` is one of those that tests read often.
pub(crate) fn path(resource: &str, namespace: Option<&str>) -> Option<String> {
    let (plural, group) = match resource.split_once('.') {
        Some((plural, group)) => {
            let (_, version) = VERSIONS.into_iter().find(|(name, _)| *name == group)?;
            (plural, format!("apis/{group}/{version}"))
        }
        None => {
            let (_, group) = GROUPS.into_iter().find(|(name, _)| *name == resource)?;
            (resource, group.to_owned())
        }
    };
    let is_namespaced = !["nodes", "queues"].contains(&plural);
    let namespace = namespace.filter(|_| is_namespaced);
    let namespace = namespace.map_or(String::new(), |name| format!("/namespaces/{name}"));
    Some(format!("/{group}{namespace}/{plural}"))
}
