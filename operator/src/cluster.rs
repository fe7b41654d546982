//! What the commands ask of a cluster: its objects, once or after each change, and the state of a queue.
//!
//! It lists the kinds that a command reads, and nothing else. What the user may not read in the
//! whole cluster is read in the namespace of the kubeconfig's context, if that is allowed.

mod follow;

use std::path::Path;

use anyhow::{Context, anyhow};
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig, KubeconfigError},
};
use kube_batch_api::kind::{Availability, Kind};
use kube_batch_cli::{
    ClusterAccess, ClusterTarget, Lists, Namespaces, QueueRef, ReadProblem, Show, Unread,
};
use serde::Deserialize;
use serde_json::Value;

use self::follow::WatchedList;
use crate::run::error;

/// Objects in one answer, as in client-go.
const PAGE: u32 = 500;

/// Clusters, by their kubeconfigs.
pub(crate) struct KubeCluster;

impl ClusterAccess for KubeCluster {
    fn read(&self, target: &ClusterTarget, kinds: &[Kind]) -> anyhow::Result<Lists> {
        with_client(target, async |client, namespaces| {
            Ok(read(&client, kinds, namespaces).await?.lists)
        })
    }

    fn follow(&self, target: &ClusterTarget, kinds: &[Kind], show: Show<'_>) -> anyhow::Result<()> {
        with_client(target, async |client, namespaces| {
            loop {
                let Found { lists, watched } = read(&client, kinds, namespaces).await?;
                show(lists)?;
                follow::wait_for_change(&client, &watched).await;
            }
        })
    }

    fn patch_queue(
        &self,
        target: &ClusterTarget,
        queue: &QueueRef,
        patch: &Value,
    ) -> anyhow::Result<()> {
        with_client(target, async |client, _| {
            let path = format!("/apis/{}/queues/{}", queue.version, queue.name);
            let request = http::Request::patch(&path)
                .header("Content-Type", "application/merge-patch+json")
                .body(serde_json::to_vec(patch)?)?;
            let answer = client.request_text(request).await;
            answer.map_err(|error| anyhow!("PATCH {path}: {}", error::chain(&error)))?;
            Ok(())
        })
    }
}

/// Runs something with the client of a cluster.
fn with_client<T>(
    target: &ClusterTarget,
    run: impl AsyncFnOnce(Client, &Namespaces) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let config = config(target.kubeconfig.as_deref(), target.context.as_deref()).await?;
        let server = config.cluster_url.to_string();
        let client = Client::try_from(config).context("cannot make a client")?;
        let result = run(client, &target.namespaces).await;
        result.with_context(|| format!("cannot read the cluster at {server}"))
    })
}

async fn config(file: Option<&Path>, context: Option<&str>) -> anyhow::Result<Config> {
    let read = match file {
        Some(file) => Kubeconfig::read_from(file),
        None => Kubeconfig::read(),
    };
    let shown = file.map_or_else(String::new, |file| format!(" {}", file.display()));
    let kubeconfig = read.map_err(|error| match error {
        KubeconfigError::ReadConfig(error, path) => {
            anyhow!(error).context(format!("cannot read kubeconfig {}", path.display()))
        }
        // Its text contains that of its cause.
        error => anyhow!("cannot read kubeconfig{shown}: {error}"),
    })?;
    let options =
        KubeConfigOptions { context: context.map(str::to_owned), ..KubeConfigOptions::default() };
    Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .with_context(|| format!("cannot use kubeconfig{shown}"))
}

async fn read(client: &Client, kinds: &[Kind], namespaces: &Namespaces) -> anyhow::Result<Found> {
    let mut reader = Reader { client, namespaces, found: Found::default() };
    for kind in kinds.iter().copied() {
        let mut n_served = 0;
        for (api, resource) in apis(kind).zip(kind.resources()) {
            n_served += usize::from(reader.read(kind, &api, &resource).await?);
        }
        // Few clusters have the others; those of PodGroups and queues are what is simulated.
        let is_usual =
            kind.availability() != Availability::IfInstalled || kind.versions().next().is_some();
        if n_served == 0 && is_usual {
            reader.report(kind, &kind.resources().join(" and "), Unread::NotServed);
        }
    }
    Ok(reader.found)
}

/// Reads lists one after the other.
struct Reader<'a> {
    client: &'a Client,
    namespaces: &'a Namespaces,
    found: Found,
}

/// What was read, and where.
#[derive(Debug, Default)]
struct Found {
    lists: Lists,
    watched: Vec<WatchedList>,
}

/// Where each of the resources of a kind is in URLs: `api/v1`, `apis/batch/v1`.
fn apis(kind: Kind) -> impl Iterator<Item = String> {
    let root = |version: &str| if version.contains('/') { "apis" } else { "api" };
    kind.api_versions().into_iter().map(move |version| format!("{}/{version}", root(&version)))
}

/// What a list request came to.
enum Answer {
    Pages(Vec<String>),
    /// The reason that the API server gave.
    Forbidden(String),
    NotServed,
}

impl Reader<'_> {
    /// Reads one resource; returns whether it is served.
    async fn read(&mut self, kind: Kind, api: &str, resource: &str) -> anyhow::Result<bool> {
        let plural = kind.plural();
        let only = match self.namespaces {
            _ if !kind.is_namespaced() => None,
            Namespaces::All => None,
            Namespaces::OfContext => Some(self.client.default_namespace()),
            Namespaces::Only(namespace) => Some(&**namespace),
        };
        let path = match only {
            Some(namespace) => format!("/{api}/namespaces/{namespace}/{plural}"),
            None => format!("/{api}/{plural}"),
        };
        let reason = match list(self.client, &path).await? {
            Answer::Pages(pages) => {
                self.keep(resource, path, pages);
                return Ok(true);
            }
            Answer::NotServed => return Ok(false),
            Answer::Forbidden(reason) => reason,
        };
        if kind.is_namespaced() && only.is_none() {
            let namespace = self.client.default_namespace();
            let path = format!("/{api}/namespaces/{namespace}/{plural}");
            if let Answer::Pages(pages) = list(self.client, &path).await? {
                self.keep(resource, path, pages);
                let namespace = namespace.to_owned();
                self.report(kind, resource, Unread::ElsewhereThan(namespace, reason));
                return Ok(true);
            }
        }
        self.report(kind, resource, Unread::Forbidden(reason));
        Ok(true)
    }

    fn keep(&mut self, resource: &str, path: String, pages: Vec<String>) {
        let version = pages.first().map(|page| metadata(page).resource_version);
        self.found.watched.push(WatchedList { path, version: version.unwrap_or_default() });
        let pages = pages.into_iter().map(|page| (resource.to_owned(), page));
        self.found.lists.lists.extend(pages);
    }

    fn report(&mut self, kind: Kind, resource: &str, why: Unread) {
        let resource = resource.to_owned();
        self.found.lists.problems.push(ReadProblem { kind, resource, why });
    }
}

/// All pages of a list.
async fn list(client: &Client, path: &str) -> anyhow::Result<Answer> {
    let mut pages = Vec::new();
    let mut query = format!("limit={PAGE}");
    loop {
        let request = http::Request::get(format!("{path}?{query}")).body(Vec::new())?;
        match client.request_text(request).await {
            Ok(page) => {
                let next = next_page(&page);
                pages.push(page);
                match next {
                    Some(token) => query = format!("limit={PAGE}&continue={token}"),
                    None => return Ok(Answer::Pages(pages)),
                }
            }
            Err(kube::Error::Api(status)) if status.code == 403 => {
                return Ok(Answer::Forbidden(status.message.clone()));
            }
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(Answer::NotServed),
            // The list is too old to be continued: read it in one piece.
            Err(kube::Error::Api(status)) if status.code == 410 && !pages.is_empty() => {
                pages.clear();
                query = String::new();
            }
            Err(error) => {
                let reason = error::chain(&error);
                return Err(anyhow::anyhow!("GET {path}: {reason}"));
            }
        }
    }
}

/// The metadata of a list.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ListMetadata {
    /// The token of the next page.
    #[serde(rename = "continue")]
    token: String,
    resource_version: String,
}

fn metadata(page: &str) -> ListMetadata {
    #[derive(Deserialize)]
    struct List {
        metadata: ListMetadata,
    }
    serde_json::from_str(page).map(|list: List| list.metadata).unwrap_or_default()
}

/// The token of the next page; the API server writes it as it has to be in a URL.
fn next_page(page: &str) -> Option<String> {
    Some(metadata(page).token).filter(|token| !token.is_empty())
}

#[cfg(test)]
mod tests {
    use http::Method;
    use serde_json::json;

    use super::*;
    use crate::run::{
        fake_api::{FakeApi, Fault},
        watch,
    };

    #[test]
    fn every_kind_that_the_scheduler_watches_is_read() {
        let read: Vec<String> = Kind::ALL.iter().flat_map(|kind| kind.resources()).collect();
        let all = watch::Selection { priority_class: true, without: Vec::new() };
        for watched in all.kinds() {
            assert!(
                read.iter().any(|resource| resource == watched),
                "{watched} is not in {read:?}"
            );
        }
    }

    #[test]
    fn every_resource_has_an_api() {
        for kind in Kind::ALL.iter().copied() {
            assert_eq!(kind.api_versions().len(), kind.resources().len(), "{kind}");
        }
        assert_eq!(apis(Kind::Pod).collect::<Vec<_>>(), ["api/v1"]);
        assert_eq!(apis(Kind::Job).collect::<Vec<_>>(), ["apis/batch/v1"]);
        assert_eq!(
            Kind::Queue.resources(),
            [
                "queues.scheduling.volcano.sh",
                "queues.scheduling.incubator.k8s.io",
                "queues.scheduling.sigs.dev"
            ]
        );
    }

    #[tokio::test(flavor = "local")]
    async fn what_cannot_be_read_is_skipped_and_reported() {
        let api = FakeApi::default();
        for kind in Kind::ALL.iter().copied() {
            for path in apis(kind) {
                if path != "apis/scheduling.sigs.dev/v1alpha2" && kind != Kind::ResourceClaim {
                    api.serve(&format!("/{path}/{}", kind.plural()));
                }
            }
        }
        let node = json!({"metadata": {"name": "n"}});
        api.put("/api/v1/nodes/n", node);
        api.fail_always(Method::GET, "/persistentvolumes", Fault::Status(403));
        api.fail_always(Method::GET, "/api/v1/pods", Fault::Status(403));
        api.serve("/api/v1/namespaces/default/pods");
        let found = read(&api.client(), Kind::ALL, &Namespaces::All).await;
        let lists = found.expect("what can be read").lists;
        let named = |resource: &str| lists.lists.iter().find(|(name, _)| name == resource);
        assert!(named("nodes").expect("the nodes").1.contains(r#""name":"n""#));
        assert!(named("pods").is_some() && named("persistentvolumes").is_none());
        let problems = lists.problems.iter().map(|problem| format!("{problem}\n"));
        let problems: String = problems.collect();
        for part in [
            "read pods only in namespace default: ",
            "cannot read persistentvolumes: ",
            "the cluster does not serve resourceclaims.resource.k8s.io",
        ] {
            assert!(problems.contains(part), "{part} in {problems}");
        }
        // One API group of PodGroups and Queues is enough.
        assert_eq!(lists.problems.len(), 3, "{problems}");
        assert!(api.sent().iter().all(|sent| sent.method == Method::GET));
    }

    #[tokio::test(flavor = "local")]
    async fn an_api_server_that_fails_is_an_error() {
        let api = FakeApi::default();
        api.fail_always(Method::GET, "/api/v1/nodes", Fault::Status(401));
        let error = read(&api.client(), Kind::ALL, &Namespaces::All).await.expect_err("401");
        assert!(error.to_string().contains("GET /api/v1/nodes"), "{error}");
    }

    #[test]
    fn a_list_is_read_page_by_page() {
        assert_eq!(
            next_page(r#"{"metadata": {"continue": "abc"}, "items": []}"#).as_deref(),
            Some("abc")
        );
        assert_eq!(next_page(r#"{"metadata": {}, "items": []}"#), None);
    }
}
