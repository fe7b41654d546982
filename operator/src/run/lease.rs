//! Leader election over a Lease: which replica schedules, and until when.
//!
//! A replica leads while it renews the Lease. It stops scheduling when it could not renew for the
//! renew deadline, which is before the lease expires for other replicas. How long another replica has
//! not renewed is measured on this machine's monotonic clock: the lock last changed when this replica
//! last *saw* it change, so clocks that jump or differ cannot make two leaders. The renew deadline has
//! passed when the monotonic clock or the time of day says so, because the former stands still while a
//! virtual machine is suspended. A clock that is set forward costs an election at worst.
//!
//! A write that was sent in a term may be done after it. So a term that was lost is followed by a pause, and
//! the lease is released only if nothing can be under way any more.
//!
//! [`Lock`] decides; this file reads and writes the Lease.
//!
//! Parity: v0.5.0 holds a ConfigMap; see docs/parity.md#x2.

mod lock;

use std::{sync::Arc, time::Duration};

use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{Api, Client, api::PostParams, core::Status};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use self::lock::{Lock, Periods};
use super::{
    clock::Clock,
    error,
    metrics::{Metrics, Write, Written},
    supervisor::Supervisor,
    term::{Renewed, Term, Terms},
};
use crate::args::RunArgs;

/// Name of the lock.
const NAME: &str = "kube-batch";

/// How long releasing the lock may take when the process stops.
const RELEASE_DEADLINE: Duration = Duration::from_secs(5);

/// How long the start waits for the first attempt to take the lease. Guessed: longer than an answer
/// takes, and no loss if there is none.
const FIRST_ATTEMPT: Duration = Duration::from_secs(2);

/// How many answers that take as long as they may fit into the renew deadline. With two, a lease whose
/// renewals are all answered as late as that does not end, and one dead connection does not cost it:
/// each request has a connection of its own.
const N_ANSWERS: u32 = 2;

/// Why a lease is lost when no request failed.
const NO_ANSWER: &str = "no answer within the renew deadline";

/// Why a lease is lost when only the time of day shows that the renew deadline has passed.
const SUSPENDED: &str = "this machine was suspended, or its clock was set forward";

/// This replica's part in the election. Without leader election it always leads.
pub(crate) struct Election {
    terms: Terms,
    /// Cancelled when the first attempt to take the lease was answered.
    tried: CancellationToken,
    stop: CancellationToken,
    /// Cancelled if the lease is to expire by itself.
    abandon: CancellationToken,
    /// Cancelled when the elector has returned; from the start if there is none.
    returned: CancellationToken,
}

impl Election {
    /// Starts the election with this candidate; without one, there is no leader election. Sets `terms`,
    /// which has none yet.
    pub(crate) fn start(elector: Option<Elector>, terms: Terms, tasks: &mut Supervisor) -> Self {
        let [tried, stop, abandon, returned] = [(); 4].map(|()| CancellationToken::new());
        let election = Self { terms, tried, stop, abandon, returned };
        match elector {
            Some(elector) => election.spawn(elector, tasks),
            None => {
                election.terms.set(Some(Term::FOREVER));
                election.tried.cancel();
                election.returned.cancel();
            }
        }
        election
    }

    /// Waits until it is known whether this replica leads, but not for long. Lists that begin in a term
    /// need not be compared with the API server again, see [`super::watch`].
    pub(crate) async fn tried(&self) {
        let _ = tokio::time::timeout(FIRST_ATTEMPT, self.tried.cancelled()).await;
    }

    fn spawn(&self, elector: Elector, tasks: &mut Supervisor) {
        let (terms, tried) = (self.terms.clone(), self.tried.clone());
        let (stop, abandon) = (self.stop.clone(), self.abandon.clone());
        let returned = self.returned.clone().drop_guard();
        // Required: a new elector in this process would find the lease held by its own identity, and
        // not know until when it is valid. A new process is a new candidate.
        tasks.spawn_required("leader-election", async move {
            elector.run(terms, tried, stop.clone(), abandon).await;
            drop(returned);
            if stop.is_cancelled() {
                // It returned as it should; the process is about to end.
                std::future::pending::<()>().await;
            }
        });
    }

    /// The terms of this replica, now and later.
    pub(crate) fn terms(&self) -> Terms {
        self.terms.clone()
    }

    /// Ends this replica's part, and releases the lock if it is held and all writes have been answered. Otherwise the
    /// lock expires by itself: a write that is under way may be done late, and another replica does not know of it.
    pub(crate) async fn end(&self, all_is_answered: bool) {
        if !all_is_answered {
            self.abandon.cancel();
        }
        self.stop.cancel();
        if tokio::time::timeout(RELEASE_DEADLINE, self.returned.cancelled()).await.is_err() {
            warn!("could not release the lease in time; it expires by itself");
        }
    }
}

/// A candidate: takes the lock when it may, and keeps it.
pub(crate) struct Elector {
    leases: Api<Lease>,
    namespace: String,
    /// The Lease as it was read or written last, with its version.
    lease: Option<Lease>,
    lock: Lock,
    /// When this replica may lead, if it holds the lock.
    not_before: Instant,
    metrics: Arc<Metrics>,
    clock: Clock,
}

impl Elector {
    /// The candidate that the flags ask for, if any.
    pub(crate) fn from_args(
        args: &RunArgs,
        client: &Client,
        identity: &str,
        metrics: &Arc<Metrics>,
        clock: &Clock,
    ) -> Option<Self> {
        let periods = Periods {
            lease: args.lease_duration,
            renew_deadline: args.renew_deadline,
            retry: args.retry_period,
        };
        let lock = Lock::new(identity.to_owned(), periods);
        let namespace = args.lock_object_namespace.clone();
        let (metrics, clock) = (Arc::clone(metrics), clock.clone());
        args.leader_elect.then(|| Self::new(client, namespace, lock, metrics, clock))
    }

    fn new(
        client: &Client,
        namespace: String,
        lock: Lock,
        metrics: Arc<Metrics>,
        clock: Clock,
    ) -> Self {
        let leases = Api::namespaced(client.clone(), &namespace);
        Self { leases, namespace, lease: None, lock, not_before: Instant::now(), metrics, clock }
    }

    /// Takes the lock when it may and keeps it, and sends the term to `terms`. When `stop` is cancelled,
    /// releases the lock, unless it is to be abandoned, and returns.
    async fn run(
        mut self,
        terms: Terms,
        tried: CancellationToken,
        stop: CancellationToken,
        abandon: CancellationToken,
    ) {
        let terms = Leadership(terms);
        let mut number = 0;
        while stop.run_until_cancelled(self.acquire(&tried)).await.is_some() {
            info!(identity = self.lock.identity(), "became leader");
            number += 1;
            terms.begin(Term { number, lease: self.lock.renewed() });
            tried.cancel();
            let lost = stop.run_until_cancelled(self.renew(&terms)).await;
            terms.end();
            let Some(why) = lost else { break };
            self.lock.lost();
            // What was sent in the term may still be done.
            self.lead_not_before(self.lock.periods().margin());
            warn!(why, "lost the lease, no longer scheduling");
        }
        // Also if the answer to an attempt was not awaited.
        if !abandon.is_cancelled() && self.not_before <= Instant::now() {
            self.release().await;
        }
    }

    /// Tries until the lock is held; `tried` is cancelled when it is held by another replica.
    async fn acquire(&mut self, tried: &CancellationToken) {
        let retry = self.lock.periods().retry;
        let mut leader = None;
        loop {
            match self.try_acquire().await {
                Ok(Attempt::Held) if self.not_before <= Instant::now() => return,
                Ok(Attempt::Held) => {
                    tokio::time::sleep_until(self.not_before).await;
                    continue;
                }
                Ok(Attempt::NotHeld | Attempt::Conflict) => {
                    tried.cancel();
                    let holder = self.lock.other_holder().map(str::to_owned);
                    if holder.is_some() && holder != leader {
                        info!(leader = holder, "standby: another replica leads");
                        leader = holder;
                    }
                }
                Err(error) => {
                    warn!(namespace = self.namespace, error, "cannot acquire the lease");
                }
            }
            tokio::time::sleep(retry).await;
        }
    }

    /// Renews until that fails for too long, and returns why.
    async fn renew(&mut self, terms: &Leadership) -> String {
        let retry = self.lock.periods().retry;
        let mut why = NO_ANSWER.to_owned();
        let mut attempted =
            self.lock.renewed().map_or_else(Instant::now, |lease| lease.at.monotonic);
        while let Some(lease) = self.lock.renewed() {
            let end = lease.at.monotonic + lease.lasts;
            // However long the last answer took.
            tokio::time::sleep_until((attempted + retry).min(end)).await;
            attempted = Instant::now();
            let time_left = lease.time_left(self.clock.moment());
            if time_left.is_zero() {
                return if attempted >= end { why } else { SUSPENDED.to_owned() };
            }
            match within(time_left, self.try_renew(terms)).await.flatten() {
                Ok(Attempt::Held) => why = NO_ANSWER.to_owned(),
                Ok(Attempt::NotHeld) => {
                    return "the Lease was deleted, or written by others".to_owned();
                }
                // Something else has changed the Lease, perhaps only a label: the next attempt reads it.
                Ok(Attempt::Conflict) => why = "conflicts with other writers".to_owned(),
                Err(error) => {
                    why = error;
                    warn!(error = why, "cannot renew the lease, retrying");
                }
            }
        }
        why
    }

    /// Takes the lock if it may be taken.
    ///
    /// # Errors
    ///
    /// The text of the error, or that there was no answer.
    async fn try_acquire(&mut self) -> Result<Attempt, String> {
        self.read().await?;
        if !self.lock.may_take(self.clock.moment()) {
            return Ok(Attempt::NotHeld);
        }
        if self.lock.is_gone() {
            // Another replica may have held the lock between two reads. It stops by then.
            self.lead_not_before(self.lock.periods().renew_deadline);
        }
        self.write().await
    }

    /// Neither begins a term in this time nor releases the lock, which would let another replica begin one.
    fn lead_not_before(&mut self, pause: Duration) {
        self.not_before = self.not_before.max(Instant::now() + pause);
    }

    /// Renews the lock if it is still ours, and extends the term. If it is not, another replica may have
    /// begun to lead, whatever the Lease says now.
    ///
    /// The Lease is read only if it is not as this replica knows it. client-go does the same.
    ///
    /// # Errors
    ///
    /// As [`Self::try_acquire`].
    async fn try_renew(&mut self, terms: &Leadership) -> Result<Attempt, String> {
        let mut attempt = self.write().await?;
        if attempt == Attempt::Conflict {
            self.read().await?;
            if !self.record().is_some_and(|record| self.lock.is_ours(record)) {
                return Ok(Attempt::NotHeld);
            }
            // It may be a renewal whose answer was lost.
            terms.extend(self.lock.renewed());
            attempt = self.write().await?;
        }
        terms.extend(self.lock.renewed());
        Ok(attempt)
    }

    /// How long one answer may take.
    fn answer_timeout(&self) -> Duration {
        self.lock.periods().renew_deadline / N_ANSWERS
    }

    fn record(&self) -> Option<&LeaseSpec> {
        self.lease.as_ref()?.spec.as_ref()
    }

    async fn read(&mut self) -> Result<(), String> {
        let read = within(self.answer_timeout(), self.leases.get_opt(NAME)).await?;
        self.lease = read.map_err(|error| error::chain(&error))?;
        self.lock.observe(self.lease.as_ref(), self.clock.moment());
        Ok(())
    }

    /// Writes the next record into the Lease as it is known.
    async fn write(&mut self) -> Result<Attempt, String> {
        let sent = self.clock.moment();
        let spec = Some(self.lock.next_record(sent));
        let params = PostParams::default();
        let written = match self.lease.clone() {
            // The resource version it was read at is in it, so of two replicas that write one gets
            // a conflict.
            Some(lease) => {
                let lease = Lease { spec, ..lease };
                let write = self.leases.replace(NAME, &params, &lease);
                within(self.answer_timeout(), write).await?
            }
            None => {
                let metadata = ObjectMeta { name: Some(NAME.to_owned()), ..ObjectMeta::default() };
                let lease = Lease { metadata, spec };
                let write = self.leases.create(&params, &lease);
                within(self.answer_timeout(), write).await?
            }
        };
        let (result, attempt) = match written {
            Ok(lease) => {
                self.lock.record_renewal(&lease, sent, self.clock.moment());
                self.lease = Some(lease);
                ("done", Ok(Attempt::Held))
            }
            Err(kube::Error::Api(status)) if status.code == 409 || self.is_gone(&status) => {
                ("conflict", Ok(Attempt::Conflict))
            }
            Err(error) => ("failed", Err(error::chain(&error))),
        };
        self.metrics.writes.get_or_create(&Written { write: Write::Lease, result }).inc();
        attempt
    }

    /// Whether the Lease that was to be replaced was deleted.
    const fn is_gone(&self, status: &Status) -> bool {
        status.code == 404 && self.lease.is_some()
    }

    /// Releases the lock if it is ours, so that another replica can take it at once.
    async fn release(&mut self) {
        let Ok(Some(lease)) = self.leases.get_opt(NAME).await else { return };
        let record = lease.spec.clone().unwrap_or_default();
        let Some(record) = self.lock.released_record(&record, self.clock.now()) else { return };
        let released = Lease { spec: Some(record), ..lease };
        match self.leases.replace(NAME, &PostParams::default(), &released).await {
            Ok(_) => info!("released the lease"),
            Err(error) => {
                warn!(error = error::chain(&error), "cannot release the lease");
            }
        }
    }
}

/// What a future returns, if it does in this time.
///
/// # Errors
///
/// That there was no answer.
async fn within<T>(timeout: Duration, answer: impl Future<Output = T>) -> Result<T, String> {
    let answer = tokio::time::timeout(timeout, answer).await;
    answer.map_err(|_| format!("no answer within {timeout:.1?}"))
}

/// What became of an attempt to take or renew the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attempt {
    /// This replica holds it.
    Held,
    /// Another replica does, or may.
    NotHeld,
    /// The Lease was changed between reading and writing it.
    Conflict,
}

/// The term of this replica; none any more when the elector is gone, however it ended.
struct Leadership(Terms);

impl Leadership {
    fn begin(&self, term: Term) {
        self.0.set(Some(term));
    }

    fn extend(&self, lease: Option<Renewed>) {
        self.0.extend(lease);
    }

    fn end(&self) {
        self.0.set(None);
    }
}

impl Drop for Leadership {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};

    use http::Method;
    use serde_json::{Value, json};
    use tokio::task::JoinHandle;

    use super::*;
    use crate::run::fake_api::{FakeApi, Fault};

    const PATH: &str = "/apis/coordination.k8s.io/v1/namespaces/ns/leases/kube-batch";
    const PERIODS: Periods = Periods {
        lease: Duration::from_secs(15),
        renew_deadline: Duration::from_secs(10),
        retry: Duration::from_secs(2),
    };

    /// A candidate that runs.
    struct Candidate {
        terms: Terms,
        stop: CancellationToken,
        abandon: CancellationToken,
        task: JoinHandle<()>,
        metrics: Arc<Metrics>,
        clock: Clock,
        /// How far its time of day is ahead, in seconds.
        ahead: Arc<AtomicI64>,
    }

    impl Candidate {
        fn start(api: &FakeApi) -> Self {
            Self::named("me", api)
        }

        fn named(identity: &str, api: &FakeApi) -> Self {
            let (ahead, metrics) = (Arc::default(), Arc::new(Metrics::new()));
            let clock = Clock::ahead(&ahead);
            let terms = Terms::new(clock.clone());
            let elector = elector(identity, api, &metrics, &clock);
            let (receiver, stop) = (terms.clone(), CancellationToken::new());
            let (tried, abandon) = (CancellationToken::new(), CancellationToken::new());
            let task =
                tokio::task::spawn_local(elector.run(terms, tried, stop.clone(), abandon.clone()));
            Self { terms: receiver, stop, abandon, task, metrics, clock, ahead }
        }

        fn leads(&self) -> bool {
            self.terms.current().is_some()
        }

        /// Waits until it leads or no longer does, and returns how many seconds that took.
        async fn until(&mut self, leads: bool) -> f64 {
            let started = Instant::now();
            while self.leads() != leads {
                let changed = self.terms.changed_from(self.terms.number());
                let changed = tokio::time::timeout(Duration::from_secs(120), changed);
                changed.await.expect("it happens within two minutes");
            }
            started.elapsed().as_secs_f64()
        }

        async fn stop(self) {
            self.stop.cancel();
            self.task.await.expect("it returns");
        }

        fn n_writes(&self, result: &'static str) -> u64 {
            self.metrics.writes.get_or_create(&Written { write: Write::Lease, result }).get()
        }
    }

    fn elector(identity: &str, api: &FakeApi, metrics: &Arc<Metrics>, clock: &Clock) -> Elector {
        let lock = Lock::new(identity.to_owned(), PERIODS);
        let (client, metrics) = (api.client(), Arc::clone(metrics));
        Elector::new(&client, "ns".to_owned(), lock, metrics, clock.clone())
    }

    /// A Lease that its holder has released.
    fn released() -> Value {
        let mut lease = held_by("", 1);
        lease["spec"]["leaseDurationSeconds"] = json!(1);
        lease
    }

    fn held_by(holder: &str, transitions: i32) -> Value {
        json!({"metadata": {"name": NAME, "namespace": "ns"}, "spec": {
            "holderIdentity": holder, "leaseDurationSeconds": 15, "leaseTransitions": transitions,
        }})
    }

    fn holder(api: &FakeApi) -> Value {
        api.object(PATH).map_or(Value::Null, |lease| lease["spec"]["holderIdentity"].clone())
    }

    #[tokio::test(flavor = "local", start_paused = true)]
    async fn a_free_lock_is_taken_renewed_and_released() {
        let api = FakeApi::default();
        let mut candidate = Candidate::start(&api);
        candidate.until(true).await;
        assert_eq!(holder(&api), "me");
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(candidate.leads());
        let n_writes = candidate.n_writes("done");
        assert!((30..=31).contains(&n_writes), "created, then renewed every 2 s: {n_writes}");
        let terms = candidate.terms.clone();
        candidate.stop().await;
        assert_eq!(terms.current(), None);
        assert_eq!(holder(&api), "");
    }

    #[tokio::test(flavor = "local", start_paused = true)]
    async fn a_crashed_holder_is_replaced_when_its_lease_has_expired() {
        let api = FakeApi::default();
        api.put(PATH, held_by("other", 3));
        let mut candidate = Candidate::start(&api);
        let waited = candidate.until(true).await;
        assert!((15.0..19.0).contains(&waited), "{waited}");
        assert_eq!(api.object(PATH).expect("a lease")["spec"]["leaseTransitions"], 4);
    }

    #[tokio::test(flavor = "local", start_paused = true)]
    async fn a_holder_that_renews_is_not_replaced() {
        let api = FakeApi::default();
        let candidate = Candidate::start(&api);
        for n in 0..20 {
            // Only that the record changes counts, not what is in it.
            api.put(PATH, held_by("other", n));
            tokio::time::sleep(Duration::from_secs(10)).await;
        }
        assert_eq!(holder(&api), "other");
        assert!(!candidate.leads());
        assert_eq!(candidate.n_writes("done"), 0);
    }

    #[tokio::test(flavor = "local", start_paused = true)]
    async fn a_conflict_does_not_make_a_leader() {
        let api = FakeApi::default();
        api.put(PATH, held_by("", 0));
        api.fail(Method::PUT, PATH, [Fault::Status(409)]);
        let mut candidate = Candidate::start(&api);
        let waited = candidate.until(true).await;
        assert!((2.0..3.0).contains(&waited), "it tried again after the retry period: {waited}");
        assert_eq!((candidate.n_writes("conflict"), candidate.n_writes("done")), (1, 1));
    }

    #[tokio::test(flavor = "local", start_paused = true)]
    async fn a_leader_whose_renewals_fail_stops_at_the_renew_deadline() {
        for fault in [Fault::Hang, Fault::Status(500)] {
            let api = FakeApi::default();
            let mut candidate = Candidate::start(&api);
            candidate.until(true).await;
            for method in [Method::GET, Method::PUT] {
                api.fail_always(method, PATH, fault.clone());
            }
            let led = candidate.until(false).await;
            assert!((9.9..10.1).contains(&led), "{fault:?}: {led}");
            api.recover();
            candidate.until(true).await;
        }
    }

    #[tokio::test(flavor = "local", start_paused = true)]
    async fn a_leader_counts_from_when_it_sent_the_renewal() {
        let api = FakeApi::default();
        let mut candidate = Candidate::start(&api);
        candidate.until(true).await;
        // Stored at once, never answered: no other replica may take it for 15 s from then on.
        api.fail(Method::PUT, PATH, [Fault::Lost]);
        tokio::time::sleep(Duration::from_secs(6)).await;
        api.fail_always(Method::GET, PATH, Fault::Hang);
        api.fail_always(Method::PUT, PATH, Fault::Hang);
        let led = 6.0 + candidate.until(false).await;
        assert!((9.9..10.1).contains(&led), "{led}");
    }

    #[tokio::test(flavor = "local", start_paused = true)]
    async fn a_leader_finds_renewals_without_an_answer_by_reading_them() {
        let api = FakeApi::default();
        let mut candidate = Candidate::start(&api);
        candidate.until(true).await;
        for n in 0..600 {
            if n % 80 == 0 {
                api.fail(Method::PUT, PATH, [Fault::Lost]);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
            assert!(candidate.terms.number() == Some(1) && !candidate.terms.time_left().is_zero());
        }
    }

    #[tokio::test(flavor = "local", start_paused = true)]
    async fn a_leader_keeps_the_lease_although_each_answer_takes_almost_a_third_of_it() {
        for millis in [1_800, 3_400, 4_900] {
            let api = FakeApi::default();
            api.set_delay(Duration::from_millis(millis));
            let mut candidate = Candidate::named("one", &api);
            let other = Candidate::named("two", &api);
            candidate.until(true).await;
            for _ in 0..2_000 {
                tokio::time::sleep(Duration::from_millis(100)).await;
                let is_first = candidate.terms.number() == Some(1) && !other.leads();
                assert!(is_first && !candidate.terms.time_left().is_zero(), "{millis}");
            }
        }
    }

    #[tokio::test(flavor = "local", start_paused = true)]
    async fn a_short_outage_does_not_end_leadership() {
        let api = FakeApi::default();
        let mut candidate = Candidate::start(&api);
        candidate.until(true).await;
        api.fail(Method::PUT, PATH, [Fault::Status(500), Fault::Status(429), Fault::Status(503)]);
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(candidate.terms.number(), Some(1));
        assert_eq!(candidate.n_writes("failed"), 3);
    }

    #[tokio::test(flavor = "local", start_paused = true)]
    async fn a_conflict_with_another_writer_does_not_end_leadership() {
        let api = FakeApi::default();
        let mut candidate = Candidate::start(&api);
        candidate.until(true).await;
        api.fail(Method::PUT, PATH, [Fault::Status(409), Fault::Status(409)]);
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert_eq!(candidate.terms.number(), Some(1));
        assert_eq!(candidate.n_writes("conflict"), 2);
    }

    #[tokio::test(flavor = "local", start_paused = true)]
    async fn a_term_is_over_when_it_was_not_renewed_in_time() {
        let api = FakeApi::default();
        let mut candidate = Candidate::start(&api);
        candidate.until(true).await;
        let term = candidate.terms.current().expect("a term");
        let time_left = |term: Term| term.time_left(candidate.clock.moment());
        assert_eq!(time_left(term), Duration::from_secs(10));
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(time_left(term), Duration::ZERO, "as it was then");
        let term = candidate.terms.current().expect("the same term, renewed");
        assert!(term.number == 1 && time_left(term) >= Duration::from_secs(8));
        assert_eq!(time_left(Term::FOREVER), Duration::MAX);
    }

    #[tokio::test(flavor = "local", start_paused = true)]
    async fn each_term_has_its_number() {
        let api = FakeApi::default();
        let mut candidate = Candidate::start(&api);
        for number in 1..4 {
            candidate.until(true).await;
            assert_eq!(candidate.terms.number(), Some(number));
            api.put(PATH, held_by("other", 1));
            candidate.until(false).await;
            api.put(PATH, released());
        }
    }

    #[tokio::test(flavor = "local", start_paused = true)]
    async fn a_leader_stops_when_another_replica_holds_the_lock() {
        let api = FakeApi::default();
        let mut candidate = Candidate::start(&api);
        candidate.until(true).await;
        api.put(PATH, held_by("other", 1));
        let led = candidate.until(false).await;
        assert!(led <= 2.0, "{led}");
        assert_eq!(holder(&api), "other");
    }

    #[tokio::test(flavor = "local", start_paused = true)]
    async fn a_leader_whose_lease_is_deleted_or_changed_does_not_go_on_in_the_same_term() {
        let api = FakeApi::default();
        let mut candidate = Candidate::start(&api);
        candidate.until(true).await;
        let restored = api.object(PATH).expect("a lease");
        for (number, lease) in [(2, None), (3, Some(held_by("", 0))), (4, Some(released()))] {
            tokio::time::sleep(Duration::from_secs(30)).await;
            match lease {
                Some(lease) => api.put(PATH, lease),
                None => api.remove(PATH),
            }
            tokio::time::sleep(Duration::from_secs(15)).await;
            assert_eq!(candidate.terms.number(), Some(number));
            assert_eq!(holder(&api), "me");
        }
        // Another replica may have taken it since that was stored.
        api.put(PATH, restored);
        candidate.until(false).await;
        let waited = candidate.until(true).await;
        assert!((15.0..19.0).contains(&waited), "{waited}");
    }

    #[tokio::test(flavor = "local", start_paused = true)]
    async fn a_leader_whose_machine_was_suspended_is_elected_again_before_it_leads() {
        let api = FakeApi::default();
        let mut candidate = Candidate::start(&api);
        candidate.until(true).await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        let ahead = Arc::clone(&candidate.ahead);
        let set = |seconds| ahead.store(seconds, Ordering::Relaxed);
        // Its monotonic clock stood still, and nobody else has taken the lease.
        set(600);
        assert!(candidate.terms.time_left().is_zero());
        candidate.until(false).await;
        let waited = candidate.until(true).await;
        assert!((5.0..8.0).contains(&waited), "what was sent may still be done: {waited}");
        assert_eq!(candidate.terms.number(), Some(2));
        // Its clock is set back, or forward by little: nothing happens.
        for seconds in [-3_600, -3_595] {
            set(seconds);
            tokio::time::sleep(Duration::from_secs(5)).await;
            assert_eq!(candidate.terms.number(), Some(2));
            assert!(!candidate.terms.time_left().is_zero());
        }
        set(0);
        api.put(PATH, held_by("other", 1));
        assert!(candidate.terms.time_left().is_zero(), "although it has not read the lease yet");
        candidate.until(false).await;
        assert_eq!(holder(&api), "other");
    }

    #[tokio::test(flavor = "local", start_paused = true)]
    async fn two_replicas_never_lead_at_the_same_time_whatever_becomes_of_the_lease() {
        for seed in 0..300 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let api = FakeApi::default();
            let candidates: Vec<_> = ["one", "two"].map(|name| Candidate::named(name, &api)).into();
            // Both have read who leads.
            tokio::time::sleep(Duration::from_secs(10)).await;
            let mut old = api.object(PATH).expect("a lease");
            for _ in 0..300 {
                match rng.u32(0..40) {
                    0 => api.remove(PATH),
                    1 => api.put(PATH, held_by("", 0)),
                    2 => api.put(PATH, json!({"metadata": {"name": NAME, "namespace": "ns"}})),
                    3 => api.put(PATH, old.clone()),
                    4 => old = api.object(PATH).unwrap_or(old),
                    5 => api.fail(Method::PUT, PATH, [Fault::Lost, Fault::Hang]),
                    6 => api.fail(Method::GET, PATH, [Fault::Status(500), Fault::Hang]),
                    7 => {
                        let set = &candidates[rng.usize(0..2)].ahead;
                        set.store(rng.i64(-4_000..4_000), Ordering::Relaxed);
                    }
                    8 => api.set_delay(Duration::from_millis(rng.u64(0..4_000))),
                    _ => {}
                }
                tokio::time::sleep(Duration::from_millis(rng.u64(1..4_000))).await;
                assert!(
                    candidates.iter().filter(|candidate| candidate.leads()).count() < 2,
                    "{seed}"
                );
            }
            api.recover();
            api.set_delay(Duration::ZERO);
            tokio::time::sleep(Duration::from_secs(60)).await;
            assert!(candidates.iter().any(Candidate::leads), "{seed}");
            for candidate in candidates {
                candidate.stop().await;
            }
        }
    }

    #[tokio::test(flavor = "local", start_paused = true)]
    async fn a_lost_answer_is_found_by_reading_the_lock() {
        let api = FakeApi::default();
        api.fail(Method::POST, "/leases", [Fault::Lost]);
        let mut candidate = Candidate::start(&api);
        let waited = candidate.until(true).await;
        assert!((7.0..8.0).contains(&waited), "half of the deadline, then retry: {waited}");
        assert_eq!(api.object(PATH).expect("a lease")["spec"]["leaseTransitions"], 0);
    }

    #[tokio::test(flavor = "local", start_paused = true)]
    async fn a_lease_is_not_released_if_writes_may_be_under_way() {
        for loses_the_term in [false, true] {
            let api = FakeApi::default();
            let mut candidate = Candidate::start(&api);
            candidate.until(true).await;
            tokio::time::sleep(Duration::from_secs(5)).await;
            if loses_the_term {
                candidate.ahead.store(600, Ordering::Relaxed);
                candidate.until(false).await;
            } else {
                candidate.abandon.cancel();
            }
            candidate.stop.cancel();
            candidate.task.await.expect("it returns");
            assert_eq!(holder(&api), "me");
        }
    }

    #[tokio::test(flavor = "local", start_paused = true)]
    async fn a_foreign_lock_is_not_released() {
        let api = FakeApi::default();
        let mut candidate = Candidate::start(&api);
        candidate.until(true).await;
        api.put(PATH, held_by("other", 1));
        candidate.stop().await;
        assert_eq!(holder(&api), "other");
    }

    #[tokio::test(flavor = "local", start_paused = true)]
    async fn an_elector_that_panics_is_no_longer_leader() {
        let api = FakeApi::default();
        let mut candidate = Candidate::start(&api);
        candidate.until(true).await;
        api.fail(Method::PUT, PATH, [Fault::Panic]);
        let led = candidate.until(false).await;
        assert!(led <= 2.1, "{led}");
        assert!(candidate.task.await.is_err(), "which ends the process");
    }

    #[tokio::test(flavor = "local", start_paused = true)]
    async fn an_election_that_is_ended_releases_the_lock_and_is_no_failure() {
        let (api, metrics) = (FakeApi::default(), Arc::new(Metrics::new()));
        let mut tasks = Supervisor::new(Arc::clone(&metrics));
        let elector = elector("me", &api, &metrics, &Clock::system());
        let election = Election::start(Some(elector), Terms::default(), &mut tasks);
        let terms = election.terms();
        terms.changed_from(None).await;
        election.end(true).await;
        assert_eq!(terms.current(), None);
        assert_eq!(holder(&api), "");
        let failed = tokio::time::timeout(Duration::from_secs(1), tasks.failed()).await;
        assert!(failed.is_err(), "nothing has failed");
        let without = Election::start(None, Terms::default(), &mut tasks);
        assert_eq!(without.terms().current(), Some(Term::FOREVER));
        without.end(true).await;
    }

    #[tokio::test(flavor = "local", start_paused = true)]
    async fn an_elector_that_panics_ends_the_process() {
        let (api, metrics) = (FakeApi::default(), Arc::new(Metrics::new()));
        let mut tasks = Supervisor::new(Arc::clone(&metrics));
        let elector = elector("me", &api, &metrics, &Clock::system());
        let election = Election::start(Some(elector), Terms::default(), &mut tasks);
        api.fail(Method::PUT, PATH, [Fault::Panic]);
        let error = tasks.failed().await.to_string();
        assert_eq!(error, "the background task leader-election ended unexpectedly");
        assert_eq!(election.terms().current(), None);
        election.end(true).await;
    }
}
