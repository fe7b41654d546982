//! What in a pod tells why the gang that it should be in lacks pods.
//!
//! It decides nothing: messages mention it.
// Parity: see docs/parity.md#e7.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

use crate::{
    api_version::Join,
    membership::GROUP_ANNOTATION,
    name::{Name, is_dns_subdomain},
};

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

/// Where users write the name of a PodGroup by mistake.
const MISPLACED: [(MetadataPlace, &str, Join); 3] = [
    (MetadataPlace::Label, GROUP_ANNOTATION, Join::Annotation),
    (MetadataPlace::Label, "scheduling.volcano.sh/group-name", Join::Annotation),
    (MetadataPlace::Annotation, "scheduling.x-k8s.io/pod-group", Join::Label),
];

/// With this annotation, the webhook of JobSet rejects all pods of a Job but the first until that has a node.
const EXCLUSIVE_JOBSET: &str = "alpha.jobset.sigs.k8s.io/exclusive-topology";
/// With this one beside it, it does not.
const NODE_SELECTOR_JOBSET: &str = "alpha.jobset.sigs.k8s.io/node-selector";
/// With this annotation, LeaderWorkerSet creates the workers of a group once its leader has a node.
const EXCLUSIVE_LWS: &str = "leaderworkerset.sigs.k8s.io/exclusive-topology";

impl PodHints {
    /// Reads them; `None` if there are none. `has_group`: whether the pod names a PodGroup.
    pub(super) fn of(meta: &ObjectMeta, has_group: bool) -> Option<Self> {
        let misplaced_group = if has_group { None } else { misplaced_group(meta) };
        let found = Self { misplaced_group, exclusive_topology: exclusive_topology(meta) };
        (found != Self::default()).then_some(found)
    }
}

fn misplaced_group(meta: &ObjectMeta) -> Option<MisplacedGroup> {
    MISPLACED.iter().find_map(|(place, key, join)| {
        let map = match place {
            MetadataPlace::Label => meta.labels.as_ref(),
            MetadataPlace::Annotation => meta.annotations.as_ref(),
        };
        let name = map?.get(*key).filter(|name| is_dns_subdomain(name))?;
        let (name, key) = (Name::from(name.as_str()), Name::from(*key));
        Some(MisplacedGroup { join: *join, name, place: *place, key })
    })
}

fn exclusive_topology(meta: &ObjectMeta) -> Option<Name> {
    let annotations = meta.annotations.as_ref()?;
    let has = |key: &str| annotations.contains_key(key);
    let key = match () {
        () if has(EXCLUSIVE_JOBSET) && !has(NODE_SELECTOR_JOBSET) => EXCLUSIVE_JOBSET,
        () if has(EXCLUSIVE_LWS) => EXCLUSIVE_LWS,
        () => return None,
    };
    Some(Name::from(key))
}
