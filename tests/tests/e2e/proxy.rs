//! A proxy between a scheduler and the API server that does what networks and servers do on bad
//! days.

use std::{
    convert::Infallible,
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex},
};

use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use hyper::{
    Method, Request, Response, Uri, Version,
    body::{Bytes, Incoming},
    header::CONTENT_TYPE,
    service::service_fn,
};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use kube::{
    Client, Config,
    client::Body,
    config::{AuthInfo, KubeConfigOptions, Kubeconfig},
};
use kube_batch_testbed::cluster::ControlPlane;
use serde_json::json;
use tokio::{
    net::TcpListener,
    runtime::Runtime,
    sync::{Notify, watch},
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ServerConfig,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    },
};

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is answered as the server answers it.
    Pass,
    /// It is answered with this status; the server never sees it.
    Answer(u16),
    /// The connection is cut, with all that is under way on it; the server never sees the request.
    Cut,
    /// The server acts on it, and then the connection is cut.
    LoseAnswer,
}

/// What is known of a request when its fate is decided.
pub(crate) struct Asked<'r> {
    pub(crate) method: &'r Method,
    pub(crate) uri: &'r Uri,
    pub(crate) version: Version,
}

impl Asked<'_> {
    /// Whether it would change something.
    pub(crate) fn is_write(&self) -> bool {
        self.method != Method::GET
    }

    /// Whether it asks for a stream of changes.
    pub(crate) fn is_watch(&self) -> bool {
        self.uri.query().is_some_and(|query| query.contains("watch=true"))
    }
}

/// Streamed, as watches have no end.
type Answer = UnsyncBoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>;
type Rule = Box<dyn FnMut(Asked<'_>) -> Fate + Send>;

/// A running proxy; it ends when this is dropped.
pub(crate) struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    _runtime: Runtime,
}

struct Shared {
    client: Client,
    rule: Mutex<Rule>,
    /// Counts up when all connections are to be cut.
    cuts: watch::Sender<u32>,
}

impl Proxy {
    /// Starts a proxy for an API server. It shows the server's own certificate and speaks HTTP/1.1
    /// and HTTP/2; who asks says so in each request.
    pub(crate) fn start(plane: &ControlPlane) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a thread");
        let kubeconfig = Kubeconfig::read_from(plane.kubeconfig()).expect("a kubeconfig");
        let (listener, client) = runtime.block_on(async {
            let options = KubeConfigOptions::default();
            let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
            let mut config = config.expect("a configuration");
            config.auth_info = AuthInfo::default();
            config.default_retry = false;
            config.read_timeout = None;
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
            (listener, Client::try_from(config).expect("a client"))
        });
        let address = listener.local_addr().expect("it has an address");
        let shared = Arc::new(Shared {
            client,
            rule: Mutex::new(Box::new(|_| Fate::Pass)),
            cuts: watch::Sender::new(0),
        });
        runtime.spawn(Arc::clone(&shared).listen(listener, acceptor(plane)));
        Self { address, shared, _runtime: runtime }
    }

    /// The flag that sends a scheduler through it.
    pub(crate) fn flag(&self) -> String {
        format!("--master=https://{}", self.address)
    }

    /// Decides the fate of requests from now on.
    pub(crate) fn rule(&self, rule: impl FnMut(Asked<'_>) -> Fate + Send + 'static) {
        *self.shared.rule.lock().expect("no rule panics") = Box::new(rule);
    }

    /// Cuts all connections.
    pub(crate) fn cut(&self) {
        self.shared.cuts.send_modify(|n_cuts| *n_cuts += 1);
    }
}

impl Shared {
    async fn listen(self: Arc<Self>, listener: TcpListener, acceptor: TlsAcceptor) {
        loop {
            let Ok((stream, _)) = listener.accept().await else { continue };
            let (shared, acceptor) = (Arc::clone(&self), acceptor.clone());
            let mut cuts = self.cuts.subscribe();
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let cut = Arc::new(Notify::new());
                let answer = service_fn(|request| {
                    let (shared, cut) = (Arc::clone(&shared), Arc::clone(&cut));
                    async move {
                        let answer = shared.answer(request).await;
                        if answer.is_err() {
                            cut.notify_one();
                        }
                        answer
                    }
                });
                let connection = auto::Builder::new(TokioExecutor::new());
                tokio::select! {
                    _ = connection.serve_connection(TokioIo::new(stream), answer) => {}
                    _ = cuts.changed() => {}
                    () = cut.notified() => {}
                }
            });
        }
    }

    /// An error cuts the connection.
    async fn answer(&self, request: Request<Incoming>) -> io::Result<Response<Answer>> {
        let asked =
            Asked { method: request.method(), uri: request.uri(), version: request.version() };
        let fate = (self.rule.lock().expect("no rule panics"))(asked);
        let cut = || io::Error::from(io::ErrorKind::ConnectionAborted);
        match fate {
            Fate::Cut => return Err(cut()),
            Fate::Answer(code) => return Ok(refusal(code)),
            Fate::Pass | Fate::LoseAnswer => {}
        }
        let (mut head, body) = request.into_parts();
        // Requests that arrive over HTTP/2 are forwarded over HTTP/1.1.
        head.version = Version::default();
        let body = body.collect().await.map_err(|_| cut())?.to_bytes();
        let request = Request::from_parts(head, Body::from(body));
        let answered = self.client.send(request).await.map_err(|_| cut())?;
        if fate == Fate::LoseAnswer {
            return Err(cut());
        }
        Ok(answered.map(|body| body.map_err(Into::into).boxed_unsync()))
    }
}

fn acceptor(plane: &ControlPlane) -> TlsAcceptor {
    let (certificate, key) = plane.serving_certificate();
    let certificate = CertificateDer::from_pem_file(certificate).expect("a certificate");
    let key = PrivateKeyDer::from_pem_file(key).expect("a key");
    let config = ServerConfig::builder().with_no_client_auth();
    let mut config = config.with_single_cert(vec![certificate], key).expect("they belong together");
    config.alpn_protocols = vec!["h2".into(), "http/1.1".into()];
    TlsAcceptor::from(Arc::new(config))
}

fn refusal(code: u16) -> Response<Answer> {
    let reason = match code {
        410 => "Expired",
        429 => "TooManyRequests",
        _ => "InternalError",
    };
    let status = json!({
        "apiVersion": "v1",
        "kind": "Status",
        "status": "Failure",
        "reason": reason,
        "message": "a bad day",
        "code": code,
    });
    let body = Full::from(status.to_string()).map_err(|never: Infallible| match never {});
    let answer = Response::builder().status(code).header(CONTENT_TYPE, "application/json");
    answer.body(body.boxed_unsync()).expect("a plain answer")
}
