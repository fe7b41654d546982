//! Where objects name their queue and their PriorityClass.
//!
//! The scheduler reads the names by this table, and `cargo xtask codegen` generates the admission policy from
//! it, which checks whether a user may use what is named. What is specific to the PodGroups of one API is in
//! its [`DialectSpec`](crate::dialect::DialectSpec).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use kube_batch_model::membership::QUEUE_LABEL;

/// A place in an object that may name something. An empty text names nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// The field of this name in the spec.
    Spec(&'static str),
    /// The label with this key, or else, if that is absent or empty, the annotation with the same key.
    Metadata(&'static str),
}

impl Field {
    /// Reads it. `spec` is `None` for kinds whose spec has no such fields.
    pub fn read<'a>(self, meta: &'a ObjectMeta, spec: Option<&'a Value>) -> Option<&'a str> {
        let is_named = |name: &&str| !name.is_empty();
        match self {
            Self::Spec(field) => spec?.get(field)?.as_str().filter(is_named),
            Self::Metadata(key) => {
                let maps = [&meta.labels, &meta.annotations].into_iter().flatten();
                maps.filter_map(|map| map.get(key)).map(String::as_str).find(is_named)
            }
        }
    }
}

/// Where an object names the PriorityClass that it may use, and who looks that up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// It names none, or the policy leaves it to others who may use it.
    Unchecked,
    /// The scheduler looks it up.
    Name(Field),
    /// The API server looks it up, and writes its priority into the spec, where the scheduler reads it.
    Resolved(Field),
}

impl Class {
    /// The place, if the policy checks it.
    pub const fn field(self) -> Option<Field> {
        match self {
            Self::Unchecked => None,
            Self::Name(field) | Self::Resolved(field) => Some(field),
        }
    }

    /// The name of the class that the scheduler looks up.
    pub fn read<'a>(self, meta: &'a ObjectMeta, spec: Option<&'a Value>) -> Option<&'a str> {
        match self {
            Self::Unchecked | Self::Resolved(_) => None,
            Self::Name(field) => field.read(meta, spec),
        }
    }
}

/// Where the objects of a kind name their queue and their PriorityClass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Naming {
    /// The queue.
    pub queue: Field,
    /// The PriorityClass.
    pub class: Class,
}

/// The place of the queue in objects without a field for it.
pub const QUEUE_IN_METADATA: Field = Field::Metadata(QUEUE_LABEL);

/// A PodGroup of an API with fields for both.
pub(crate) const IN_SPEC: Naming =
    Naming { queue: Field::Spec("queue"), class: Class::Name(PRIORITY_CLASS) };

/// The field of the PriorityClass, in every API that has one.
pub(crate) const PRIORITY_CLASS: Field = Field::Spec("priorityClassName");

/// Composite PodGroups, `scheduling.k8s.io/v1alpha3`.
pub const COMPOSITE: Naming =
    Naming { queue: QUEUE_IN_METADATA, class: Class::Resolved(PRIORITY_CLASS) };

/// Pods. A ResourceQuota restricts their PriorityClasses.
pub const POD: Naming = Naming { queue: QUEUE_IN_METADATA, class: Class::Unchecked };

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_empty_label_names_no_queue_but_the_annotation_does() {
        let read = |label: Option<&str>, annotation: Option<&str>| {
            let map = |value: Option<&str>| {
                value.map(|value| [(QUEUE_LABEL.to_owned(), value.to_owned())].into())
            };
            let meta = ObjectMeta {
                labels: map(label),
                annotations: map(annotation),
                ..ObjectMeta::default()
            };
            QUEUE_IN_METADATA.read(&meta, None).map(str::to_owned)
        };
        assert_eq!(read(Some("a"), Some("b")).as_deref(), Some("a"));
        assert_eq!(read(Some(""), Some("b")).as_deref(), Some("b"));
        assert_eq!(read(None, Some("b")).as_deref(), Some("b"));
        assert_eq!(read(Some(""), Some("")), None);
        assert_eq!(read(None, None), None);
    }

    #[test]
    fn a_field_that_is_null_or_empty_names_nothing() {
        let meta = ObjectMeta::default();
        let read = |spec: Value| IN_SPEC.queue.read(&meta, Some(&spec)).map(str::to_owned);
        assert_eq!(read(json!({"queue": "a"})).as_deref(), Some("a"));
        for spec in [json!({"queue": ""}), json!({"queue": null}), json!({}), Value::Null] {
            assert_eq!(read(spec), None);
        }
    }
}
