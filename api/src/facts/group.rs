//! PodGroups.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

use super::{
    FactError, created,
    metadata::{Metadata, MetadataPrefixes},
    object_key,
};
use crate::{
    crd::{ApiVersion, PodGroupSpec, PodGroupStatus},
    name::{Name, ObjectKey},
};

/// The fields of a PodGroup that the scheduler uses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GroupFacts {
    /// Namespace and name.
    pub key: ObjectKey,
    /// Its uid.
    pub uid: Name,
    /// The API group it lives in.
    pub version: ApiVersion,
    /// Creation time.
    pub created: Timestamp,
    /// How many members must be placeable together; 0 is always ready.
    pub min_member: u32,
    /// The queue it names; `None` means the default queue.
    pub queue: Option<Name>,
    /// The PriorityClass it names.
    pub priority_class: Option<Name>,
    /// The labels and annotations that plugins read.
    #[serde(default, skip_serializing_if = "is_empty")]
    pub metadata: Arc<Metadata>,
    /// The version in which its status was stored; a write of the status says that it follows on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_version: Option<Name>,
    /// The status as stored.
    pub status: PodGroupStatus,
}

impl GroupFacts {
    /// Reads a PodGroup.
    ///
    /// # Errors
    ///
    /// [`FactError`] if it has no name or a negative `minMember`: skip it.
    pub fn from_parts(
        version: ApiVersion,
        meta: &ObjectMeta,
        spec: &PodGroupSpec,
        status: Option<&PodGroupStatus>,
        prefixes: &MetadataPrefixes,
    ) -> Result<Self, FactError> {
        let key = object_key("PodGroup", meta)?;
        let min_member = u32::try_from(spec.min_member).map_err(|_| {
            let problem = format!("{} is negative", spec.min_member);
            FactError::new(format!("PodGroup {key}"), "spec.minMember", problem)
        })?;
        let non_empty = |text: &str| (!text.is_empty()).then(|| Name::from(text));
        Ok(Self {
            uid: Name::from(meta.uid.as_deref().unwrap_or_default()),
            version,
            created: created(meta),
            min_member,
            queue: non_empty(&spec.queue),
            priority_class: non_empty(&spec.priority_class_name),
            metadata: Arc::new(prefixes.select(meta)),
            resource_version: meta.resource_version.as_deref().map(Name::from),
            status: status.cloned().unwrap_or_default(),
            key,
        })
    }
}

fn is_empty(metadata: &Arc<Metadata>) -> bool {
    metadata.is_empty()
}
