//! Where the API server is and who we are.

use std::path::Path;

use anyhow::{Context, anyhow, bail};
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};

use tracing::info;

use super::watch::cause;
use crate::args::RunArgs;

/// A client of the API server that the flags name; the server need not be there yet.
///
/// # Errors
///
/// With the way out, if the flags name none, or the file cannot be used.
pub(crate) async fn client(args: &RunArgs) -> anyhow::Result<Client> {
    let config = config(args).await?;
    info!(
        server = %config.cluster_url,
        version = env!("CARGO_PKG_VERSION"),
        scheduler_name = args.scheduler_name,
        "starting"
    );
    Client::try_from(config).context("cannot make a client")
}

/// The client configuration that the flags ask for: a kubeconfig, else that of the pod this runs
/// in; `--master` says where the server is, whatever else does.
async fn config(args: &RunArgs) -> anyhow::Result<Config> {
    let mut config = match &args.kubeconfig {
        Some(path) => from_file(path).await?,
        None => Config::incluster().map_err(|error| {
            anyhow!(
                "no --kubeconfig is given and this is not a pod with a service account ({}): \
                 name a kubeconfig with --kubeconfig or KUBECONFIG",
                cause(&error)
            )
        })?,
    };
    if let Some(master) = &args.master {
        // A bare host and port is one without TLS, as client-go has it.
        let url = if master.contains("://") { master.clone() } else { format!("http://{master}") };
        config.cluster_url =
            url.parse().with_context(|| format!("--master \"{master}\" is no address"))?;
    }
    // Each write says itself how long it is worth sending again.
    config.default_retry = false;
    Ok(config)
}

async fn from_file(path: &Path) -> anyhow::Result<Config> {
    let shown = path.display();
    if !path.exists() {
        bail!("kubeconfig {shown} does not exist");
    }
    let kubeconfig =
        Kubeconfig::read_from(path).with_context(|| format!("cannot read kubeconfig {shown}"))?;
    Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .with_context(|| format!("cannot use kubeconfig {shown}"))
}
