//! What in a pod tells why the gang that it should be in lacks pods.
//!
//! It decides nothing: messages mention it.
// Parity: see docs/parity.md#e7.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{group_version::Join, name::Name};

/// What in a pod tells why the gang that it should be in lacks pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodHints {
    /// A PodGroup that it names in the wrong place, if it names none in a right one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub misplaced_group: Option<MisplacedGroup>,
    /// The annotation because of which other pods are created only once this one has a node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exclusive_topology: Option<Name>,
}

/// The name of a PodGroup in a label that has to be an annotation, or the other way round.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MisplacedGroup {
    /// How pods name such PodGroups.
    pub join: Join,
    /// The name.
    pub name: Name,
    /// Where it is.
    pub place: MetadataPlace,
    /// The key of the label or annotation.
    pub key: Name,
}

/// A part of the metadata of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum MetadataPlace {
    /// Its labels.
    Label,
    /// Its annotations.
    Annotation,
}

impl MetadataPlace {
    /// "a label" or "an annotation".
    pub const fn with_article(self) -> &'static str {
        match self {
            Self::Label => "a label",
            Self::Annotation => "an annotation",
        }
    }

    /// The other one.
    pub const fn other(self) -> Self {
        match self {
            Self::Label => Self::Annotation,
            Self::Annotation => Self::Label,
        }
    }
}

impl fmt::Display for MetadataPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Label => "label",
            Self::Annotation => "annotation",
        })
    }
}
