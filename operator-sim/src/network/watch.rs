//! Open watches: what they send, and when.

use std::{io, sync::Arc, time::Duration};

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout_at};

use super::{Shared, USUAL_DELAY_MS, reset};
use crate::{
    server::{Answer, Kind, Path, failure, not_found},
    traffic::Sent,
    world::World,
};

/// An open watch.
pub(super) struct Watch {
    shared: Shared,
    process: usize,
    kind: Kind,
    /// Lines to be sent before changes.
    first: std::vec::IntoIter<Bytes>,
    /// The next change.
    position: usize,
    /// How often the connections of the process had been reset when it was opened.
    n_resets: u64,
    /// When the server sends a bookmark, once.
    bookmark: Option<Instant>,
    end: Instant,
}

impl Watch {
    pub(super) fn open(shared: &Shared, world: &World, sent: &Sent) -> Result<Self, Answer> {
        let Some(path) = Path::parse(&sent.path) else { return Err(not_found()) };
        let kind = path.kind;
        if world.server.absent.contains(&kind) {
            return Err(not_found());
        }
        if let Some(code) = world.server.unreadable.get(&kind) {
            return Err(failure(*code, "injected"));
        }
        let number = |name: &str| -> Option<u64> {
            let mut pairs = sent.query.split('&');
            pairs.find_map(|pair| pair.strip_prefix(name)?.strip_prefix('=')?.parse().ok())
        };
        let lists = sent.query.contains("sendInitialEvents=true");
        let version = world.server.version();
        let from = if lists { version } else { number("resourceVersion").unwrap_or(0) };
        let Some(position) = world.server.changes(kind, from) else {
            return Err(failure(410, "too old resource version"));
        };
        let mut first = if lists { world.server.listed(kind) } else { Vec::new() };
        if lists {
            first.push(bookmark(version, &json!({"k8s.io/initial-events-end": "true"})));
        }
        let seconds = number("timeoutSeconds").unwrap_or(300);
        let now = Instant::now();
        Ok(Self {
            shared: shared.clone(),
            process: sent.process,
            kind,
            first: first.into_iter(),
            position,
            n_resets: world.n_resets(sent.process),
            bookmark: Some(now + Duration::from_secs(seconds.saturating_sub(2))),
            end: now + Duration::from_secs(seconds),
        })
    }

    /// The next line; `None` at the end.
    pub(super) async fn next(&mut self) -> Option<Result<Bytes, io::Error>> {
        loop {
            let changed = Arc::clone(&self.shared.changed);
            let notified = changed.notified();
            match self.look() {
                Look::Broken => return Some(Err(reset())),
                Look::Ended => return None,
                // Packets are dropped: this connection never carries anything again.
                Look::Silent => std::future::pending::<()>().await,
                Look::Line(line, delay) => {
                    sleep(delay).await;
                    self.shared.lock().step();
                    return Some(Ok(line));
                }
                Look::Nothing => {}
            }
            let until = self.bookmark.unwrap_or(self.end);
            if timeout_at(until, notified).await.is_err() {
                self.bookmark.take()?;
                let version = self.shared.lock().server.version();
                return Some(Ok(bookmark(version, &json!({}))));
            }
        }
    }

    /// What there is to send.
    fn look(&mut self) -> Look {
        let mut world = self.shared.lock();
        let faults = world.faults(self.process);
        let is_unreadable = world.server.unreadable.contains_key(&self.kind);
        if is_unreadable || world.n_resets(self.process) != self.n_resets {
            return Look::Broken;
        }
        if faults.is_silent {
            return Look::Silent;
        }
        if let Some(line) = self.first.next() {
            // Lists are not slowed down by the delay of each object.
            return Look::Line(line, Duration::ZERO);
        }
        if self.position < world.server.n_forgotten(self.kind) {
            // It was too slow: the server ends it.
            return Look::Ended;
        }
        let Some(change) = world.server.change(self.kind, self.position) else {
            return Look::Nothing;
        };
        let line = change.line.clone();
        self.position += 1;
        let delay = world.rng.u64(1..=USUAL_DELAY_MS + faults.watch_delay_ms);
        Look::Line(line, Duration::from_millis(delay))
    }
}

/// What a watch has to send.
enum Look {
    Line(Bytes, Duration),
    Nothing,
    Silent,
    Broken,
    Ended,
}

fn bookmark(version: u64, annotations: &Value) -> Bytes {
    let metadata = json!({"resourceVersion": version.to_string(), "annotations": annotations});
    let object = json!({"apiVersion": "v1", "kind": "Any", "metadata": metadata});
    Bytes::from(format!("{{\"type\":\"BOOKMARK\",\"object\":{object}}}\n"))
}
