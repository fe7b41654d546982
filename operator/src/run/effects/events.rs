//! Events: sent once when something happens, not while it stays so.
//!
//! An event is made only when something changes, and not again at once when only numbers in its
//! text change. So there is nothing to aggregate, and kube's own aggregation, which keeps the first
//! text of a series, is not used.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Client,
    runtime::events::{Event, EventType, Recorder, Reporter},
};
use kube_batch_api::{
    crd::ApiVersion,
    decision::PodRef,
    facts::{group::GroupFacts, queue::QueueFacts},
};

/// Longest text of an event, in bytes; the API server rejects longer ones.
const MAX_TEXT_BYTES: usize = 1024;

/// An event that waits to be sent.
#[derive(Clone, Debug)]
pub(crate) struct PendingEvent {
    pub(crate) regarding: ObjectReference,
    pub(crate) type_: EventType,
    pub(crate) reason: &'static str,
    pub(crate) action: &'static str,
    pub(crate) text: String,
}

impl PendingEvent {
    pub(crate) fn normal(
        regarding: ObjectReference,
        reason: &'static str,
        action: &'static str,
        text: String,
    ) -> Self {
        Self { regarding, type_: EventType::Normal, reason, action, text }
    }

    pub(crate) fn warning(
        regarding: ObjectReference,
        reason: &'static str,
        action: &'static str,
        text: String,
    ) -> Self {
        Self { type_: EventType::Warning, ..Self::normal(regarding, reason, action, text) }
    }
}

/// Sends an event to the API server.
pub(crate) async fn publish(
    client: &Client,
    reporter: &Reporter,
    pending: &PendingEvent,
) -> kube::Result<()> {
    let event = Event {
        type_: pending.type_,
        reason: pending.reason.to_owned(),
        note: Some(cut(&pending.text).to_owned()),
        action: pending.action.to_owned(),
        secondary: None,
    };
    Recorder::new(client.clone(), reporter.clone()).publish(&event, &pending.regarding).await
}

fn cut(text: &str) -> &str {
    let mut end = text.len().min(MAX_TEXT_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// A reference to a pod.
pub(crate) fn pod_reference(pod: &PodRef) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        namespace: Some(pod.key.namespace.to_string()),
        name: Some(pod.key.name.to_string()),
        uid: Some(pod.uid.to_string()),
        ..ObjectReference::default()
    }
}

/// A reference to a PodGroup.
pub(crate) fn group_reference(group: &GroupFacts) -> ObjectReference {
    ObjectReference {
        namespace: Some(group.key.namespace.to_string()),
        ..custom(group.version, "PodGroup", &group.key.name, &group.uid)
    }
}

/// A reference to a queue.
pub(crate) fn queue_reference(queue: &QueueFacts) -> ObjectReference {
    custom(queue.version, "Queue", &queue.name, &queue.uid)
}

fn custom(version: ApiVersion, kind: &str, name: &str, uid: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some(version.to_string()),
        kind: Some(kind.to_owned()),
        name: Some(name.to_owned()),
        uid: Some(uid.to_owned()),
        ..ObjectReference::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_between_letters() {
        assert_eq!(cut("short"), "short");
        let long = "ä".repeat(1000);
        assert_eq!(cut(&long).len(), MAX_TEXT_BYTES);
        let odd = format!("x{long}");
        assert_eq!(cut(&odd).len(), MAX_TEXT_BYTES - 1);
    }
}
