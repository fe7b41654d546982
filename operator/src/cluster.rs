//! Reads the objects of a cluster once, for a simulation.
//!
//! It lists every kind that a simulation reads, and nothing else. What the user may not read in the
//! whole cluster is read in the namespace of the kubeconfig's context, if that is allowed.

use std::path::Path;

use anyhow::{Context, anyhow};
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig, KubeconfigError},
};
use kube_batch_api::kind::{Availability, Kind};
use kube_batch_cli::Lists;
use serde::Deserialize;

use crate::run::error;

/// Objects in one answer, as in client-go.
const PAGE: u32 = 500;

/// Reads the cluster that a kubeconfig names; without a file, the one that kubectl would use.
///
/// # Errors
///
/// If the kubeconfig cannot be used, or the API server cannot be reached or rejects the user.
pub(crate) fn read(file: Option<&Path>, context: Option<&str>) -> anyhow::Result<Lists> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let config = config(file, context).await?;
        let server = config.cluster_url.to_string();
        let client = Client::try_from(config).context("cannot make a client")?;
        read_all(&client).await.with_context(|| format!("cannot read the cluster at {server}"))
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

async fn read_all(client: &Client) -> anyhow::Result<Lists> {
    let mut reader = Reader { client, lists: Lists::default() };
    for kind in Kind::ALL.iter().copied() {
        let mut n_served = 0;
        for (api, resource) in apis(kind).zip(kind.resources()) {
            n_served += usize::from(reader.read(kind, &api, &resource).await?);
        }
        // Few clusters have the others; those of PodGroups and queues are what is simulated.
        let is_usual =
            kind.availability() != Availability::IfInstalled || kind.versions().next().is_some();
        if n_served == 0 && is_usual {
            let resources = kind.resources().join(" and ");
            let consequence = kind.if_missing();
            reader.report(format!("the cluster does not serve {resources}: {consequence}"));
        }
    }
    Ok(reader.lists)
}

/// Reads lists one after the other.
struct Reader<'a> {
    client: &'a Client,
    lists: Lists,
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
        let reason = match list(self.client, &format!("/{api}/{plural}")).await? {
            Answer::Pages(pages) => {
                self.keep(resource, pages);
                return Ok(true);
            }
            Answer::NotServed => return Ok(false),
            Answer::Forbidden(reason) => reason,
        };
        let consequence = kind.if_missing();
        if kind.is_namespaced() {
            let namespace = self.client.default_namespace();
            let path = format!("/{api}/namespaces/{namespace}/{plural}");
            if let Answer::Pages(pages) = list(self.client, &path).await? {
                self.keep(resource, pages);
                self.report(format!(
                    "read {resource} only in namespace {namespace}; elsewhere {consequence}: {reason}"
                ));
                return Ok(true);
            }
        }
        self.report(format!("cannot read {resource}, so {consequence}: {reason}"));
        Ok(true)
    }

    fn keep(&mut self, resource: &str, pages: Vec<String>) {
        self.lists.lists.extend(pages.into_iter().map(|page| (resource.to_owned(), page)));
    }

    fn report(&mut self, problem: String) {
        self.lists.problems.push(problem);
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

/// The token of the next page; the API server writes it as it has to be in a URL.
fn next_page(page: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct List {
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    struct Metadata {
        #[serde(rename = "continue", default)]
        token: String,
    }
    let list: List = serde_json::from_str(page).ok()?;
    Some(list.metadata.token).filter(|token| !token.is_empty())
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
        let lists = read_all(&api.client()).await.expect("what can be read");
        let named = |resource: &str| lists.lists.iter().find(|(name, _)| name == resource);
        assert!(named("nodes").expect("the nodes").1.contains(r#""name":"n""#));
        assert!(named("pods").is_some() && named("persistentvolumes").is_none());
        let problems = lists.problems.join("\n");
        for part in [
            "read pods only in namespace default; elsewhere nodes look empty",
            "cannot read persistentvolumes, so pods whose claims are bound to a volume wait",
            "the cluster does not serve resourceclaims.resource.k8s.io: pods with resource claims wait",
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
        let error = read_all(&api.client()).await.expect_err("401");
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
