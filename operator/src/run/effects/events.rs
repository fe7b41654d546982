//! Events: told once when something happens, never as long as it stays so.
//!
//! Whoever makes a note does so only on change, and a message that only counts differently is not
//! told again at once; so there is nothing to aggregate, and kube's own aggregation, which keeps
//! the first text of a series, is not used.

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

/// Longest text of an event, in bytes; the API server refuses longer ones.
const MAX_TEXT_BYTES: usize = 1024;

/// An event to be told.
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

/// Tells a note to the API server.
pub(crate) async fn publish(
    client: &Client,
    reporter: &Reporter,
    note: &PendingEvent,
) -> kube::Result<()> {
    let event = Event {
        type_: note.type_,
        reason: note.reason.to_owned(),
        note: Some(cut(&note.text).to_owned()),
        action: note.action.to_owned(),
        secondary: None,
    };
    Recorder::new(client.clone(), reporter.clone()).publish(&event, &note.regarding).await
}

fn cut(text: &str) -> &str {
    let mut end = text.len().min(MAX_TEXT_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// What an event about a pod refers to.
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

/// What an event about a PodGroup refers to.
pub(crate) fn group_reference(group: &GroupFacts) -> ObjectReference {
    ObjectReference {
        namespace: Some(group.key.namespace.to_string()),
        ..custom(group.version, "PodGroup", &group.key.name, &group.uid)
    }
}

/// What an event about a queue refers to.
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
