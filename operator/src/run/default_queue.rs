//! The default queue of a cluster that has none.
//!
//! It is made by the leader and not by a manifest: `kubectl apply` looks up every kind before it
//! sends anything, so that no single call could make the kind Queue and a queue of it.

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

/// How often it is looked at until all lists are complete.
const PERIOD: Duration = Duration::from_millis(100);
/// The same, where the server does not know the kind.
const ABSENT_PERIOD: Duration = Duration::from_secs(5);
/// The same, where it is not for now that the server does not take it.
const REJECTED_PERIOD: Duration = Duration::from_secs(30);

/// Makes the queue once, when this replica leads and knows that there is none, of either API group.
/// Whoever deletes it later wants it gone.
///
/// It is of the older group, if the server knows that: there v0.5.0 looked for it, and `kubectl get
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
        match make(&client, &name, &metrics).await {
            Ok(()) => {
                info!(queue = name, "there was no default queue: it is made");
                return;
            }
            // Somebody else was faster, or an answer was lost.
            Err(WriteError::Conflict(_)) => return,
            Err(WriteError::NotFound) => {
                debug!("the server does not serve queues yet");
                tokio::time::sleep(ABSENT_PERIOD).await;
            }
            Err(WriteError::Unanswered(why)) => {
                warn!(queue = name, why, "cannot make the default queue, trying again");
            }
            Err(WriteError::Rejected(why)) => {
                warn!(queue = name, why, "the server will not have the default queue");
                tokio::time::sleep(REJECTED_PERIOD).await;
            }
        }
    }
}

/// Makes the queue, of the first kind that the server knows.
async fn make(client: &Client, name: &str, metrics: &Metrics) -> Result<(), WriteError> {
    let data = json!({"spec": QueueSpec { weight: 1, ..QueueSpec::default() }});
    for resource in
        [ApiResource::erase::<v1alpha1::Queue>(&()), ApiResource::erase::<v1alpha2::Queue>(&())]
    {
        let queues: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        let queue = DynamicObject::new(name, &resource).data(data.clone());
        let params = PostParams::default();
        match call(metrics, Write::Queue, || queues.create(&params, &queue)).await {
            Err(WriteError::NotFound) => {}
            made => return made.map(drop),
        }
    }
    Err(WriteError::NotFound)
}
