//! A proxy between a scheduler and the API server that injects failures of networks and servers.

use std::{
    convert::Infallible,
    io,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
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

/// How the proxy handles a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Handling {
    /// Forwards it and returns the response of the API server.
    Forward,
    /// Responds with this status, without forwarding it.
    Respond(u16),
    /// Closes the connection, with all requests in flight on it, without forwarding it.
    Disconnect,
    /// Forwards it, and then closes the connection instead of returning the response.
    LoseResponse,
}

/// The part of a request that a rule sees.
pub(crate) struct RequestHead<'r> {
    pub(crate) method: &'r Method,
    pub(crate) uri: &'r Uri,
    pub(crate) version: Version,
}

impl RequestHead<'_> {
    /// Whether it is anything but a GET.
    pub(crate) fn is_write(&self) -> bool {
        self.method != Method::GET
    }

    /// Whether it is a watch.
    pub(crate) fn is_watch(&self) -> bool {
        self.uri.query().is_some_and(|query| query.contains("watch=true"))
    }
}

/// The body of a response; streamed, because watches do not end.
type ResponseBody = UnsyncBoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>;
type Rule = Box<dyn FnMut(RequestHead<'_>) -> Handling + Send>;

/// A running proxy; it ends when this is dropped.
pub(crate) struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    _runtime: Runtime,
}

struct Shared {
    client: Client,
    rule: Mutex<Rule>,
    /// For new connections.
    acceptor: Mutex<TlsAcceptor>,
    /// Incremented to close all connections.
    disconnects: watch::Sender<u32>,
}

/// A thread for the tasks of a server, and a port of this machine that it listens on.
pub(crate) fn listen() -> (Runtime, TcpListener) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a thread");
    let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)));
    (runtime, listener.expect("a free port"))
}

impl Proxy {
    /// Starts a proxy for an API server. It serves HTTP/1.1 and HTTP/2 with the certificate of the
    /// API server, and forwards the credentials in each request.
    pub(crate) fn start(plane: &ControlPlane) -> Self {
        let (runtime, listener) = listen();
        let kubeconfig = Kubeconfig::read_from(plane.kubeconfig()).expect("a kubeconfig");
        let client = runtime.block_on(async {
            let options = KubeConfigOptions::default();
            let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
            let mut config = config.expect("a configuration");
            config.auth_info = AuthInfo::default();
            config.default_retry = false;
            config.read_timeout = None;
            Client::try_from(config).expect("a client")
        });
        let address = listener.local_addr().expect("a listener has an address");
        let shared = Arc::new(Shared {
            client,
            rule: Mutex::new(Box::new(|_| Handling::Forward)),
            acceptor: Mutex::new(acceptor(plane.serving_certificate())),
            disconnects: watch::Sender::new(0),
        });
        runtime.spawn(Arc::clone(&shared).listen(listener));
        Self { address, shared, _runtime: runtime }
    }

    /// The flag that makes a scheduler use the proxy.
    pub(crate) fn flag(&self) -> String {
        format!("--master=https://{}", self.address)
    }

    /// Handles requests by this rule from now on.
    pub(crate) fn rule(&self, rule: impl FnMut(RequestHead<'_>) -> Handling + Send + 'static) {
        *self.shared.rule.lock().expect("no rule panics") = Box::new(rule);
    }

    /// Presents this certificate to new connections; its key comes second.
    pub(crate) fn present(&self, identity: (&Path, &Path)) {
        *self.shared.acceptor.lock().expect("no thread panics") = acceptor(identity);
    }

    /// Closes all connections.
    pub(crate) fn disconnect_all(&self) {
        self.shared.disconnects.send_modify(|n| *n += 1);
    }
}

impl Shared {
    async fn listen(self: Arc<Self>, listener: TcpListener) {
        loop {
            let Ok((stream, _)) = listener.accept().await else { continue };
            let shared = Arc::clone(&self);
            let acceptor = self.acceptor.lock().expect("no thread panics").clone();
            let mut disconnects = self.disconnects.subscribe();
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let disconnect = Arc::new(Notify::new());
                let service = service_fn(|request| {
                    let (shared, disconnect) = (Arc::clone(&shared), Arc::clone(&disconnect));
                    async move {
                        let response = shared.respond(request).await;
                        if response.is_err() {
                            disconnect.notify_one();
                        }
                        response
                    }
                });
                let connection = auto::Builder::new(TokioExecutor::new());
                tokio::select! {
                    _ = connection.serve_connection(TokioIo::new(stream), service) => {}
                    _ = disconnects.changed() => {}
                    () = disconnect.notified() => {}
                }
            });
        }
    }

    /// Responds to a request; an error closes the connection.
    async fn respond(&self, request: Request<Incoming>) -> io::Result<Response<ResponseBody>> {
        let head = RequestHead {
            method: request.method(),
            uri: request.uri(),
            version: request.version(),
        };
        let handling = (self.rule.lock().expect("no rule panics"))(head);
        let disconnect = || io::Error::from(io::ErrorKind::ConnectionAborted);
        match handling {
            Handling::Disconnect => return Err(disconnect()),
            Handling::Respond(code) => return Ok(error_response(code)),
            Handling::Forward | Handling::LoseResponse => {}
        }
        let (mut head, body) = request.into_parts();
        // Requests that arrive over HTTP/2 are forwarded over HTTP/1.1.
        head.version = Version::default();
        let body = body.collect().await.map_err(|_| disconnect())?.to_bytes();
        let request = Request::from_parts(head, Body::from(body));
        let response = self.client.send(request).await.map_err(|_| disconnect())?;
        if handling == Handling::LoseResponse {
            return Err(disconnect());
        }
        Ok(response.map(|body| body.map_err(Into::into).boxed_unsync()))
    }
}

fn acceptor((certificate, key): (&Path, &Path)) -> TlsAcceptor {
    let certificate = CertificateDer::from_pem_file(certificate).expect("a certificate");
    let key = PrivateKeyDer::from_pem_file(key).expect("a key");
    let config = ServerConfig::builder().with_no_client_auth();
    let mut config = config
        .with_single_cert(vec![certificate], key)
        .expect("the key belongs to the certificate");
    config.alpn_protocols = vec!["h2".into(), "http/1.1".into()];
    TlsAcceptor::from(Arc::new(config))
}

fn error_response(code: u16) -> Response<ResponseBody> {
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
        "message": "injected by the proxy",
        "code": code,
    });
    let body = Full::from(status.to_string()).map_err(|never: Infallible| match never {});
    let response = Response::builder().status(code).header(CONTENT_TYPE, "application/json");
    response.body(body.boxed_unsync()).expect("the response is valid")
}
