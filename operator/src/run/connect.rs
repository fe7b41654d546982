//! Clients of the API server: address, credentials and connections.

use std::{path::Path, time::Duration};

use anyhow::{Context, anyhow, bail};
use http::{Response, Uri};
use hyper_rustls::{FixedServerNameResolver, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use kube::{
    Client, Config,
    client::{Body, ClientBuilder, ConfigExt},
    config::{KubeConfigOptions, Kubeconfig},
};
use kube_batch_cli::scheduler_names;
use tower::{BoxError, ServiceBuilder, ServiceExt};
use tracing::info;

use super::{
    credentials::Credentials, error, fence::Fenced, retry_after::with_retry_after, term::Terms,
};
use crate::args::RunArgs;

/// How long a connection may be silent before the kernel probes whether its peer is there, and the time
/// between probes.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// Probes without an answer after which a connection is closed.
const KEEP_ALIVE_RETRIES: u32 = 3;
/// How long a connection that no call uses is kept. Short, because it may be dead, and the next call would wait for it;
/// but longer than the pauses between renewals of the lease and between lists of kinds that are not served, which
/// would otherwise each make a new connection.
const IDLE_TIMEOUT: Duration = Duration::from_secs(7);
/// How long what was sent may remain without acknowledgement before a connection is closed. Without this
/// the kernel tries for a quarter of an hour.
#[cfg(target_os = "linux")]
const UNACKNOWLEDGED_TIMEOUT: Duration = Duration::from_secs(15);
/// How long an HTTP/2 connection with pending calls may be silent before it is pinged.
const PING_INTERVAL: Duration = Duration::from_secs(2);
/// How long the answer to a ping may take before the HTTP/2 connection is closed. A call on it has
/// timed out by then and is retried on a new connection.
const PING_TIMEOUT: Duration = Duration::from_secs(3);

/// Clients of one API server.
pub(crate) struct Clients {
    /// For watches and the lease, which must never wait behind a burst of writes: HTTP/1.1, with a
    /// connection for each pending call.
    pub(crate) steady: Client,
    /// For writes, of which there are thousands: HTTP/2 where the API server supports it, all on one
    /// connection. Measured against HTTP/1.1 in docs/performance.md. Nothing is sent unless this replica
    /// leads, see [`Fenced`], except through a proxy: there only each call is checked, before it is made.
    pub(crate) writes: Client,
    /// What the answers to both say about the credentials; nothing through a proxy.
    pub(crate) credentials: Credentials,
}

impl Clients {
    /// Clients of the API server that the flags name; it need not be reachable yet. `terms` says when
    /// this replica leads.
    ///
    /// # Errors
    ///
    /// If the flags name no API server or the kubeconfig cannot be used, with what to do about it.
    pub(crate) async fn new(args: &RunArgs, terms: &Terms) -> anyhow::Result<Self> {
        let config = config(args).await?;
        info!(
            api_server = %config.cluster_url,
            version = env!("CARGO_PKG_VERSION"),
            scheduler_names = %scheduler_names(&args.scheduler_names),
            "starting kube-batch"
        );
        let credentials = Credentials::default();
        let clients = match &config.proxy_url {
            // Only kube's own client supports a proxy.
            Some(_) => Client::try_from(config).map(|client| (client.clone(), client))?,
            None => (
                client(&config, Protocol::Http1, &credentials, None)?,
                client(&config, Protocol::Http2, &credentials, Some(terms.clone()))?,
            ),
        };
        let (steady, writes) = clients;
        Ok(Self { steady, writes, credentials })
    }
}

/// Which version of HTTP a client uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2 if the API server supports it, and HTTP/1.1 if not.
    Http2,
}

/// A client; with `terms`, one that sends nothing unless this replica leads.
fn client(
    config: &Config,
    protocol: Protocol,
    credentials: &Credentials,
    terms: Option<Terms>,
) -> anyhow::Result<Client> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(config.connect_timeout);
    tcp.set_keepalive(Some(KEEP_ALIVE_INTERVAL));
    tcp.set_keepalive_interval(Some(KEEP_ALIVE_INTERVAL));
    tcp.set_keepalive_retries(Some(KEEP_ALIVE_RETRIES));
    #[cfg(target_os = "linux")]
    tcp.set_tcp_user_timeout(Some(UNACKNOWLEDGED_TIMEOUT));
    let tcp = tcp.map_response(move |connection| Fenced::new(connection, terms.clone()));
    let mut tls = HttpsConnectorBuilder::new()
        .with_tls_config(config.rustls_client_config().context("cannot make a client")?)
        .https_or_http();
    if let Some(name) = &config.tls_server_name {
        let name = name.clone().try_into().context("tls-server-name")?;
        tls = tls.with_server_name_resolver(FixedServerNameResolver::new(name));
    }
    let connector = match protocol {
        Protocol::Http1 => tls.enable_http1().wrap_connector(tcp),
        Protocol::Http2 => tls.enable_all_versions().wrap_connector(tcp),
    };
    let http: legacy::Client<_, Body> = legacy::Client::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE_TIMEOUT)
        .http2_keep_alive_interval(PING_INTERVAL)
        .http2_keep_alive_timeout(PING_TIMEOUT)
        .build(connector);
    let credentials = credentials.clone();
    let service = ServiceBuilder::new()
        .map_response(move |response: Response<_>| {
            credentials.answered(response.status());
            response
        })
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .and_then(with_retry_after)
        .map_err(BoxError::from)
        .service(http);
    Ok(ClientBuilder::new(service, &*config.default_namespace).build())
}

/// The client configuration from the flags: the kubeconfig, else the service account of this pod.
/// `--master` overrides the address, and suffices for an API server without authentication.
async fn config(args: &RunArgs) -> anyhow::Result<Config> {
    let master = args.master.as_deref().map(address).transpose()?;
    let mut config = match (&args.kubeconfig, &master) {
        (Some(path), _) => from_file(path).await?,
        (None, Some(master)) => Config::incluster().unwrap_or_else(|_| Config::new(master.clone())),
        (None, None) => Config::incluster().map_err(|error| {
            anyhow!(
                "no --kubeconfig is given and this is not a pod with a service account ({}): \
                 name a kubeconfig with --kubeconfig or KUBECONFIG",
                error::chain(&error)
            )
        })?,
    };
    if let Some(master) = master {
        config.cluster_url = master;
    }
    // Each call has retries of its own.
    config.default_retry = false;
    Ok(config)
}

/// The address that `--master` names.
fn address(master: &str) -> anyhow::Result<Uri> {
    // A bare host and port means no TLS, as in client-go.
    let url = if master.contains("://") { master.to_owned() } else { format!("http://{master}") };
    url.parse().with_context(|| format!("--master \"{master}\" is not an address"))
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
