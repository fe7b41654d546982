//! The scheduler's writing side against an API server in this process, for tests.

use std::sync::Arc;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{Effects, claim_locks::ClaimLocks, context::Context, events::Reporter};
use crate::run::{
    clock::Clock,
    fake_api::FakeApi,
    metrics::Metrics,
    scheduler_cache::SchedulerCache,
    term::{Term, Terms},
};

/// Workers, and what they use.
pub(crate) struct TestEffects {
    pub(crate) api: FakeApi,
    pub(crate) cache: Arc<SchedulerCache>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) effects: Arc<Effects>,
    /// Stops the workers.
    pub(crate) stop: CancellationToken,
    /// Aborts the workers when dropped.
    pub(crate) workers: JoinSet<()>,
}

impl TestEffects {
    /// With workers that run.
    pub(crate) fn start() -> Self {
        let mut effects = Self::idle();
        effects.workers = effects.effects.start(&effects.stop);
        effects
    }

    /// Without workers, so that writes stay in the queue.
    pub(crate) fn idle() -> Self {
        let (api, metrics) = (FakeApi::default(), Arc::new(Metrics::new()));
        let cache = Arc::new(SchedulerCache::new(Default::default(), &[], Arc::clone(&metrics)));
        let context = Context {
            client: api.client(),
            cache: Arc::clone(&cache),
            metrics: Arc::clone(&metrics),
            terms: Terms::with(Term::FOREVER),
            clock: Clock::system(),
            claim_locks: ClaimLocks::default(),
        };
        let reporter = Reporter { controller: "kube-batch".to_owned(), instance: "me".to_owned() };
        let effects = Effects::new(context, reporter, 4);
        let stop = CancellationToken::new();
        Self { api, cache, metrics, effects, stop, workers: JoinSet::new() }
    }
}
