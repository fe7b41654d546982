//! Events: sent once when something happens, not while it stays so.
//!
//! An event is made only when something changes, and not again when only numbers in its text change. So
//! there is nothing to aggregate, and kube's own aggregation, which keeps the first text of a series,
//! is not used.

use jiff::Timestamp;
use k8s_openapi::{
    api::{core::v1::ObjectReference, events::v1::Event as KubeEvent},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use kube_batch_model::{
    group_version::GroupVersion,
    text::{cut, shortened},
};
use kube_batch_scheduler::writes::{Event, EventType, Regarding};

/// Longest part of an event's name that is the name of its object; with the time it is a valid name.
const MAX_NAME_BYTES: usize = 200;
/// The namespace of events about objects without one.
const DEFAULT_NAMESPACE: &str = "default";

/// Who reports an event.
#[derive(Clone, Debug)]
pub(crate) struct Reporter {
    /// The name of the scheduler.
    pub(crate) controller: String,
    /// The identity of this process.
    pub(crate) instance: String,
}

/// An event as the API server stores it. `number` makes its name different from that of another event
/// about the same object at the same time.
pub(crate) fn object(reporter: &Reporter, event: &Event, now: Timestamp, number: u64) -> KubeEvent {
    let regarding = reference(&event.regarding);
    let name = regarding.name.as_deref().unwrap_or_default();
    let name = cut(name, MAX_NAME_BYTES).trim_end_matches('.');
    let type_ = match event.type_ {
        EventType::Normal => "Normal",
        EventType::Warning => "Warning",
    };
    KubeEvent {
        metadata: ObjectMeta {
            name: Some(format!("{name}.{:x}{number:x}", now.as_nanosecond())),
            namespace: Some(namespace(&regarding).to_owned()),
            ..ObjectMeta::default()
        },
        action: Some(event.action.to_owned()),
        event_time: Some(MicroTime(now)),
        note: Some(shortened(&event.message).into_owned()),
        reason: Some(event.reason.to_owned()),
        regarding: Some(regarding),
        related: event.related.as_ref().map(reference),
        reporting_controller: Some(reporter.controller.clone()),
        reporting_instance: Some(reporter.instance.clone()),
        type_: Some(type_.to_owned()),
        ..KubeEvent::default()
    }
}

fn namespace(regarding: &ObjectReference) -> &str {
    regarding.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE)
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

fn custom(version: GroupVersion, kind: &str, name: &str, uid: &str) -> ObjectReference {
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
    use kube_batch_model::{
        decision::PodRef,
        name::{ObjectKey, is_dns_subdomain},
    };

    use super::*;

    #[test]
    fn the_name_of_an_event_is_valid_and_used_once() {
        let reporter = Reporter { controller: "c".to_owned(), instance: "i".to_owned() };
        let name = |pod: &str, number| {
            let pod = PodRef { uid: "u".into(), key: ObjectKey::new("ns", pod) };
            let event = Event {
                regarding: Regarding::Pod(pod),
                related: None,
                type_: EventType::Normal,
                reason: "Reason",
                action: "Acting",
                message: "text".to_owned(),
            };
            let event = object(&reporter, &event, Timestamp::now(), number);
            event.metadata.name.expect("a name")
        };
        let long = format!("{}.{}", "a".repeat(199), "b".repeat(53));
        for pod in ["a", &long] {
            assert!(is_dns_subdomain(&name(pod, u64::MAX)), "{pod}");
            assert_ne!(name(pod, 1), name(pod, 2));
        }
    }
}
