//! Leader election over a Lease: which replica schedules, and until when.
//!
//! A replica leads while it renews the Lease. It stops scheduling when it could not renew for the
//! renew deadline, which is before the lease expires for other replicas. Durations are measured on
//! this machine's monotonic clock: the lock last changed when this replica last *saw* it change, so
//! clocks that jump or differ cannot make two leaders.
//!
//! [`Lock`] decides; this file reads and writes the Lease.
//!
//! Parity: v0.5.0 holds a ConfigMap; see docs/parity.md#x2.

mod lock;

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::{api::coordination::v1::Lease, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{Api, Client, api::PostParams};
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use self::lock::{Lock, Periods};
use super::{
    error,
    metrics::{Metrics, Write, Written},
    supervisor::Supervisor,
};
use crate::args::RunArgs;

/// Name of the lock.
const NAME: &str = "kube-batch";

/// How long releasing the lock may take when the process stops.
const RELEASE_DEADLINE: Duration = Duration::from_secs(5);

/// Why a lease is lost when no request failed.
const NO_ANSWER: &str = "no answer within the renew deadline";

/// This replica's part in the election. Without leader election it always leads.
pub(crate) struct Election {
    leads: watch::Sender<bool>,
    stop: CancellationToken,
    /// Cancelled when the elector has returned; from the start if there is none.
    returned: CancellationToken,
}

impl Election {
    /// Starts the election with this candidate; without one, there is no leader election.
    pub(crate) fn start(elector: Option<Elector>, tasks: &mut Supervisor) -> Self {
        let leads = watch::Sender::new(elector.is_none());
        let (stop, returned) = (CancellationToken::new(), CancellationToken::new());
        let election = Self { leads, stop, returned };
        match elector {
            Some(elector) => election.spawn(elector, tasks),
            None => election.returned.cancel(),
        }
        election
    }

    fn spawn(&self, elector: Elector, tasks: &mut Supervisor) {
        let (leads, stop) = (self.leads.clone(), self.stop.clone());
        let returned = self.returned.clone().drop_guard();
        // Required: a new elector in this process would find the lease held by its own identity, and
        // not know until when it is valid. A new process is a new candidate.
        tasks.spawn_required("leader-election", async move {
            elector.run(leads, stop.clone()).await;
            drop(returned);
            if stop.is_cancelled() {
                // It returned as it should; the process is about to end.
                std::future::pending::<()>().await;
            }
        });
    }

    /// Whether this replica leads, now and later.
    pub(crate) fn leads(&self) -> watch::Receiver<bool> {
        self.leads.subscribe()
    }

    /// Ends this replica's part, and releases the lock if it is held.
    pub(crate) async fn end(&self) {
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
    lock: Lock,
    metrics: Arc<Metrics>,
}

impl Elector {
    /// The candidate that the flags ask for, if any.
    pub(crate) fn from_args(
        args: &RunArgs,
        client: &Client,
        identity: &str,
        metrics: &Arc<Metrics>,
    ) -> Option<Self> {
        let periods = Periods {
            lease: args.lease_duration,
            renew_deadline: args.renew_deadline,
            retry: args.retry_period,
        };
        let lock = Lock::new(identity.to_owned(), periods);
        let namespace = args.lock_object_namespace.clone();
        args.leader_elect.then(|| Self::new(client, namespace, lock, Arc::clone(metrics)))
    }

    fn new(client: &Client, namespace: String, lock: Lock, metrics: Arc<Metrics>) -> Self {
        Self { leases: Api::namespaced(client.clone(), &namespace), namespace, lock, metrics }
    }

    /// Takes the lock when it may and keeps it, and sends whether it is held to `leads`. When
    /// `stop` is cancelled, releases the lock and returns.
    async fn run(mut self, leads: watch::Sender<bool>, stop: CancellationToken) {
        let leads = Leadership(leads);
        while stop.run_until_cancelled(self.acquire()).await.is_some() {
            info!(identity = self.lock.identity(), "became leader");
            leads.0.send_replace(true);
            let lost = stop.run_until_cancelled(self.renew()).await;
            leads.0.send_replace(false);
            self.lock.lost();
            match lost {
                Some(why) => warn!(why, "lost the lease, no longer scheduling"),
                None => self.release().await,
            }
        }
    }

    /// Tries until the lock is held.
    async fn acquire(&mut self) {
        let Periods { renew_deadline, retry, .. } = *self.lock.periods();
        let mut leader = None;
        loop {
            // An answer that comes later than that would be of a term that is over.
            match tokio::time::timeout(renew_deadline, self.try_acquire_or_renew()).await {
                Ok(Ok(true)) => return,
                Ok(Ok(false)) => {
                    let holder = self.lock.other_holder().map(str::to_owned);
                    if holder.is_some() && holder != leader {
                        info!(leader = holder, "standby: another replica leads");
                        leader = holder;
                    }
                }
                Ok(Err(error)) => warn!(
                    namespace = self.namespace,
                    error = error::chain(&error),
                    "cannot acquire the lease"
                ),
                Err(_) => {
                    warn!(
                        namespace = self.namespace,
                        error = NO_ANSWER,
                        "cannot acquire the lease"
                    );
                }
            }
            tokio::time::sleep(retry).await;
        }
    }

    /// Renews until that fails for too long, and returns why.
    async fn renew(&mut self) -> String {
        let retry = self.lock.periods().retry;
        let mut why = NO_ANSWER.to_owned();
        while let Some(deadline) = self.lock.valid_until() {
            tokio::time::sleep_until((Instant::now() + retry).min(deadline)).await;
            match tokio::time::timeout_at(deadline, self.try_acquire_or_renew()).await {
                Ok(Ok(true)) => why = NO_ANSWER.to_owned(),
                Ok(Ok(false)) => return "another replica holds it".to_owned(),
                Ok(Err(error)) => {
                    why = error::chain(&error);
                    warn!(error = why, "cannot renew the lease, retrying");
                }
                Err(_) => break,
            }
        }
        why
    }

    /// Takes or renews the lock if it may be; returns whether it is held.
    async fn try_acquire_or_renew(&mut self) -> kube::Result<bool> {
        let read = self.leases.get_opt(NAME).await?;
        let record = read.as_ref().map(|lease| lease.spec.clone().unwrap_or_default());
        self.lock.observe(record, Instant::now());
        if !self.lock.may_take(Instant::now()) {
            return Ok(false);
        }
        let sent = Instant::now();
        let spec = Some(self.lock.next_record(Timestamp::now()));
        let params = PostParams::default();
        let written = match read {
            // The resource version it was read at is in it, so of two replicas that write one gets
            // a conflict.
            Some(lease) => self.leases.replace(NAME, &params, &Lease { spec, ..lease }).await,
            None => {
                let metadata = ObjectMeta { name: Some(NAME.to_owned()), ..ObjectMeta::default() };
                self.leases.create(&params, &Lease { metadata, spec }).await
            }
        };
        let (result, held) = match written {
            Ok(lease) => {
                self.lock.renewed(lease.spec.unwrap_or_default(), sent, Instant::now());
                ("done", Ok(true))
            }
            Err(kube::Error::Api(status)) if status.code == 409 => ("conflict", Ok(false)),
            Err(error) => ("failed", Err(error)),
        };
        self.metrics.writes.get_or_create(&Written { write: Write::Lease, result }).inc();
        held
    }

    /// Releases the lock if it is ours, so that another replica can take it at once.
    async fn release(&mut self) {
        let Ok(Some(lease)) = self.leases.get_opt(NAME).await else { return };
        self.lock.observe(Some(lease.spec.clone().unwrap_or_default()), Instant::now());
        let Some(record) = self.lock.released_record(Timestamp::now()) else { return };
        let released = Lease { spec: Some(record), ..lease };
        match self.leases.replace(NAME, &PostParams::default(), &released).await {
            Ok(_) => info!("released the lease"),
            Err(error) => {
                warn!(error = error::chain(&error), "cannot release the lease");
            }
        }
    }
}

/// Whether this replica leads; not any more when the elector is gone, however it ended.
struct Leadership(watch::Sender<bool>);

impl Drop for Leadership {
    fn drop(&mut self) {
        self.0.send_replace(false);
    }
}

#[cfg(test)]
mod tests {
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
        leads: watch::Receiver<bool>,
        stop: CancellationToken,
        task: JoinHandle<()>,
        metrics: Arc<Metrics>,
    }

    impl Candidate {
        fn start(api: &FakeApi) -> Self {
            let (leads, metrics) = (watch::Sender::new(false), Arc::new(Metrics::new()));
            let lock = Lock::new("me".to_owned(), PERIODS);
            let elector = Elector::new(&api.client(), "ns".to_owned(), lock, Arc::clone(&metrics));
            let (receiver, stop) = (leads.subscribe(), CancellationToken::new());
            let task = tokio::spawn(elector.run(leads, stop.clone()));
            Self { leads: receiver, stop, task, metrics }
        }

        /// Waits until it leads or no longer does, and returns how many seconds that took.
        async fn until(&mut self, leads: bool) -> f64 {
            let started = Instant::now();
            let changed = self.leads.wait_for(|now| *now == leads);
            tokio::time::timeout(Duration::from_secs(120), changed)
                .await
                .expect("it happens within two minutes")
                .expect("the candidate runs");
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

    fn held_by(holder: &str, transitions: i32) -> Value {
        json!({"metadata": {"name": NAME, "namespace": "ns"}, "spec": {
            "holderIdentity": holder, "leaseDurationSeconds": 15, "leaseTransitions": transitions,
        }})
    }

    fn holder(api: &FakeApi) -> Value {
        api.object(PATH).map_or(Value::Null, |lease| lease["spec"]["holderIdentity"].clone())
    }

    #[tokio::test(start_paused = true)]
    async fn a_free_lock_is_taken_renewed_and_released() {
        let api = FakeApi::default();
        let mut candidate = Candidate::start(&api);
        candidate.until(true).await;
        assert_eq!(holder(&api), "me");
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(*candidate.leads.borrow());
        let n_writes = candidate.n_writes("done");
        assert!((30..=31).contains(&n_writes), "created, then renewed every 2 s: {n_writes}");
        let leads = candidate.leads.clone();
        candidate.stop().await;
        assert!(!*leads.borrow());
        assert_eq!(holder(&api), "");
    }

    #[tokio::test(start_paused = true)]
    async fn a_crashed_holder_is_replaced_when_its_lease_has_expired() {
        let api = FakeApi::default();
        api.put(PATH, held_by("other", 3));
        let mut candidate = Candidate::start(&api);
        let waited = candidate.until(true).await;
        assert!((15.0..19.0).contains(&waited), "{waited}");
        assert_eq!(api.object(PATH).expect("a lease")["spec"]["leaseTransitions"], 4);
    }

    #[tokio::test(start_paused = true)]
    async fn a_holder_that_renews_is_not_replaced() {
        let api = FakeApi::default();
        let candidate = Candidate::start(&api);
        for n in 0..20 {
            // Only that the record changes counts, not what is in it.
            api.put(PATH, held_by("other", n));
            tokio::time::sleep(Duration::from_secs(10)).await;
        }
        assert_eq!(holder(&api), "other");
        assert!(!*candidate.leads.borrow());
        assert_eq!(candidate.n_writes("done"), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_conflict_does_not_make_a_leader() {
        let api = FakeApi::default();
        api.put(PATH, held_by("", 0));
        api.fail(Method::PUT, PATH, [Fault::Status(409)]);
        let mut candidate = Candidate::start(&api);
        let waited = candidate.until(true).await;
        assert!((2.0..3.0).contains(&waited), "it tried again after the retry period: {waited}");
        assert_eq!((candidate.n_writes("conflict"), candidate.n_writes("done")), (1, 1));
    }

    #[tokio::test(start_paused = true)]
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

    #[tokio::test(start_paused = true)]
    async fn a_leader_counts_from_when_it_sent_the_renewal() {
        let api = FakeApi::default();
        let mut candidate = Candidate::start(&api);
        candidate.until(true).await;
        // Stored at once, never answered: no other replica may take it for 15 s from then on.
        api.fail_always(Method::PUT, PATH, Fault::Lost);
        let led = candidate.until(false).await;
        assert!((9.9..10.1).contains(&led), "{led}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_short_outage_does_not_end_leadership() {
        let api = FakeApi::default();
        let mut candidate = Candidate::start(&api);
        candidate.until(true).await;
        api.fail(Method::PUT, PATH, [Fault::Status(500), Fault::Status(429), Fault::Status(503)]);
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(*candidate.leads.borrow_and_update());
        assert!(!candidate.leads.has_changed().expect("the candidate runs"));
        assert_eq!(candidate.n_writes("failed"), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_leader_stops_when_another_replica_holds_the_lock() {
        let api = FakeApi::default();
        let mut candidate = Candidate::start(&api);
        candidate.until(true).await;
        api.put(PATH, held_by("other", 1));
        let led = candidate.until(false).await;
        assert!(led <= 2.0, "{led}");
        assert_eq!(holder(&api), "other");
    }

    #[tokio::test(start_paused = true)]
    async fn a_lost_answer_is_found_by_reading_the_lock() {
        let api = FakeApi::default();
        api.fail(Method::POST, "/leases", [Fault::Lost]);
        let mut candidate = Candidate::start(&api);
        let waited = candidate.until(true).await;
        assert!((12.0..13.0).contains(&waited), "renew deadline, then retry: {waited}");
        assert_eq!(api.object(PATH).expect("a lease")["spec"]["leaseTransitions"], 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_foreign_lock_is_not_released() {
        let api = FakeApi::default();
        let mut candidate = Candidate::start(&api);
        candidate.until(true).await;
        api.put(PATH, held_by("other", 1));
        candidate.stop().await;
        assert_eq!(holder(&api), "other");
    }

    #[tokio::test(start_paused = true)]
    async fn an_elector_that_panics_is_no_longer_leader() {
        let api = FakeApi::default();
        let mut candidate = Candidate::start(&api);
        candidate.until(true).await;
        api.fail(Method::PUT, PATH, [Fault::Panic]);
        let led = candidate.until(false).await;
        assert!(led <= 2.1, "{led}");
        assert!(candidate.task.await.is_err(), "which ends the process");
    }

    #[tokio::test(start_paused = true)]
    async fn an_election_that_is_ended_releases_the_lock_and_is_no_failure() {
        let (api, metrics) = (FakeApi::default(), Arc::new(Metrics::new()));
        let mut tasks = Supervisor::new(Arc::clone(&metrics));
        let lock = Lock::new("me".to_owned(), PERIODS);
        let elector = Elector::new(&api.client(), "ns".to_owned(), lock, Arc::clone(&metrics));
        let election = Election::start(Some(elector), &mut tasks);
        let mut leads = election.leads();
        leads.wait_for(|leads| *leads).await.expect("the election goes on");
        election.end().await;
        assert!(!*leads.borrow());
        assert_eq!(holder(&api), "");
        let failed = tokio::time::timeout(Duration::from_secs(1), tasks.failed()).await;
        assert!(failed.is_err(), "nothing has failed");
        let without = Election::start(None, &mut tasks);
        assert!(*without.leads().borrow());
        without.end().await;
    }

    #[tokio::test(start_paused = true)]
    async fn an_elector_that_panics_ends_the_process() {
        let (api, metrics) = (FakeApi::default(), Arc::new(Metrics::new()));
        let mut tasks = Supervisor::new(Arc::clone(&metrics));
        let lock = Lock::new("me".to_owned(), PERIODS);
        let elector = Elector::new(&api.client(), "ns".to_owned(), lock, Arc::clone(&metrics));
        let election = Election::start(Some(elector), &mut tasks);
        api.fail(Method::PUT, PATH, [Fault::Panic]);
        let error = tasks.failed().await.to_string();
        assert_eq!(error, "the background task leader-election ended unexpectedly");
        assert!(!*election.leads().borrow());
        election.end().await;
    }
}
