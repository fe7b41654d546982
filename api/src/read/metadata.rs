//! What all objects have: names, times, owners, labels.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube_batch_model::{
    facts::{
        ControllerRef, FactError,
        metadata::{Metadata, MetadataPrefixes},
    },
    name::{Name, ObjectKey},
};

/// Namespace and name of an object.
///
/// # Errors
///
/// [`FactError`] if there is no name.
pub fn object_key(kind: &str, meta: &ObjectMeta) -> Result<ObjectKey, FactError> {
    match meta.name.as_deref() {
        Some(name) if !name.is_empty() => {
            Ok(ObjectKey::new(meta.namespace.as_deref().unwrap_or_default(), name))
        }
        _ => Err(FactError::new(kind, "metadata.name", "is missing")),
    }
}

/// The creation time of an object; the Unix epoch if it has none.
pub(super) fn created(meta: &ObjectMeta) -> Timestamp {
    meta.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0)
}

/// The owner that controls an object.
pub(super) fn controller(meta: &ObjectMeta) -> Option<&OwnerReference> {
    meta.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))
}

/// The owner that controls an object.
pub(super) fn controlled_by(meta: &ObjectMeta) -> Option<ControllerRef> {
    controller(meta).map(|owner| ControllerRef {
        uid: Name::from(owner.uid.as_str()),
        kind: Name::from(owner.kind.as_str()),
        name: Name::from(owner.name.as_str()),
    })
}

/// A list of names.
pub(super) fn names(texts: Option<&[String]>) -> Vec<Name> {
    texts.into_iter().flatten().map(|text| Name::from(text.as_str())).collect()
}

/// The labels and annotations of an object that are kept.
pub fn selected(prefixes: &MetadataPrefixes, meta: &ObjectMeta) -> Metadata {
    Metadata {
        labels: prefixes.select(meta.labels.as_ref()),
        annotations: prefixes.select(meta.annotations.as_ref()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_prefix_names_is_kept() {
        let map = |pairs: &[(&str, &str)]| {
            Some(pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect())
        };
        let meta = ObjectMeta {
            labels: map(&[("app", "a"), ("example.com/tier", "gold")]),
            annotations: map(&[("example.com/note", "n"), ("example.org/note", "o")]),
            ..ObjectMeta::default()
        };
        let kept = selected(&MetadataPrefixes::from_iter(["example.com/"]), &meta);
        assert_eq!(kept.labels.iter().count(), 1);
        assert_eq!(kept.labels.get("example.com/tier").map(|v| &**v), Some("gold"));
        assert_eq!(kept.annotations.get("example.com/note").map(|v| &**v), Some("n"));
        assert_eq!(kept.annotations.get("example.org/note"), None);
        assert!(selected(&MetadataPrefixes::default(), &meta).is_empty());
    }
}
