//! Open watches: what they send, and when.

use std::{io, sync::Arc, time::Duration};

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout_at};

use crate::{
    outages::Effect,
    server::{Answer, Kind, Path, failure, not_found},
    shared::{Shared, USUAL_DELAY_MS, reset},
    traffic::{Overtaken, Sent, WatchFault},
    world::World,
};

/// How long changes are held back at most that are to be swapped: long enough that there are two.
const LONGEST_HOLD_MS: u64 = 1_000;

/// An open watch.
pub(crate) struct Watch {
    shared: Shared,
    process: usize,
    kind: Kind,
    /// Lines to be sent before changes.
    first: std::vec::IntoIter<Bytes>,
    /// The next change.
    position: usize,
    /// Changes at positions below may be sent: they were held back for long enough.
    released: usize,
    /// Until when the next change is held back.
    held_until: Option<Instant>,
    /// The version after which it was opened.
    from: u64,
    /// How often the kind had been served again when it was opened.
    n_times_served: u64,
    /// How often the connections of the process had been reset when it was opened.
    n_resets: u64,
    /// When the server sends a bookmark, once.
    bookmark: Option<Instant>,
    end: Instant,
}

impl Watch {
    pub(crate) fn open(shared: &Shared, world: &mut World, sent: &Sent) -> Result<Self, Answer> {
        let Some(path) = Path::parse(&sent.path) else { return Err(not_found()) };
        let kind = path.kind;
        if world.server.is_absent(kind) {
            return Err(not_found());
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
        // A list includes it, and a watch that resumes at an earlier version gets it in order.
        let is_owed = |overtaken: &Overtaken| !lists && overtaken.by == from;
        if !world.overtaken.get(&(sent.process, kind)).is_some_and(is_owed) {
            world.overtaken.remove(&(sent.process, kind));
        }
        let seconds = number("timeoutSeconds").unwrap_or(300);
        let now = Instant::now();
        Ok(Self {
            shared: shared.clone(),
            process: sent.process,
            kind,
            first: first.into_iter(),
            position,
            released: position,
            held_until: None,
            n_times_served: world.server.n_times_served(kind),
            from,
            n_resets: world.n_resets(sent.process),
            bookmark: Some(now + Duration::from_secs(seconds.saturating_sub(2))),
            end: now + Duration::from_secs(seconds),
        })
    }

    /// The next line; `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<Result<Bytes, io::Error>> {
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
                    let mut world = self.shared.lock();
                    world.step();
                    let key = (self.process, self.kind);
                    if world.overtaken.get(&key).is_some_and(|overtaken| overtaken.line == line) {
                        world.overtaken.remove(&key);
                    }
                    return Some(Ok(line));
                }
                Look::Nothing | Look::Held => {}
            }
            let until = self.bookmark.unwrap_or(self.end);
            let woken = self.held_until.map_or(until, |held| held.min(until));
            if timeout_at(woken, notified).await.is_err() && Instant::now() >= until {
                self.bookmark.take()?;
                if let Some(version) = self.version() {
                    return Some(Ok(bookmark(version, &json!({}))));
                }
            }
        }
    }

    /// What there is to send.
    fn look(&mut self) -> Look {
        let shared = self.shared.clone();
        let mut world = shared.lock();
        let faults = world.faults(self.process);
        let effect = world.outages.effect_on_watch(self.kind);
        let is_unreadable =
            matches!(effect, Some(Effect::Rejects { .. } | Effect::FailsLate { .. }));
        if is_unreadable || world.n_resets(self.process) != self.n_resets {
            return Look::Broken;
        }
        if world.server.n_times_served(self.kind) != self.n_times_served {
            return Look::Ended;
        }
        if faults.is_silent || matches!(effect, Some(Effect::Hangs | Effect::HangsLate)) {
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
        let overtaken = world.overtaken.get(&(self.process, self.kind));
        let line = match overtaken.map(|overtaken| overtaken.line.clone()) {
            Some(line) => line,
            None if world.server.change(self.kind, self.position).is_none() => {
                return Look::Nothing;
            }
            None if self.is_held(&mut world) => return Look::Held,
            None => self.next_change(&mut world),
        };
        let delay = world.rng.u64(1..=USUAL_DELAY_MS + faults.watch_delay_ms);
        Look::Line(line, Duration::from_millis(delay))
    }

    /// Whether the next change is held back, as the server shows changes late. Then all that there are are shown.
    fn is_held(&mut self, world: &mut World) -> bool {
        if self.position < self.released {
            return false;
        }
        let now = Instant::now();
        if let Some(longest) = longest_hold(world, self.kind) {
            let until = self
                .held_until
                .get_or_insert_with(|| now + Duration::from_millis(world.rng.u64(1..=longest)));
            if *until > now {
                return true;
            }
        }
        self.held_until = None;
        self.released = world.server.end_of_changes(self.kind);
        false
    }

    /// Takes the next change, or the one after it.
    fn next_change(&mut self, world: &mut World) -> Bytes {
        let change = |n: usize| world.server.change(self.kind, self.position + n);
        let (next, after) = (change(0).expect("there is one"), change(1));
        let swaps = after.is_some_and(|after| match world.watch_faults.get(&self.kind) {
            Some(WatchFault::SwapsObjects) => next.key != after.key,
            Some(WatchFault::SwapsVersions) => next.key == after.key,
            Some(WatchFault::IsStale { .. } | WatchFault::HasNoBookmarks) | None => false,
        });
        let next = next.line.clone();
        let after = after.map(|after| (after.version, after.line.clone()));
        self.position += 1;
        match after.filter(|_| swaps && world.rng.bool()) {
            Some((by, after)) => {
                self.position += 1;
                world.overtaken.insert((self.process, self.kind), Overtaken { line: next, by });
                after
            }
            None => next,
        }
    }

    /// The version of a bookmark: everything up to it has been shown. `None` if there is no bookmark.
    fn version(&self) -> Option<u64> {
        let mut world = self.shared.lock();
        match world.watch_faults.get(&self.kind).copied() {
            Some(WatchFault::HasNoBookmarks) => return None,
            Some(WatchFault::IsStale { .. }) if world.rng.bool() => {
                return Some(self.from.saturating_sub(world.rng.u64(1..10)));
            }
            Some(_) | None => {}
        }
        let next = world.server.change(self.kind, self.position);
        Some(next.map_or_else(|| world.server.version(), |change| change.version - 1))
    }
}

/// What a watch has to send.
enum Look {
    Line(Bytes, Duration),
    Nothing,
    /// There is something, but not yet.
    Held,
    Silent,
    Broken,
    Ended,
}

/// How long the server holds changes of a kind back at most, in milliseconds.
fn longest_hold(world: &World, kind: Kind) -> Option<u64> {
    if let Some(Effect::IsSlow { millis }) = world.outages.effect_on_watch(kind) {
        return Some(millis);
    }
    match world.watch_faults.get(&kind)? {
        WatchFault::IsStale { millis } => Some(*millis),
        WatchFault::SwapsObjects | WatchFault::SwapsVersions => Some(LONGEST_HOLD_MS),
        WatchFault::HasNoBookmarks => None,
    }
}

fn bookmark(version: u64, annotations: &Value) -> Bytes {
    let metadata = json!({"resourceVersion": version.to_string(), "annotations": annotations});
    let object = json!({"apiVersion": "v1", "kind": "Any", "metadata": metadata});
    Bytes::from(format!("{{\"type\":\"BOOKMARK\",\"object\":{object}}}\n"))
}
