//! An object that may be malformed: one of them must not end its list or watch.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube_batch_model::text::shortened;
use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::value::RawValue;

/// An object, or the metadata of a malformed one.
///
/// `kube` has the same as `DeserializeGuard`, which deserializes into a tree of values first and so
/// doubles the cost. This one keeps the text, and reads it again only if it is malformed.
#[derive(Clone, Debug)]
pub(crate) struct Guarded<K>(pub(crate) Result<K, Broken>);

/// What could be read of a malformed object.
#[derive(Clone, Debug)]
pub(crate) struct Broken {
    /// What is wrong with it.
    pub(crate) error: String,
    /// Its metadata.
    pub(crate) metadata: ObjectMeta,
}

impl<'de, K: DeserializeOwned> Deserialize<'de> for Guarded<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Head {
            metadata: ObjectMeta,
        }
        let text = <Box<RawValue>>::deserialize(deserializer)?;
        let read = serde_json::from_str(text.get()).map(Ok).or_else(|error| {
            let Head { metadata } =
                serde_json::from_str(text.get()).map_err(serde::de::Error::custom)?;
            let error = problem::<K>(text.get()).unwrap_or_else(|| error.to_string());
            // It may quote what it is about.
            let error = shortened(&error).into_owned();
            Ok(Err(Broken { error, metadata }))
        });
        read.map(Self)
    }
}

/// What is wrong with an object, and where. Tracking the path is slow, so only malformed objects are
/// read in this way.
fn problem<K: DeserializeOwned>(text: &str) -> Option<String> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let error = serde_path_to_error::deserialize::<_, K>(&mut reader).err()?;
    let message = error.inner().to_string();
    // Without the position: the text is not shown.
    let message = message.rsplit_once(" at line ").map_or(&*message, |(message, _)| message);
    Some(format!("{}: {message}", error.path()))
}

impl<K: Resource> Resource for Guarded<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(dynamic: &K::DynamicType) -> Cow<'_, str> {
        K::kind(dynamic)
    }
    fn group(dynamic: &K::DynamicType) -> Cow<'_, str> {
        K::group(dynamic)
    }
    fn version(dynamic: &K::DynamicType) -> Cow<'_, str> {
        K::version(dynamic)
    }
    fn plural(dynamic: &K::DynamicType) -> Cow<'_, str> {
        K::plural(dynamic)
    }
    fn meta(&self) -> &ObjectMeta {
        self.0.as_ref().map_or_else(|broken| &broken.metadata, K::meta)
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.0.as_mut().map_or_else(|broken| &mut broken.metadata, K::meta_mut)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use kube::core::WatchEvent;

    use super::*;

    const BROKEN: &str = r#"{"metadata":{"name":"a","namespace":"ns"},"spec":{"containers":7}}"#;

    #[test]
    fn the_name_of_an_invalid_object_is_read() {
        let guarded: Guarded<Pod> = serde_json::from_str(BROKEN).expect("a guard");
        assert_eq!(guarded.meta().name.as_deref(), Some("a"));
        let broken = guarded.0.expect_err("broken");
        assert_eq!(broken.error, "spec.containers: invalid type: integer `7`, expected a sequence");
    }

    #[test]
    fn the_event_of_an_invalid_object_is_handled() {
        let event = format!(r#"{{"type":"MODIFIED","object":{BROKEN}}}"#);
        let event: WatchEvent<Guarded<Pod>> = serde_json::from_str(&event).expect("an event");
        let WatchEvent::Modified(object) = event else { panic!("a modification") };
        assert!(object.0.is_err());
    }
}
