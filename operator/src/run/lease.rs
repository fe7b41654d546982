//! Leader election over a Lease: who decides, and until when.
//!
//! A replica leads while it renews. It stops deciding when it could not renew for the renew
//! deadline, which is before the lease ends for anybody else. Time is that of this machine's
//! monotonic clock: when the lock last changed is when it was last *seen* to change, so clocks that
//! jump or differ cannot make two leaders.
//!
//! Parity: v0.5.0 holds a ConfigMap; see docs/parity.md#x2.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use kube::{Api, Client, api::PostParams};
use tokio::{sync::watch, task::JoinHandle, time::Instant};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::metrics::{Metrics, Write, Written};
use crate::args::RunArgs;

/// Name of the lock.
const NAME: &str = "kube-batch";

/// How long giving the lock back may take at the end.
const RELEASE_DEADLINE: Duration = Duration::from_secs(5);

/// This replica's part in the election. Without election it leads from the start to the end.
pub(crate) struct Election {
    leads: watch::Sender<bool>,
    elector: Option<JoinHandle<()>>,
    stop: CancellationToken,
}

impl Election {
    pub(crate) fn start(
        args: &RunArgs,
        client: &Client,
        identity: &str,
        metrics: &Arc<Metrics>,
    ) -> Self {
        let leads = watch::Sender::new(!args.leader_elect);
        let stop = CancellationToken::new();
        let elector = args.leader_elect.then(|| {
            let namespace = args.lock_object_namespace.clone();
            let elector = Elector {
                leases: Api::namespaced(client.clone(), &namespace),
                namespace,
                identity: identity.to_owned(),
                periods: Periods {
                    lease: args.lease_duration,
                    renew_deadline: args.renew_deadline,
                    retry: args.retry_period,
                },
                metrics: Arc::clone(metrics),
                seen: None,
            };
            tokio::spawn(elector.run(leads.clone(), stop.clone()))
        });
        Self { leads, elector, stop }
    }

    /// Whether this replica leads, now and later.
    pub(crate) fn leads(&self) -> watch::Receiver<bool> {
        self.leads.subscribe()
    }

    /// Gives the lock back.
    pub(crate) async fn end(self) {
        self.stop.cancel();
        if let Some(elector) = self.elector
            && tokio::time::timeout(RELEASE_DEADLINE, elector).await.is_err()
        {
            warn!("the lease could not be given back in time, it runs out by itself");
        }
    }
}

/// Periods of leader election.
struct Periods {
    /// After so long without renewal anybody may take the lock.
    lease: Duration,
    /// After so long without renewal the leader stops.
    renew_deadline: Duration,
    /// The lock is tried or renewed this often.
    retry: Duration,
}

/// A replica that wants to lead.
struct Elector {
    leases: Api<Lease>,
    namespace: String,
    identity: String,
    periods: Periods,
    metrics: Arc<Metrics>,
    /// The lock as last seen, and when it was first seen so.
    seen: Option<(LeaseSpec, Instant)>,
}

impl Elector {
    /// Takes the lock when it is free and keeps it, and says in `leads` whether it is held; until
    /// `stop` is cancelled, then it is given back.
    async fn run(mut self, leads: watch::Sender<bool>, stop: CancellationToken) {
        while !stop.is_cancelled() {
            if stop.run_until_cancelled(self.acquire()).await.is_none() {
                break;
            }
            info!(identity = self.identity, "this replica leads");
            leads.send_replace(true);
            let lost = stop.run_until_cancelled(self.keep()).await;
            leads.send_replace(false);
            match lost {
                Some(why) => warn!(why, "the lease is lost, this replica stops deciding"),
                None => self.release().await,
            }
        }
    }

    async fn acquire(&mut self) {
        loop {
            match self.try_to_hold().await {
                Ok(true) => return,
                Ok(false) => {}
                Err(error) => warn!(
                    namespace = self.namespace,
                    error = super::watch::cause(&error),
                    "cannot try for the lease"
                ),
            }
            tokio::time::sleep(self.periods.retry).await;
        }
    }

    /// Renews until that fails for too long, and says why.
    async fn keep(&mut self) -> String {
        let mut renewed = Instant::now();
        loop {
            tokio::time::sleep(self.periods.retry).await;
            let deadline = renewed + self.periods.renew_deadline;
            match tokio::time::timeout_at(deadline, self.try_to_hold()).await {
                Ok(Ok(true)) => renewed = Instant::now(),
                Ok(Ok(false)) => return "somebody else holds it".to_owned(),
                Ok(Err(error)) if Instant::now() >= deadline => {
                    return super::watch::cause(&error);
                }
                Ok(Err(error)) => {
                    warn!(
                        error = super::watch::cause(&error),
                        "cannot renew the lease, trying again"
                    );
                }
                Err(_) => return "no answer within the renew deadline".to_owned(),
            }
        }
    }

    /// Takes or renews the lock; says whether it is held.
    async fn try_to_hold(&mut self) -> kube::Result<bool> {
        let Some(mut lease) = self.leases.get_opt(NAME).await? else {
            let metadata = ObjectMeta { name: Some(NAME.to_owned()), ..ObjectMeta::default() };
            let lease = Lease { metadata, spec: Some(self.record(None)) };
            return self.write(self.leases.create(&PostParams::default(), &lease).await);
        };
        let spec = lease.spec.take().unwrap_or_default();
        if !self.may_take(&spec) {
            return Ok(false);
        }
        lease.spec = Some(self.record(Some(&spec)));
        // The resource version it was read at is in it, so of two that write one is refused.
        self.write(self.leases.replace(NAME, &PostParams::default(), &lease).await)
    }

    fn write(&mut self, written: kube::Result<Lease>) -> kube::Result<bool> {
        let (result, held) = match written {
            Ok(lease) => {
                self.see(&lease.spec.unwrap_or_default());
                ("done", Ok(true))
            }
            Err(kube::Error::Api(status)) if status.code == 409 => ("conflict", Ok(false)),
            Err(error) => ("failed", Err(error)),
        };
        self.metrics.writes.get_or_create(&Written { write: Write::Lease, result }).inc();
        held
    }

    fn see(&mut self, spec: &LeaseSpec) {
        if self.seen.as_ref().is_none_or(|(seen, _)| seen != spec) {
            self.seen = Some((spec.clone(), Instant::now()));
        }
    }

    /// Whether the lock is ours, or nobody's.
    fn may_take(&mut self, spec: &LeaseSpec) -> bool {
        self.see(spec);
        let holder = spec.holder_identity.as_deref().unwrap_or_default();
        let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        let lease = seconds.map_or(self.periods.lease, Duration::from_secs);
        holder.is_empty()
            || holder == self.identity
            || self.seen.as_ref().is_some_and(|(_, since)| since.elapsed() > lease)
    }

    fn record(&self, last: Option<&LeaseSpec>) -> LeaseSpec {
        let now = MicroTime(Timestamp::now());
        let is_ours =
            |spec: &&LeaseSpec| spec.holder_identity.as_deref() == Some(self.identity.as_str());
        let ours = last.filter(is_ours);
        let transitions = last.and_then(|spec| spec.lease_transitions).unwrap_or(0);
        LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: i32::try_from(self.periods.lease.as_secs().max(1)).ok(),
            acquire_time: ours.and_then(|spec| spec.acquire_time.clone()).or(Some(now.clone())),
            renew_time: Some(now),
            lease_transitions: Some(match (last, ours) {
                (Some(_), None) => transitions + 1,
                (_, _) => transitions,
            }),
            ..LeaseSpec::default()
        }
    }

    /// Lets the next one take it at once.
    async fn release(&mut self) {
        let held = match self.leases.get_opt(NAME).await {
            Ok(Some(lease)) => lease,
            Ok(None) | Err(_) => return,
        };
        let is_ours = held
            .spec
            .as_ref()
            .is_some_and(|spec| spec.holder_identity.as_deref() == Some(self.identity.as_str()));
        if !is_ours {
            return;
        }
        let mut lease = held;
        if let Some(spec) = &mut lease.spec {
            spec.holder_identity = Some(String::new());
            spec.lease_duration_seconds = Some(1);
            spec.renew_time = Some(MicroTime(Timestamp::now()));
        }
        match self.leases.replace(NAME, &PostParams::default(), &lease).await {
            Ok(_) => info!("the lease is given back"),
            Err(error) => warn!(error = super::watch::cause(&error), "cannot give the lease back"),
        }
    }
}
