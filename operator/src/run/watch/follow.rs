//! How one kind is followed: a complete list, then watches that continue where the one before ended.
//!
//! - A list is read at the most recent version. An API server that lags behind could answer from its
//!   cache with a state in which nodes are free that are not.
//! - A watch ends by itself after [`WATCH_SECONDS`] and is continued; one that is silent for longer is
//!   given up. So a dead connection is noticed within that time, whatever keeps it open.
//! - A version below one that was seen leads to a new list. A watch that carried nothing may wait for a version that
//!   the API server has lost, so the current version is asked for then.
//! - PodGroups and queues of other APIs stop no cycle: if they cannot be read, only the pods that name them wait.
//! - When this replica begins to lead, what is known may be older than what the leader before it has
//!   done. So each kind asks for the current version, and no cycle runs before all have reached it.

use std::{collections::BTreeSet, hash::Hasher, time::Duration};

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use futures::{Stream, TryStreamExt};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    Api, Client,
    api::{ListParams, WatchParams},
    core::{WatchEvent, watch::Bookmark},
};
use kube_batch_api::kind::version_of;
use kube_batch_cache::history::Version;
use tokio::time::{Instant, timeout};
use tracing::{debug, info, warn};

use super::{
    failure::{AskedFor, Failed, WatchFailure},
    handler::Handler,
    kinds::{Key, Watched, is_core, is_of_other_api, is_optional},
};
use crate::run::{
    guard::Guarded, metrics::Kind, permission::missing_rule, supervisor::Supervisor, term::Terms,
};

/// After how many seconds the API server ends a watch. New pods are bound within 45 s although all
/// connections are dead: this time, and some for a new connection, a new list and a cycle. Fifteen
/// requests in this time are no load for an API server.
const WATCH_SECONDS: u32 = 25;
/// After how many seconds the API server ends the watch of a replica that begins to lead. Two seconds before its end it
/// sends the version that the watch has reached, which it otherwise does once a minute.
const CATCH_UP_SECONDS: u32 = 4;
/// How much longer than it should last a watch may be silent.
const GRACE: Duration = Duration::from_secs(5);
/// How long the API server may take to begin an answer; doubled with each answer in a row that does not come in time.
/// Short at first, because a slow answer may be a dead connection, and a new leader decides nothing until all answers
/// have come.
const FIRST_ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest time to begin an answer, and the time to go on with a list.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// After how many seconds the API server ends a list that it streams, even if it is not complete.
const STREAM_SECONDS: u32 = 290;
/// Objects in one answer, if the API server does not stream lists. Each may be as large as the API server stores them.
const PAGE: u32 = 100;
/// How often a kind is asked for that the API server does not serve.
const ABSENT_PERIOD: Duration = Duration::from_secs(5);
/// The shortest time from one watch to the next.
const SHORTEST_WATCH: Duration = Duration::from_secs(1);
/// The shortest pause after a failure, doubled with each in a row.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// The longest pause. Fifteen watches that retry every ten seconds are no load for an API server,
/// and scheduling resumes soon after an outage; client-go waits up to thirty.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// After how many failures in a row to list the PodGroups of another API they count as unreadable.
const UNREADABLE_LISTS: u32 = 3;
/// For how long a watch of them may fail until they count as unreadable.
const UNREADABLE_WATCH: Duration = Duration::from_secs(30);
/// After how many lists in a row that are older than what was known they are believed: versions go back
/// when the API server's database is restored from a backup. With the pauses between them this takes about two minutes.
const MAX_OLD_LISTS: u32 = 10;

/// Where watches get their objects.
#[derive(Clone)]
pub(crate) struct WatchSource {
    pub(crate) client: Client,
    pub(crate) terms: Terms,
    /// For the pauses, which differ so that not all watches retry at once.
    pub(crate) seed: u64,
}

/// Follows a kind until the task is dropped.
pub(super) fn spawn<K: Watched>(source: &WatchSource, handler: &Handler, tasks: &mut Supervisor) {
    let (source, handler) = (source.clone(), handler.clone());
    // Restarted: it lists again, as after any gap, and no cycle runs until it has.
    tasks.spawn_restarted("watch", move || Follower::<K>::new(&source, handler.clone()).run());
}

struct Follower<K: Watched> {
    api: Api<Guarded<K>>,
    handler: Handler,
    terms: Terms,
    /// Whether the API server can stream a list.
    streams: bool,
    /// Whether a complete list was received, so that a watch can continue.
    is_listed: bool,
    /// The term for which the cache is known to have reached the API server's version.
    confirmed: Option<u64>,
    /// Whether the API server did not serve the kind when it was asked last.
    is_absent: bool,
    /// Whether it did not permit the watch when it was asked last.
    is_forbidden: bool,
    /// Lists in a row that were older than what was known.
    n_old_lists: u32,
    /// How many failures there were in a row, and since when.
    failing: Option<(u32, Instant)>,
    /// How many answers in a row did not come in time.
    n_unanswered: u32,
    pauses: ExponentialBuilder,
    next_pauses: ExponentialBackoff,
}

impl<K: Watched> Follower<K> {
    fn new(source: &WatchSource, handler: Handler) -> Self {
        let pauses = pauses(source.seed, K::RESOURCE);
        Self {
            api: Api::all(source.client.clone()),
            handler,
            terms: source.terms.clone(),
            streams: true,
            is_listed: false,
            confirmed: None,
            is_absent: false,
            is_forbidden: false,
            n_old_lists: 0,
            failing: None,
            n_unanswered: 0,
            pauses,
            next_pauses: pauses.build(),
        }
    }

    async fn run(mut self) {
        let _stale = StaleOnDrop { handler: self.handler.clone(), kind: K::RESOURCE };
        loop {
            let term = self.terms.number();
            match self.step(term).await {
                Ok(()) => {
                    self.next_pauses = self.pauses.build();
                    self.failing = None;
                    self.n_unanswered = 0;
                }
                Err(failed) => {
                    self.n_unanswered = match failed {
                        Failed::Silent(_) => self.n_unanswered.saturating_add(1),
                        _ => 0,
                    };
                    let (n_before, since) = self.failing.unwrap_or((0, Instant::now()));
                    self.failing = Some((n_before + 1, since));
                    let kind = Kind { kind: K::RESOURCE };
                    self.handler.metrics.watch_failures.get_or_create(&kind).inc();
                    let pause = self.react(failed, term);
                    // A new leader does not wait for what may be different by now.
                    let _ = timeout(pause, self.terms.changed_from(term)).await;
                }
            }
        }
    }

    /// How long the next answer may take to begin.
    fn answer_timeout(&self) -> Duration {
        let factor = 2_u32.saturating_pow(self.n_unanswered);
        FIRST_ANSWER_TIMEOUT.saturating_mul(factor).min(ANSWER_TIMEOUT)
    }

    /// Does what comes next: a list, or a watch until it ends or the term does.
    async fn step(&mut self, term: Option<u64>) -> Result<(), Failed> {
        if !self.is_listed {
            if self.streams {
                self.stream_list().await?;
            } else {
                self.page_list().await?;
            }
            self.confirm(term);
            return Ok(());
        }
        if term.is_some() && self.confirmed != term {
            return self.catch_up(term).await;
        }
        let terms = self.terms.clone();
        tokio::select! {
            biased;
            () = terms.changed_from(term) => Ok(()),
            ended = self.watch(WATCH_SECONDS, None) => ended,
        }
    }

    /// Receives a list as a stream of events.
    async fn stream_list(&mut self) -> Result<(), Failed> {
        let params = WatchParams { timeout: Some(STREAM_SECONDS), ..WatchParams::default() };
        let params = params.initial_events();
        let request = self.api.watch(&params, "");
        let events = within(self.answer_timeout(), AskedFor::Stream, request).await?;
        let mut events = std::pin::pin!(events);
        self.begin_list();
        let mut listed = BTreeSet::new();
        loop {
            let Some(event) = next(ANSWER_TIMEOUT, AskedFor::Stream, &mut events).await? else {
                return Err(Failed::Incomplete);
            };
            match event {
                WatchEvent::Added(object) => self.handler.listed(&object, &mut listed),
                WatchEvent::Bookmark(bookmark) if ends_list(&bookmark) => {
                    return self.end_list(&bookmark.metadata.resource_version, listed);
                }
                WatchEvent::Error(status) => return Err(Failed::Status(AskedFor::Stream, status)),
                // Not before the list is complete.
                WatchEvent::Modified(_) | WatchEvent::Deleted(_) | WatchEvent::Bookmark(_) => {}
            }
        }
    }

    /// Receives a list page by page.
    async fn page_list(&mut self) -> Result<(), Failed> {
        let mut params = ListParams::default().limit(PAGE);
        let mut listed = BTreeSet::new();
        loop {
            let page =
                within(self.answer_timeout(), AskedFor::List, self.api.list(&params)).await?;
            if params.continue_token.is_none() {
                self.begin_list();
            }
            page.items.iter().for_each(|object| self.handler.listed(object, &mut listed));
            let meta = page.metadata;
            match meta.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params.continue_token = Some(token),
                None => {
                    return self.end_list(meta.resource_version.as_deref().unwrap_or(""), listed);
                }
            }
        }
    }

    fn begin_list(&self) {
        self.handler.heard::<K>();
        self.handler.cache.set_unsynced(K::RESOURCE);
    }

    fn end_list(&mut self, version: &str, listed: BTreeSet<Key<K>>) -> Result<(), Failed> {
        let version = Version::parse(version).ok_or(Failed::NoVersion)?;
        let seen = self.handler.seen::<K>();
        if version < seen && self.n_old_lists < MAX_OLD_LISTS {
            self.n_old_lists += 1;
            return Err(Failed::Old { version, seen });
        }
        if version < seen {
            warn!(kind = K::RESOURCE, %version, %seen, "the API server's versions went back");
            self.handler.cache.lock().forget_history(K::RESOURCE);
        }
        self.n_old_lists = 0;
        self.handler.end_of_list::<K>(version, listed);
        self.handler.set_served::<K>();
        self.handler.set_readable::<K>(true);
        self.is_listed = true;
        let was_absent = std::mem::take(&mut self.is_absent);
        if std::mem::take(&mut self.is_forbidden) {
            info!(kind = K::RESOURCE, "the API server permits to watch this kind now");
        } else if was_absent {
            info!(kind = K::RESOURCE, "the API server serves this kind now");
        }
        Ok(())
    }

    /// Records that the list is complete, and was begun in this term.
    fn confirm(&mut self, term: Option<u64>) {
        self.confirmed = term;
        self.handler.cache.set_synced(K::RESOURCE, term);
    }

    /// Waits until the cache has what the API server had when this term began.
    async fn catch_up(&mut self, term: Option<u64>) -> Result<(), Failed> {
        let newest = self.newest_version().await?;
        if self.handler.seen::<K>() < newest {
            self.watch(CATCH_UP_SECONDS, Some(newest)).await?;
        }
        if self.handler.seen::<K>() >= newest {
            self.confirm(term);
        } else {
            debug!(kind = K::RESOURCE, %newest, "the watch has not reached this version, listing again");
            self.is_listed = false;
        }
        Ok(())
    }

    /// The API server's current version of the kind, which is not older than what it has shown.
    async fn newest_version(&self) -> Result<Version, Failed> {
        let one = ListParams::default().limit(1);
        let newest = within(self.answer_timeout(), AskedFor::List, self.api.list(&one)).await?;
        let newest = newest.metadata.resource_version.as_deref().and_then(Version::parse);
        let newest = newest.ok_or(Failed::NoVersion)?;
        self.not_old(newest)
    }

    fn not_old(&self, version: Version) -> Result<Version, Failed> {
        let seen = self.handler.seen::<K>();
        if version < seen { Err(Failed::Old { version, seen }) } else { Ok(version) }
    }

    /// Fails if an object that a watch shows is of an older version than was seen.
    fn not_older(&self, meta: &ObjectMeta) -> Result<(), Failed> {
        version_of(meta).version.map_or(Ok(()), |version| self.not_old(version).map(drop))
    }

    /// Handles events until the watch ends or has reached a version.
    async fn watch(&mut self, seconds: u32, until: Option<Version>) -> Result<(), Failed> {
        let started = Instant::now();
        let from = self.handler.seen::<K>().to_string();
        let params = WatchParams { timeout: Some(seconds), ..WatchParams::default() };
        let request = self.api.watch(&params, &from);
        let events = within(self.answer_timeout(), AskedFor::Watch, request).await?;
        let mut events = std::pin::pin!(events);
        let silence = Duration::from_secs(seconds.into()) + GRACE;
        self.handler.heard::<K>();
        let mut is_silent = true;
        while let Some(event) = next(silence, AskedFor::Watch, &mut events).await? {
            self.handler.heard::<K>();
            is_silent = false;
            match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    self.not_older(kube::Resource::meta(&object))?;
                    self.handler.shown(&object);
                }
                WatchEvent::Deleted(object) => {
                    self.not_older(kube::Resource::meta(&object))?;
                    self.handler.deleted::<K>(kube::Resource::meta(&object));
                }
                WatchEvent::Bookmark(bookmark) => {
                    let version = Version::parse(&bookmark.metadata.resource_version);
                    let version = self.not_old(version.ok_or(Failed::NoVersion)?)?;
                    self.handler.reached::<K>(version);
                }
                WatchEvent::Error(status) => return Err(Failed::Status(AskedFor::Watch, status)),
            }
            if until.is_some_and(|until| self.handler.seen::<K>() >= until) {
                return Ok(());
            }
        }
        if until.is_none() {
            tokio::time::sleep_until(started + SHORTEST_WATCH).await;
            if is_silent {
                self.newest_version().await?;
            }
        }
        Ok(())
    }

    /// Does what a failure calls for, and returns how long to wait before the next step.
    fn react(&mut self, failed: Failed, term: Option<u64>) -> Duration {
        let kind = K::RESOURCE;
        let cache = &self.handler.cache;
        match WatchFailure::of(failed) {
            WatchFailure::Absent if is_core::<K>() => {
                let error = "the API server does not serve this kind, which every one should";
                warn!(kind, error, "cannot watch, retrying");
                cache.set_list_error(kind, error.to_owned());
            }
            WatchFailure::Absent => {
                if !std::mem::replace(&mut self.is_absent, true) && !self.is_forbidden {
                    info!(kind, "the API server does not serve this kind yet");
                }
                return self.count_as_empty(term);
            }
            WatchFailure::CannotStream => {
                debug!(kind, "the API server does not stream lists, paging through them");
                self.streams = false;
                return Duration::ZERO;
            }
            WatchFailure::Expired => {
                debug!(kind, "the resource version of the watch is too old, listing again");
                cache.set_unsynced(kind);
                self.is_listed = false;
            }
            WatchFailure::Busy => {
                debug!(kind, "the API server is busy, retrying");
                self.give_up_if_of_other_api(term);
            }
            WatchFailure::Forbidden(reason) => {
                if !std::mem::replace(&mut self.is_forbidden, true) {
                    let rule = missing_rule(&reason);
                    warn!(
                        kind,
                        reason, rule, "missing permission; add the rule to the role kube-batch"
                    );
                }
                if is_of_other_api::<K>() {
                    self.count_as_unreadable(term);
                } else if is_optional::<K>() {
                    return self.count_as_empty(term);
                } else {
                    cache.set_list_error(kind, reason);
                }
            }
            WatchFailure::Old(error) => {
                warn!(kind, error, "listing again");
                cache.set_unsynced(kind);
                cache.set_list_error(kind, error);
                self.is_listed = false;
            }
            WatchFailure::Other(error) => {
                warn!(kind, error, "cannot watch, retrying");
                cache.set_list_error(kind, error);
                self.give_up_if_of_other_api(term);
            }
        }
        self.next_pauses.next().unwrap_or(LONGEST_PAUSE)
    }

    /// Counts a kind of another API as unreadable once its list or watch has failed for long.
    fn give_up_if_of_other_api(&mut self, term: Option<u64>) {
        let has_failed_for_long = self.failing.is_some_and(|(n_failures, since)| {
            if self.is_listed {
                since.elapsed() >= UNREADABLE_WATCH
            } else {
                n_failures >= UNREADABLE_LISTS
            }
        });
        if has_failed_for_long && is_of_other_api::<K>() {
            self.count_as_unreadable(term);
        }
    }

    /// A kind of another API that cannot be read: what is known of it stays, and the pods that name it wait.
    // Parity: see docs/parity.md#k10.
    fn count_as_unreadable(&mut self, term: Option<u64>) {
        self.is_listed = false;
        self.handler.set_served::<K>();
        if self.handler.set_readable::<K>(false) {
            warn!(kind = K::RESOURCE, "cannot read this kind; the pods of its PodGroups wait");
        }
        // Not `heard`: the metric says since when it has been silent.
        self.handler.cache.heard(K::RESOURCE);
        self.confirm(term);
    }

    /// A kind that is not served has no objects. One that was served still is, for the pods that name them: those of a
    /// gang would otherwise start one by one.
    // Parity: see docs/parity.md#k10.
    fn count_as_empty(&mut self, term: Option<u64>) -> Duration {
        self.is_listed = false;
        self.handler.heard::<K>();
        self.handler.remove_others::<K>(&BTreeSet::new());
        self.handler.set_readable::<K>(true);
        self.confirm(term);
        ABSENT_PERIOD
    }
}

/// The answer to a request, if it begins in time.
async fn within<T>(
    limit: Duration,
    phase: AskedFor,
    request: impl Future<Output = kube::Result<T>>,
) -> Result<T, Failed> {
    match timeout(limit, request).await {
        Ok(answer) => answer.map_err(|error| Failed::of(phase, error)),
        Err(_) => Err(Failed::Silent(limit)),
    }
}

/// The next event, if it comes in time; `None` at the end.
async fn next<T>(
    limit: Duration,
    phase: AskedFor,
    events: &mut (impl Stream<Item = kube::Result<T>> + Unpin),
) -> Result<Option<T>, Failed> {
    within(limit, phase, events.try_next()).await
}

/// Whether this is the end of a list that is streamed.
fn ends_list(bookmark: &Bookmark) -> bool {
    bookmark.metadata.annotations.contains_key("k8s.io/initial-events-end")
}

/// Pauses after failures in a row.
fn pauses(seed: u64, kind: &str) -> ExponentialBuilder {
    let mut hasher = std::hash::DefaultHasher::new();
    hasher.write_u64(seed);
    hasher.write(kind.as_bytes());
    ExponentialBuilder::new()
        .with_min_delay(FIRST_PAUSE)
        .with_max_delay(LONGEST_PAUSE)
        .without_max_times()
        .with_jitter()
        .with_jitter_seed(hasher.finish())
}

/// Marks a kind as not listed when its watch is gone, however it ended.
struct StaleOnDrop {
    handler: Handler,
    kind: &'static str,
}

impl Drop for StaleOnDrop {
    fn drop(&mut self) {
        self.handler.cache.set_unsynced(self.kind);
    }
}
