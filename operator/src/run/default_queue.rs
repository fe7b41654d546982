//! Creation of the default queue, in a cluster that has none.
//!
//! The leader creates it and not a manifest: `kubectl apply` looks up every kind before it sends
//! anything, so one call cannot create both the kind Queue and a queue.

use std::{sync::Arc, time::Duration};

use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, PostParams},
};
use kube_batch_api::{
    crd::{QueueSpec, v1alpha1, v1alpha2},
    name::Name,
};
use serde_json::json;
use tokio::sync::watch;
use tracing::{debug, info, warn};

use super::{
    effects::call::{WriteError, call},
    metrics::{Metrics, Write},
    scheduler_cache::SchedulerCache,
};

/// How often the cache is checked until all lists are complete.
const PERIOD: Duration = Duration::from_millis(100);
/// Pause while the API server does not serve the kind.
const ABSENT_PERIOD: Duration = Duration::from_secs(5);
/// Pause after the API server rejected the queue.
const REJECTED_PERIOD: Duration = Duration::from_secs(30);

/// Creates the queue once, when this replica leads and there is none, in either API group. If it is
/// deleted later, it is not created again.
///
/// The queue is of the older API group if that is served: v0.5.0 looks for it there, and `kubectl get
/// queues` shows that group where both are served.
pub(crate) async fn provide(
    client: Client,
    name: String,
    cache: Arc<SchedulerCache>,
    metrics: Arc<Metrics>,
    mut leads: watch::Receiver<bool>,
) {
    loop {
        if leads.wait_for(|leads| *leads).await.map(drop).is_err() {
            return;
        }
        if !cache.is_synced() {
            tokio::time::sleep(PERIOD).await;
            continue;
        }
        if cache.lock().store.queue(&Name::from(&*name)).is_some() {
            return;
        }
        match create(&client, &name, &metrics).await {
            Ok(()) => {
                info!(queue = name, "created the default queue");
                return;
            }
            // It was created meanwhile, or the answer to our own call was lost.
            Err(WriteError::Conflict(_)) => return,
            Err(WriteError::NotFound) => {
                debug!("the API server does not serve queues yet");
                tokio::time::sleep(ABSENT_PERIOD).await;
            }
            Err(WriteError::Unanswered(why)) => {
                warn!(queue = name, why, "cannot create the default queue, retrying");
            }
            Err(WriteError::Rejected(why)) => {
                warn!(queue = name, why, "the API server rejected the default queue");
                tokio::time::sleep(REJECTED_PERIOD).await;
            }
        }
    }
}

/// Creates the queue, of the first kind that the API server serves.
async fn create(client: &Client, name: &str, metrics: &Metrics) -> Result<(), WriteError> {
    let data = json!({"spec": QueueSpec { weight: 1, ..QueueSpec::default() }});
    for resource in
        [ApiResource::erase::<v1alpha1::Queue>(&()), ApiResource::erase::<v1alpha2::Queue>(&())]
    {
        let queues: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        let queue = DynamicObject::new(name, &resource).data(data.clone());
        let params = PostParams::default();
        match call(metrics, Write::Queue, || queues.create(&params, &queue)).await {
            Err(WriteError::NotFound) => {}
            created => return created.map(drop),
        }
    }
    Err(WriteError::NotFound)
}
