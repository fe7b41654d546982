//! The HTTP server: metrics, health, and the scheduler cache as a file.
//!
//! Anything in the cluster may connect to it, so it has a thread of its own and limits: connections in
//! all and from each address, the time and the size of the headers, and the time of a connection. Bodies
//! of requests are not read.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::Duration,
};

use anyhow::Context;
use axum::{
    Router,
    extract::State,
    http::{HeaderMap, StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::get,
};
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use jiff::Timestamp;
use kube_batch_manifest::dump;
use tokio::{net::TcpListener, sync::oneshot};

use super::{
    exposition::Format, health::Health, metrics::Metrics, scheduler_cache::SchedulerCache,
};

/// Connections at most.
const MAX_CONNECTIONS: usize = 200;
/// Connections from one address at most: the kubelet and Prometheus need one or two each.
const MAX_CONNECTIONS_OF_EACH: usize = 10;
/// How long the headers of a request may take, and how long a connection may be idle.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);
/// Size of the headers of a request at most; the smallest that the library permits.
const MAX_HEADER_BYTES: usize = 8192;
/// How long a connection may last. A client that needs it for longer connects again.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(300);
/// The pause after a connection could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What the handlers read.
#[derive(Clone)]
pub(crate) struct Answers {
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) cache: Arc<SchedulerCache>,
    pub(crate) health: Arc<Health>,
    /// Whether `/debug/snapshot` is served.
    pub(crate) debug: bool,
}

/// Opens the port.
///
/// # Errors
///
/// If the address is not available, with what to do about it.
pub(crate) async fn listen(address: &str) -> anyhow::Result<TcpListener> {
    // Go's notation for all addresses.
    let all = address.strip_prefix(':').map(|port| format!("[::]:{port}"));
    let first = all.as_deref().unwrap_or(address);
    let listener = match TcpListener::bind(first).await {
        // Without IPv6 support.
        Err(_) if all.is_some() => TcpListener::bind(format!("0.0.0.0{address}")).await,
        bound => bound,
    };
    listener.with_context(|| {
        format!("cannot listen on {address}: choose another --listen-address, or \"\" for none")
    })
}

/// Serves on a thread of its own, so that nothing that connects to it takes time from the scheduler.
/// Returns when that thread ends.
///
/// # Panics
///
/// If there is no thread, or the thread panics.
pub(crate) async fn serve(listener: TcpListener, answers: Answers) {
    let (ended, end) = oneshot::channel::<()>();
    let serve = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let listener = listener.into_std().and_then(|listener| Ok((listener, runtime?)));
        match listener {
            Ok((listener, runtime)) => {
                runtime.block_on(async {
                    match TcpListener::from_std(listener) {
                        Ok(listener) => accept(listener, answers).await,
                        Err(error) => tracing::error!(%error, "the HTTP server failed"),
                    }
                });
            }
            Err(error) => tracing::error!(%error, "the HTTP server failed"),
        }
        drop(ended);
    };
    thread::Builder::new().name("http".to_owned()).spawn(serve).expect("a thread");
    let _ = end.await;
}

/// Accepts connections, and serves each while there are not too many.
async fn accept(listener: TcpListener, answers: Answers) {
    if let Ok(address) = listener.local_addr() {
        tracing::info!(%address, "serving HTTP");
    }
    let mut router = Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz));
    if answers.debug {
        router = router.route("/debug/snapshot", get(snapshot));
    }
    let router = router.with_state(answers);
    let peers = Peers::default();
    loop {
        let Ok((stream, peer)) = listener.accept().await else {
            // No file descriptor is left, for instance.
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let Some(connected) = peers.connect(peer.ip()) else { continue };
        let service = TowerToHyperService::new(router.clone());
        tokio::spawn(async move {
            let _connected = connected;
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADER_TIMEOUT)
                .max_buf_size(MAX_HEADER_BYTES)
                .serve_connection(TokioIo::new(stream), service);
            // Slow readers are not waited for.
            let _ = tokio::time::timeout(CONNECTION_TIMEOUT, connection).await;
        });
    }
}

/// How many connections there are, in all and from each address.
#[derive(Clone, Debug, Default)]
struct Peers(Arc<Mutex<HashMap<IpAddr, usize>>>);

impl Peers {
    /// Counts a connection until the guard is dropped; `None` if there are too many.
    fn connect(&self, address: IpAddr) -> Option<Connected> {
        let mut peers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let n_all: usize = peers.values().sum();
        let n_own = peers.get(&address).copied().unwrap_or(0);
        if n_all >= MAX_CONNECTIONS || n_own >= MAX_CONNECTIONS_OF_EACH {
            return None;
        }
        peers.insert(address, n_own + 1);
        Some(Connected { peers: self.clone(), address })
    }
}

/// A connection that counts.
struct Connected {
    peers: Peers,
    address: IpAddr,
}

impl Drop for Connected {
    fn drop(&mut self) {
        let mut peers = self.peers.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(n_own) = peers.get_mut(&self.address) {
            *n_own -= 1;
            if *n_own == 0 {
                peers.remove(&self.address);
            }
        }
    }
}

async fn metrics(State(answers): State<Answers>, headers: HeaderMap) -> Response {
    let format = Format::preferred(&headers);
    let text = format.write(answers.metrics.text());
    ([(CONTENT_TYPE, format.media_type())], text).into_response()
}

/// How long a cycle may take before the process counts as stuck. Guessed: the longest cycle measured
/// takes half a second.
const STUCK: Duration = Duration::from_secs(120);

async fn healthz(State(answers): State<Answers>) -> Response {
    match answers.health.cycle_runs_for() {
        Some(duration) if duration > STUCK => {
            let text = format!("a cycle has been running for {} s\n", duration.as_secs());
            (StatusCode::INTERNAL_SERVER_ERROR, text).into_response()
        }
        Some(_) | None => "ok\n".into_response(),
    }
}

async fn readyz(State(answers): State<Answers>) -> Response {
    let (unsynced, stale) = (answers.cache.unsynced(), answers.cache.stale());
    if unsynced.is_empty() && stale.is_empty() {
        return "ok\n".into_response();
    }
    let lines = unsynced.into_iter().map(|(kind, why)| match why {
        Some(why) => format!("no complete list of {kind}: {why}\n"),
        None => format!("no complete list of {kind} yet\n"),
    });
    let silent = stale
        .into_iter()
        .map(|(kind, silent)| format!("no news of {kind} for {} s\n", silent.as_secs()));
    let text: String = lines.chain(silent).collect();
    (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
}

/// The scheduler cache as `kube-batch simulate -f` reads it. It holds no secrets, but names and
/// messages of every namespace.
async fn snapshot(State(answers): State<Answers>) -> Response {
    let written = tokio::task::spawn_blocking(move || {
        let mut bytes = Vec::new();
        let (mirror, ()) = answers.cache.mirror(|_| ());
        dump::write(&mirror.store, &mirror.assumed, Timestamp::now(), &mut bytes).map(|()| bytes)
    });
    match written.await {
        Ok(Ok(bytes)) => ([(CONTENT_TYPE, "application/jsonl")], bytes).into_response(),
        Ok(Err(_)) | Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use axum::http::{HeaderValue, header::ACCEPT};
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpStream,
    };

    use super::*;

    fn answers() -> Answers {
        let metrics = Arc::new(Metrics::new());
        let cache = SchedulerCache::new(Default::default(), &[], Arc::clone(&metrics));
        Answers { cache: Arc::new(cache), metrics, health: Arc::default(), debug: false }
    }

    /// What the server answers to this text, until it closes the connection; and how long that took.
    async fn exchange(address: std::net::SocketAddr, text: &str) -> (String, Duration) {
        let started = Instant::now();
        let mut stream = TcpStream::connect(address).await.expect("a connection");
        stream.write_all(text.as_bytes()).await.expect("sent");
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer).await;
        (answer, started.elapsed())
    }

    #[tokio::test(flavor = "local")]
    async fn slow_and_many_connections_of_one_client_do_not_stop_others() {
        let listener = listen("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        tokio::task::spawn_local(serve(listener, answers()));
        let get = "GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        // As many as one address may have, which never send a whole header.
        let mut slow = Vec::new();
        for _ in 0..MAX_CONNECTIONS_OF_EACH {
            let text = "GET /healthz HTTP/1.1\r\nHost";
            slow.push(tokio::task::spawn_local(exchange(address, text)));
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
        let (answer, took) = exchange(address, get).await;
        assert_eq!(answer, "", "one more is closed at once");
        assert!(took < HEADER_TIMEOUT / 2, "{took:?}");
        for task in slow {
            let (_, took) = task.await.expect("no panic");
            assert!(took < HEADER_TIMEOUT + Duration::from_secs(5), "{took:?}");
        }
        let (answer, _) = exchange(address, get).await;
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
        let long = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(20_000));
        let (answer, _) = exchange(address, &long).await;
        assert!(!answer.contains("200 OK"), "{answer}");
    }

    #[test]
    fn connections_are_counted_in_all_and_for_each_address() {
        let peers = Peers::default();
        let address = |n: usize| IpAddr::from([10, 0, 0, u8::try_from(n).expect("a byte")]);
        let mut connected = Vec::new();
        for n in 0..MAX_CONNECTIONS / MAX_CONNECTIONS_OF_EACH {
            let own =
                (0..MAX_CONNECTIONS_OF_EACH).map(|_| peers.connect(address(n)).expect("room"));
            connected.extend(own);
            assert!(peers.connect(address(n)).is_none());
        }
        assert!(peers.connect(address(200)).is_none(), "there are too many in all");
        connected.pop();
        assert!(peers.connect(address(200)).is_some());
        connected.clear();
        assert!(peers.0.lock().expect("no panic").is_empty());
    }

    #[tokio::test(flavor = "local")]
    async fn metrics_are_served_in_the_format_that_a_request_prefers() {
        let answers = answers();
        for (accept, media_type, is_openmetrics) in [
            (None, "application/openmetrics-text; version=1.0.0; charset=utf-8", true),
            (Some("text/plain"), "text/plain; version=0.0.4; charset=utf-8", false),
        ] {
            let header = accept.map(|accept| (ACCEPT, HeaderValue::from_static(accept)));
            let response = metrics(State(answers.clone()), header.into_iter().collect()).await;
            assert_eq!(response.headers()[CONTENT_TYPE], media_type);
            let body =
                axum::body::to_bytes(response.into_body(), usize::MAX).await.expect("a body");
            assert_eq!(body.ends_with(b"# EOF\n"), is_openmetrics, "{accept:?}");
        }
    }
}
