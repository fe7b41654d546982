//! The topology that a PodGroup, or pods without one, ask for.
// Parity: new, see docs/parity.md#t1.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::name::Name;

/// Annotation: the level of which all pods must be in one domain.
pub const TOPOLOGY_REQUIRED: &str = "scheduling.sigs.dev/topology-required";
/// Annotation: the level of which all pods should be in one domain.
pub const TOPOLOGY_PREFERRED: &str = "scheduling.sigs.dev/topology-preferred";

/// A level of the topology. Its domains are sets of nodes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum TopologyLevel {
    /// The nodes with one value of this label are a domain.
    Label(Name),
    /// A level of the configuration: 1 is the narrowest above single nodes, as in Volcano.
    Tier(u32),
}

impl TopologyLevel {
    /// How messages name it.
    pub fn name(&self) -> Name {
        match self {
            Self::Label(key) => key.clone(),
            Self::Tier(tier) => Name::from(format!("tier {tier}")),
        }
    }
}

/// The levels that a PodGroup, or pods without one, name.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopologyFacts {
    /// All pods must be in one domain of this level.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub required: Option<TopologyLevel>,
    /// All pods should be in one domain of this level, or else of one of the next broader levels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred: Option<TopologyLevel>,
}

impl TopologyFacts {
    /// All pods must be in one domain of this label.
    pub const fn required(key: Name) -> Self {
        Self { required: Some(TopologyLevel::Label(key)), preferred: None }
    }

    /// Reads the annotations of a pod or a PodGroup; `None` if there are none.
    pub fn of_annotations(annotations: Option<&BTreeMap<String, String>>) -> Option<Self> {
        let level = |key| {
            let value = annotations.and_then(|all| all.get(key));
            let value = value.filter(|value| !value.is_empty());
            value.map(|value| TopologyLevel::Label(Name::from(value.as_str())))
        };
        let found =
            Self { required: level(TOPOLOGY_REQUIRED), preferred: level(TOPOLOGY_PREFERRED) };
        (found != Self::default()).then_some(found)
    }
}
