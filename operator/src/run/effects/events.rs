//! Events: sent once when something happens, not while it stays so.
//!
//! An event is made only when something changes, and not again at once when only numbers in its
//! text change. So there is nothing to aggregate, and kube's own aggregation, which keeps the first
//! text of a series, is not used.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Client,
    runtime::events::{Event as KubeEvent, EventType as KubeEventType, Recorder, Reporter},
};
use kube_batch_api::crd::ApiVersion;
use kube_batch_scheduler::writes::{Event, EventType, Regarding};

/// Longest text of an event, in bytes; the API server rejects longer ones.
const MAX_TEXT_BYTES: usize = 1024;

/// Sends an event to the API server.
pub(crate) async fn publish(
    client: &Client,
    reporter: &Reporter,
    event: &Event,
) -> kube::Result<()> {
    let regarding = reference(&event.regarding);
    let event = KubeEvent {
        type_: match event.type_ {
            EventType::Normal => KubeEventType::Normal,
            EventType::Warning => KubeEventType::Warning,
        },
        reason: event.reason.to_owned(),
        note: Some(cut(&event.message).to_owned()),
        action: event.action.to_owned(),
        secondary: None,
    };
    Recorder::new(client.clone(), reporter.clone()).publish(&event, &regarding).await
}

fn cut(text: &str) -> &str {
    let mut end = text.len().min(MAX_TEXT_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

fn reference(regarding: &Regarding) -> ObjectReference {
    match regarding {
        Regarding::Pod(pod) => ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            namespace: Some(pod.key.namespace.to_string()),
            name: Some(pod.key.name.to_string()),
            uid: Some(pod.uid.to_string()),
            ..ObjectReference::default()
        },
        Regarding::Group(group) => ObjectReference {
            namespace: Some(group.key.namespace.to_string()),
            ..custom(group.version, "PodGroup", &group.key.name, &group.uid)
        },
        Regarding::Queue(queue) => custom(queue.version, "Queue", &queue.name, &queue.uid),
    }
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
