//! Labels and annotations that plugins read.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

use crate::selector::Labels;

/// Prefixes such as `example.com/`: labels and annotations whose key begins with one of them are
/// kept in the facts of pods and PodGroups. Without prefixes nothing is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetadataPrefixes(Arc<[&'static str]>);

impl FromIterator<&'static str> for MetadataPrefixes {
    fn from_iter<I: IntoIterator<Item = &'static str>>(prefixes: I) -> Self {
        let mut prefixes: Vec<&'static str> = prefixes.into_iter().collect();
        prefixes.sort_unstable();
        prefixes.dedup();
        Self(prefixes.into())
    }
}

impl MetadataPrefixes {
    /// The labels and annotations of an object that are kept.
    pub fn select(&self, meta: &ObjectMeta) -> Metadata {
        Metadata {
            labels: self.select_from(meta.labels.as_ref()),
            annotations: self.select_from(meta.annotations.as_ref()),
        }
    }

    fn select_from(&self, map: Option<&BTreeMap<String, String>>) -> Labels {
        if self.0.is_empty() {
            return Labels::default();
        }
        let is_kept = |key: &str| self.0.iter().any(|prefix| key.starts_with(prefix));
        map.into_iter().flatten().filter(|(key, _)| is_kept(key)).collect()
    }
}

/// The labels and annotations of an object that plugins read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Metadata {
    /// Labels.
    pub labels: Labels,
    /// Annotations.
    pub annotations: Labels,
}

impl Metadata {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.annotations.is_empty()
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
        let kept = MetadataPrefixes::from_iter(["example.com/"]).select(&meta);
        assert_eq!(kept.labels.iter().count(), 1);
        assert_eq!(kept.labels.get("example.com/tier").map(|v| &**v), Some("gold"));
        assert_eq!(kept.annotations.get("example.com/note").map(|v| &**v), Some("n"));
        assert_eq!(kept.annotations.get("example.org/note"), None);
        assert!(MetadataPrefixes::default().select(&meta).is_empty());
    }
}
