//! The HTTP server: metrics, health, and the scheduler cache as a file.
//!
//! Anything in the cluster may connect to it, so it has a thread of its own and limits: connections, the
//! time and the size of the headers, and the time of a connection. Bodies of requests are not read.

use std::{
    collections::HashMap,
    io::{BufWriter, Write},
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::Duration,
};

use anyhow::Context;
use axum::{
    Router,
    body::{Body, Bytes},
    extract::State,
    http::{
        HeaderMap, StatusCode,
        header::{CONTENT_TYPE, RETRY_AFTER},
    },
    response::{IntoResponse, Response},
    routing::get,
};
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use jiff::Timestamp;
use kube_batch_cache::dump;
use tokio::{
    net::TcpListener,
    sync::{OwnedSemaphorePermit, Semaphore, oneshot},
    task::AbortHandle,
    time::Instant,
};
use tokio_util::io::{ReaderStream, SyncIoBridge};

use super::{
    exposition::Format, health::Health, metrics::Metrics, scheduler_cache::SchedulerCache,
};

/// Connections at most. Guessed: the kubelet and Prometheus need one or two each.
const MAX_CONNECTIONS: usize = 200;
/// How long the headers of a request may take, and how long a connection may be idle.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);
/// Size of the headers of a request at most; the smallest that the library permits.
const MAX_HEADER_BYTES: usize = 8192;
/// How long a connection may last. A client that needs it for longer connects again.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(300);
/// How long a text of the metrics is served before they are rendered again.
const METRICS_AGE: Duration = Duration::from_secs(1);
/// How much of a snapshot is written before it is read.
const SNAPSHOT_BUFFER: usize = 64 * 1024;
/// When to ask again for a snapshot, in seconds, while another is served.
const SNAPSHOT_RETRY: &str = "10";
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
    pub(crate) rendered: RenderedMetrics,
    pub(crate) snapshots: Snapshots,
}

/// The last text of the metrics in each format, and when it was rendered.
#[derive(Clone, Default)]
pub(crate) struct RenderedMetrics(Arc<Mutex<HashMap<Format, (Instant, Bytes)>>>);

impl RenderedMetrics {
    /// The metrics in this format. However many clients ask, they are rendered once a second, and slow
    /// readers share one text.
    fn text(&self, format: Format, metrics: &Metrics) -> Bytes {
        let mut texts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((rendered, text)) = texts.get(&format)
            && rendered.elapsed() < METRICS_AGE
        {
            return text.clone();
        }
        let text = Bytes::from(format.write(metrics.text()));
        texts.insert(format, (Instant::now(), text.clone()));
        text
    }
}

/// Lets one snapshot be served at a time.
#[derive(Clone)]
pub(crate) struct Snapshots(Arc<Semaphore>);

impl Default for Snapshots {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(1)))
    }
}

impl Snapshots {
    /// The right to serve one; `None` if another is being served.
    fn begin(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.0).try_acquire_owned().ok()
    }
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

/// Accepts connections, and serves each.
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
    let mut connections = Connections::default();
    loop {
        let Ok((stream, peer)) = listener.accept().await else {
            // No file descriptor is left, for instance.
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let service = TowerToHyperService::new(router.clone());
        let serving = tokio::spawn(async move {
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADER_TIMEOUT)
                .max_buf_size(MAX_HEADER_BYTES)
                .serve_connection(TokioIo::new(stream), service);
            // Slow readers are not waited for.
            let _ = tokio::time::timeout(CONNECTION_TIMEOUT, connection).await;
        });
        connections.add(peer.ip(), serving.abort_handle());
    }
}

/// The open connections, oldest first.
///
/// A new one is always accepted: one that is rejected could be a probe of the kubelet, which then restarts
/// the process.
#[derive(Default)]
struct Connections(Vec<(IpAddr, AbortHandle)>);

impl Connections {
    /// Adds a connection. If there are too many, closes the oldest of the address that has most: so a
    /// client that has few keeps them, and a probe is answered before as many others come after it.
    fn add(&mut self, address: IpAddr, connection: AbortHandle) {
        self.0.retain(|(_, connection)| !connection.is_finished());
        if self.0.len() >= MAX_CONNECTIONS {
            let (_, oldest) = self.0.remove(self.first_to_close());
            oldest.abort();
        }
        self.0.push((address, connection));
    }

    /// The position of the oldest connection of the address that has most; of several such, the oldest.
    fn first_to_close(&self) -> usize {
        let mut n_of: HashMap<IpAddr, usize> = HashMap::new();
        for (address, _) in &self.0 {
            *n_of.entry(*address).or_default() += 1;
        }
        let most = n_of.values().max().copied();
        self.0.iter().position(|(address, _)| n_of.get(address).copied() == most).unwrap_or(0)
    }
}

async fn metrics(State(answers): State<Answers>, headers: HeaderMap) -> Response {
    let format = Format::preferred(&headers);
    let text = answers.rendered.text(format, &answers.metrics);
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
    let Some(permit) = answers.snapshots.begin() else {
        let text = "another snapshot is being served\n";
        return (StatusCode::SERVICE_UNAVAILABLE, [(RETRY_AFTER, SNAPSHOT_RETRY)], text)
            .into_response();
    };
    let (reader, writer) = tokio::io::duplex(SNAPSHOT_BUFFER);
    let mut writer = BufWriter::new(SyncIoBridge::new(writer));
    tokio::task::spawn_blocking(move || {
        let _permit = permit;
        // A cycle waits for the lock: it is not held while text is written.
        let (store, assumed) = {
            let (mirror, ()) = answers.cache.mirror(|_| ());
            (mirror.store.share(), mirror.assumed.clone())
        };
        // The only error is that nobody reads it any more.
        let _ = dump::write(&store, &assumed, Timestamp::now(), &mut writer);
        let _ = writer.flush();
    });
    let body = Body::from_stream(ReaderStream::new(reader));
    ([(CONTENT_TYPE, "application/jsonl")], body).into_response()
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderValue, header::ACCEPT};
    use futures::StreamExt;
    use kube_batch_model::{facts::node::NodeFacts, name::Name};
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpStream,
    };

    use super::*;

    fn answers() -> Answers {
        let metrics = Arc::new(Metrics::new());
        let cache = SchedulerCache::new(Default::default(), &[], Arc::clone(&metrics));
        let (cache, health, debug) = (Arc::new(cache), Arc::default(), false);
        let (rendered, snapshots) = (RenderedMetrics::default(), Snapshots::default());
        Answers { metrics, cache, health, debug, rendered, snapshots }
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
    async fn slow_large_and_many_connections_keep_no_other_out() {
        let listener = listen("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        tokio::task::spawn_local(serve(listener, answers()));
        let get = "GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        let long = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(20_000));
        let (answer, _) = exchange(address, &long).await;
        assert!(!answer.contains("200 OK"), "{answer}");
        // As many as there may be, from the address of the next one, which never send a whole header.
        let mut slow = Vec::new();
        for _ in 0..MAX_CONNECTIONS {
            let mut stream = TcpStream::connect(address).await.expect("a connection");
            stream.write_all(b"GET /healthz HTTP/1.1\r\nHost").await.expect("sent");
            slow.push(stream);
        }
        let (answer, took) = exchange(address, get).await;
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
        assert!(took < HEADER_TIMEOUT / 2, "{took:?}");
        let started = Instant::now();
        for mut stream in slow {
            let _ = stream.read_to_string(&mut String::new()).await;
        }
        let took = started.elapsed();
        assert!(took < HEADER_TIMEOUT + Duration::from_secs(5), "the others are closed: {took:?}");
    }

    #[tokio::test(flavor = "local")]
    async fn a_new_connection_replaces_the_oldest_of_the_address_that_has_most() {
        let address = |n: usize| IpAddr::from([10, 0, 0, u8::try_from(n).expect("a byte")]);
        let mut connections = Connections::default();
        let connect = |connections: &mut Connections, n: usize| {
            let task = tokio::task::spawn_local(std::future::pending::<()>());
            connections.add(address(n), task.abort_handle());
            task
        };
        let kubelet = connect(&mut connections, 0);
        let first = connect(&mut connections, 1);
        for n in 1..MAX_CONNECTIONS - 1 {
            connect(&mut connections, 1 + n % 2);
        }
        connect(&mut connections, 0);
        assert!(first.await.expect_err("it is closed").is_cancelled());
        for n in 0..3 * MAX_CONNECTIONS {
            connect(&mut connections, 1 + n % 20);
            assert_eq!(connections.0.len(), MAX_CONNECTIONS);
        }
        let n_own = connections.0.iter().filter(|(other, _)| *other == address(0)).count();
        assert!(n_own == 2 && !kubelet.is_finished());
        kubelet.abort();
        assert!(kubelet.await.is_err());
        let oldest = connections.0[1].1.clone();
        connect(&mut connections, 0);
        tokio::task::yield_now().await;
        assert!(!oldest.is_finished(), "one that has ended makes room");
    }

    #[tokio::test]
    async fn one_snapshot_is_served_at_a_time_and_a_slow_reader_does_not_stop_cycles() {
        let answers = answers();
        for n in 0..2_000 {
            let name = Name::from(format!("node-{n}"));
            let facts = NodeFacts { name: name.clone(), ..NodeFacts::default() };
            answers.cache.lock().store.nodes.apply(name, facts);
        }
        let slow = snapshot(State(answers.clone())).await;
        let mut slow = slow.into_body().into_data_stream();
        let mut bytes = slow.next().await.expect("a part").expect("no error").to_vec();
        let cache = Arc::clone(&answers.cache);
        let cycle = tokio::task::spawn_blocking(move || drop(cache.mirror(|_| ())));
        let waited = tokio::time::timeout(Duration::from_secs(60), cycle).await;
        waited.expect("nothing holds the lock").expect("no panic");
        let second = snapshot(State(answers.clone())).await;
        assert_eq!(second.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(second.headers()[RETRY_AFTER], SNAPSHOT_RETRY);
        while let Some(part) = slow.next().await {
            bytes.extend(part.expect("no error"));
        }
        let text = String::from_utf8(bytes).expect("text");
        assert_eq!(text.lines().count(), 2_001, "a header and the nodes");
        drop(slow);
        // One that is not read at all makes room when it is dropped.
        let abandoned = || async { snapshot(State(answers.clone())).await.status() };
        while abandoned().await != StatusCode::OK {
            tokio::task::yield_now().await;
        }
        while abandoned().await != StatusCode::OK {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn metrics_are_rendered_once_a_second_for_all_who_ask() {
        let (rendered, metrics) = (RenderedMetrics::default(), Metrics::new());
        let text = |format| rendered.text(format, &metrics);
        let (first, other) = (text(Format::OpenMetrics), text(Format::Text));
        assert_ne!(first, other);
        metrics.leader.set(1);
        let again = text(Format::OpenMetrics);
        assert_eq!(again.as_ptr(), first.as_ptr(), "they share it");
        tokio::time::advance(METRICS_AGE).await;
        assert_ne!(text(Format::OpenMetrics), first);
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
