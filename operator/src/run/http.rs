//! The HTTP server: metrics, health, and the scheduler cache as a file.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use anyhow::Context;
use axum::{
    Router,
    extract::State,
    http::{HeaderMap, StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::get,
};
use jiff::Timestamp;
use kube_batch_manifest::dump;
use tokio::net::TcpListener;

use super::{
    exposition::Format, health::Health, metrics::Metrics, scheduler_cache::SchedulerCache,
};

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

/// Serves until the listener fails.
pub(crate) async fn serve(listener: TcpListener, answers: Answers) {
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
    let service = router.with_state(answers).into_make_service_with_connect_info::<SocketAddr>();
    if let Err(error) = axum::serve(listener, service).await {
        tracing::error!(%error, "the HTTP server failed");
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
    let unsynced = answers.cache.unsynced();
    if unsynced.is_empty() {
        return "ok\n".into_response();
    }
    let lines = unsynced.into_iter().map(|(kind, why)| match why {
        Some(why) => format!("no complete list of {kind}: {why}\n"),
        None => format!("no complete list of {kind} yet\n"),
    });
    (StatusCode::SERVICE_UNAVAILABLE, lines.collect::<String>()).into_response()
}

/// The scheduler cache as `kube-batch simulate -f` reads it. It holds no secrets, but names and
/// messages of every namespace.
async fn snapshot(State(answers): State<Answers>) -> Response {
    let written = tokio::task::spawn_blocking(move || {
        let mut bytes = Vec::new();
        let state = answers.cache.lock();
        dump::write(&state.store, &state.assumed, Timestamp::now(), &mut bytes).map(|()| bytes)
    });
    match written.await {
        Ok(Ok(bytes)) => ([(CONTENT_TYPE, "application/jsonl")], bytes).into_response(),
        Ok(Err(_)) | Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderValue, header::ACCEPT};

    use super::*;

    #[tokio::test(flavor = "local")]
    async fn metrics_are_served_in_the_format_that_a_request_prefers() {
        let shared = Arc::new(Metrics::new());
        let answers = Answers {
            cache: Arc::new(SchedulerCache::new(Default::default(), &[], Arc::clone(&shared))),
            metrics: shared,
            health: Arc::default(),
            debug: false,
        };
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
