//! The scheduler's writing side against an API server in this process, for tests.

use std::sync::Arc;

use kube::runtime::events::Reporter;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::Effects;
use crate::run::{fake_api::FakeApi, metrics::Metrics, scheduler_cache::SchedulerCache};

/// Running workers, and what they use.
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
    pub(crate) fn start() -> Self {
        let (api, metrics) = (FakeApi::default(), Arc::new(Metrics::new()));
        let cache = Arc::new(SchedulerCache::new(Default::default(), &[], Arc::clone(&metrics)));
        let reporter = Reporter { controller: "kube-batch".to_owned(), instance: None };
        let effects =
            Effects::new(api.client(), reporter, Arc::clone(&cache), Arc::clone(&metrics));
        let stop = CancellationToken::new();
        let workers = effects.start(2, &stop);
        Self { api, cache, metrics, effects, stop, workers }
    }
}
