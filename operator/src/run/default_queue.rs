//! Creation of the default queue, in a cluster that has none.
//!
//! The leader creates it and not a manifest: `kubectl apply` looks up every kind before it sends
//! anything, so one call cannot create both the kind Queue and a queue.

use std::{sync::Arc, time::Duration};

use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, PostParams},
};
use kube_batch_api::crd::{QueueSpec, v1alpha1, v1alpha2};
use kube_batch_model::name::Name;
use serde_json::json;
use tracing::{debug, info, warn};

use super::{
    effects::call::{WriteError, call},
    metrics::{Metrics, Write},
    scheduler_cache::SchedulerCache,
    term::Terms,
};

/// How often the cache is checked until all lists are complete.
const PERIOD: Duration = Duration::from_millis(100);
/// How long cycles wait for the watch to show the queue.
const SHOWN_PERIOD: Duration = Duration::from_secs(1);
/// Pause while the API server does not serve the kind.
const ABSENT_PERIOD: Duration = Duration::from_secs(5);
/// Pause after the API server did not answer.
const FAILED_PERIOD: Duration = Duration::from_secs(1);
/// Pause after the API server rejected the queue.
const REJECTED_PERIOD: Duration = Duration::from_secs(30);

/// Creates the queue once, when this replica leads and there is none, in either API group. If it is
/// deleted later, it is not created again.
///
/// No cycle runs before the first attempt has ended: it would only say of every pod that its queue does not
/// exist. The caller has called [`SchedulerCache::await_queue`].
///
/// The queue is of the newer API group, or of the older one where only that is served.
pub(crate) async fn provide(
    client: Client,
    name: Name,
    cache: Arc<SchedulerCache>,
    metrics: Arc<Metrics>,
    terms: Terms,
) {
    loop {
        if terms.number().is_none() {
            terms.changed_from(None).await;
        }
        if !cache.is_synced() {
            tokio::time::sleep(PERIOD).await;
            continue;
        }
        if cache.lock().store.queue(&name).is_some() {
            return;
        }
        let created = create(&client, &name, &terms, &metrics).await;
        // From now on a cycle may say that the queue does not exist.
        if !matches!(created, Ok(()) | Err(WriteError::Conflict(_) | WriteError::NotLeading)) {
            cache.await_queue(None);
        }
        match created {
            Ok(()) => {
                info!(queue = &*name, "created the default queue");
                break;
            }
            // It was created meanwhile, or the answer to our own call was lost.
            Err(WriteError::Conflict(_)) => break,
            Err(WriteError::NotFound) => {
                debug!("the API server does not serve queues yet");
                tokio::time::sleep(ABSENT_PERIOD).await;
            }
            Err(WriteError::Passing { why, .. }) => {
                warn!(queue = &*name, why, "cannot create the default queue, retrying");
                tokio::time::sleep(FAILED_PERIOD).await;
            }
            Err(WriteError::NotLeading) => tokio::time::sleep(PERIOD).await,
            Err(WriteError::Rejected(why) | WriteError::Forbidden(why)) => {
                warn!(queue = &*name, why, "the API server rejected the default queue");
                tokio::time::sleep(REJECTED_PERIOD).await;
            }
        }
    }
    // The watch shows it at once, unless it was deleted since.
    tokio::time::sleep(SHOWN_PERIOD).await;
    cache.await_queue(None);
}

/// Creates the queue, of the first kind that the API server serves.
async fn create(
    client: &Client,
    name: &str,
    terms: &Terms,
    metrics: &Metrics,
) -> Result<(), WriteError> {
    let data = json!({"spec": QueueSpec { weight: 1, ..QueueSpec::default() }});
    for resource in
        [ApiResource::erase::<v1alpha2::Queue>(&()), ApiResource::erase::<v1alpha1::Queue>(&())]
    {
        let queues: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        let queue = DynamicObject::new(name, &resource).data(data.clone());
        let params = PostParams::default();
        let request = queues.create(&params, &queue);
        match call(terms, metrics, Write::Queue, request).await {
            Err(WriteError::NotFound) => {}
            created => return created.map(drop),
        }
    }
    Err(WriteError::NotFound)
}

#[cfg(test)]
mod tests {
    use http::Method;
    use kube_batch_api::{dialect::RawObject, kind::ApplyObject as _};
    use kube_batch_model::group_version::GroupVersion;
    use tokio::{task::JoinHandle, time::Instant};

    use super::*;
    use crate::run::{
        fake_api::{FakeApi, Fault},
        term::Term,
    };

    const OLDER: &str = "/apis/scheduling.incubator.k8s.io/v1alpha1/queues";
    const NEWER: &str = "/apis/scheduling.sigs.dev/v1alpha2/queues";

    struct World {
        api: FakeApi,
        cache: Arc<SchedulerCache>,
        terms: Terms,
        task: JoinHandle<()>,
    }

    impl World {
        fn new(kinds: &[&'static str]) -> Self {
            let (api, metrics) = (FakeApi::default(), Arc::new(Metrics::new()));
            let cache =
                Arc::new(SchedulerCache::new(Default::default(), kinds, Arc::clone(&metrics)));
            let terms = Terms::with(Term::FOREVER);
            let (shared, receiver) = (Arc::clone(&cache), terms.clone());
            cache.await_queue(Some("q".into()));
            let task = provide(api.client(), Name::from("q"), shared, metrics, receiver);
            Self { api, cache, terms, task: tokio::spawn(task) }
        }

        /// Waits until the task is done, and returns how many seconds that took and where it sent
        /// the queue.
        async fn done(self) -> (u64, Vec<String>) {
            let started = Instant::now();
            tokio::time::timeout(Duration::from_secs(300), self.task)
                .await
                .expect("it returns in time")
                .expect("it does not panic");
            let sent = self.api.sent().into_iter().map(|sent| sent.path).collect();
            (started.elapsed().as_secs(), sent)
        }
    }

    fn store_queue(cache: &SchedulerCache) {
        let queue = json!({"metadata": {"name": "q", "uid": "q"}, "spec": {}});
        let queue: v1alpha2::Queue = serde_json::from_value(queue).expect("a queue");
        let store = &mut cache.lock().store;
        store
            .apply_queue(GroupVersion::V1Alpha2, &RawObject::new(&queue.metadata, &queue.spec))
            .expect("facts of a queue");
    }

    #[tokio::test(flavor = "local", start_paused = true)]
    async fn the_queue_is_created_in_the_first_api_group_that_is_served() {
        assert_eq!(World::new(&[]).done().await, (1, vec![NEWER.to_owned()]));
        let world = World::new(&[]);
        world.api.fail_always(Method::POST, NEWER, Fault::Status(404));
        let api = world.api.clone();
        assert_eq!(world.done().await, (1, vec![NEWER.to_owned(), OLDER.to_owned()]));
        let queue = api.object(&format!("{OLDER}/q")).expect("the queue");
        assert_eq!(queue["spec"]["weight"], 1);
    }

    #[tokio::test(flavor = "local", start_paused = true)]
    async fn nothing_is_created_before_this_replica_leads_and_every_list_is_complete() {
        let world = World::new(&["nodes"]);
        world.terms.set(None);
        tokio::time::sleep(Duration::from_secs(10)).await;
        world.cache.set_synced("nodes", Some(1));
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert!(world.api.sent().is_empty());
        world.terms.set(Some(Term::FOREVER));
        assert_eq!(world.done().await, (1, vec![NEWER.to_owned()]));
    }

    #[tokio::test(flavor = "local", start_paused = true)]
    async fn an_existing_queue_is_not_changed() {
        let world = World::new(&["queues"]);
        store_queue(&world.cache);
        world.cache.set_synced("queues", Some(1));
        assert_eq!(world.done().await, (0, vec![]));
    }

    #[tokio::test(flavor = "local", start_paused = true)]
    async fn cycles_wait_for_the_queue_but_not_for_another_attempt() {
        let world = World::new(&[]);
        assert!(!world.cache.is_ready());
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert!(!world.cache.is_ready(), "it is created, and not shown");
        store_queue(&world.cache);
        assert!(world.cache.is_ready());
        let world = World::new(&[]);
        tokio::time::sleep(SHOWN_PERIOD + PERIOD).await;
        assert!(world.cache.is_ready(), "it was deleted before it was shown");
        let world = World::new(&[]);
        world.api.fail(Method::POST, "/queues", vec![Fault::Status(403)]);
        tokio::time::sleep(PERIOD).await;
        assert!(world.cache.is_ready(), "the API server rejected it");
    }

    #[tokio::test(flavor = "local", start_paused = true)]
    async fn a_failure_is_retried_and_a_conflict_is_not() {
        for (faults, seconds, n_sent) in [
            (vec![Fault::Status(409)], 1, 1),
            (vec![Fault::Lost], 7, 2),
            (vec![Fault::Status(403)], 31, 2),
            (vec![Fault::Status(404), Fault::Status(404)], 6, 3),
        ] {
            let world = World::new(&[]);
            world.api.fail(Method::POST, "/queues", faults.clone());
            let (took, sent) = world.done().await;
            assert_eq!((took, sent.len()), (seconds, n_sent), "{faults:?}");
        }
    }
}
