//! Waits for a change of what was read.

use std::{pin::pin, time::Duration};

use futures::{TryStreamExt, future::select_all};
use kube::Client;
use serde_json::Value;

/// A list that was read.
#[derive(Debug)]
pub(super) struct WatchedList {
    /// Its path.
    pub(super) path: String,
    /// Its resource version.
    pub(super) version: String,
}

/// Objects often change one shortly after the other: they are read together.
const CALM: Duration = Duration::from_secs(1);

/// For how long to wait where changes cannot be watched.
const WITHOUT_WATCH: Duration = Duration::from_secs(5);

/// Waits until an object of one of the lists has changed, or may have.
pub(super) async fn wait_for_change(client: &Client, watched: &[WatchedList]) {
    if watched.is_empty() {
        return tokio::time::sleep(WITHOUT_WATCH).await;
    }
    let changes = watched.iter().map(|list| Box::pin(next_change(client, list)));
    select_all(changes).await;
    tokio::time::sleep(CALM).await;
}

/// Waits for the next event of a watch, or its end.
async fn next_change(client: &Client, list: &WatchedList) {
    let WatchedList { path, version } = list;
    let query = format!("watch=true&resourceVersion={version}&timeoutSeconds=300");
    let watched = async {
        let request = http::Request::get(format!("{path}?{query}")).body(Vec::new()).ok()?;
        let events = client.request_events::<Value>(request).await.ok()?;
        pin!(events).try_next().await.ok()
    };
    if watched.await.is_none() {
        tokio::time::sleep(WITHOUT_WATCH).await;
    }
}
