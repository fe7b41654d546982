//! Labels and annotations that plugins read.

use std::{collections::BTreeMap, sync::Arc};

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
    /// Those of a map that are kept.
    pub fn select(&self, map: Option<&BTreeMap<String, String>>) -> Labels {
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
