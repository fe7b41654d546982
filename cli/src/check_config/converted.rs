//! A configuration to be written, with its keys in a readable order.

use serde::{Serialize, Serializer, ser::SerializeMap};
use serde_json::Value;

/// A configuration in the format of `run`.
#[derive(Serialize)]
pub(super) struct File {
    pub(super) actions: String,
    pub(super) tiers: Vec<ConvertedTier>,
}

#[derive(Serialize)]
pub(super) struct ConvertedTier {
    pub(super) plugins: Vec<ConvertedPlugin>,
}

pub(super) struct ConvertedPlugin {
    pub(super) name: String,
    pub(super) switches: Vec<(String, bool)>,
    pub(super) arguments: Vec<(String, Value)>,
}

impl File {
    /// The text of the file.
    pub(super) fn to_yaml(&self) -> String {
        serde_saphyr::to_string(self).expect("every key is text")
    }
}

impl Serialize for ConvertedPlugin {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut plugin = serializer.serialize_map(None)?;
        plugin.serialize_entry("name", &self.name)?;
        for (key, value) in &self.switches {
            plugin.serialize_entry(key, value)?;
        }
        if !self.arguments.is_empty() {
            plugin.serialize_entry("arguments", &InOrder(&self.arguments))?;
        }
        plugin.end()
    }
}

/// A mapping whose keys keep their order.
struct InOrder<'a>(&'a [(String, Value)]);

impl Serialize for InOrder<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(key, value)| (key, value)))
    }
}
