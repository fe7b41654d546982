//! What a dialect defines.

use serde_json::{Value, json};

use super::object::RawObject;
use crate::naming::Naming;
use kube_batch_model::{
    facts::{FactError, group::GroupFacts, metadata::MetadataPrefixes, queue::QueueFacts},
    object_status::PodGroupStatus,
};

/// The description of a dialect.
pub struct DialectSpec {
    /// The resource of its PodGroups: plural and API group, as in RBAC and `kubectl`.
    pub groups: &'static str,
    /// The resource of its queues, if it has any.
    pub queues: Option<&'static str>,
    /// Where its PodGroups name their queue and their PriorityClass.
    pub naming: Naming,
    /// How the status of PodGroups is written.
    pub patch: Patch,
    /// How its objects are read, and how their status is written.
    pub dialect: &'static dyn Dialect,
}

/// How the status of PodGroups is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patch {
    /// To the subresource, as a merge patch. Conditions are replaced as a whole, so the patch names the
    /// version that it was made for.
    Status,
    /// To the subresource, as a strategic merge patch, which merges conditions by type.
    StatusByType,
    /// To the object, as a merge patch: there is no subresource.
    Object,
}

/// How the objects of one API are read, and how their status is written.
pub trait Dialect: Sync {
    /// Reads a PodGroup.
    ///
    /// # Errors
    ///
    /// [`FactError`] if a field that the scheduler uses cannot be read: skip the object.
    fn read_group(
        &self,
        object: &RawObject,
        prefixes: &MetadataPrefixes,
    ) -> Result<GroupFacts, FactError>;

    /// Reads a queue. Called only for a dialect that has queues.
    ///
    /// # Errors
    ///
    /// [`FactError`] if a field that the scheduler uses cannot be read: skip the object.
    fn read_queue(&self, object: &RawObject) -> Result<QueueFacts, FactError>;

    /// The fields of a status that this scheduler writes, with the names that the API gives them.
    fn status_value(&self, status: &PodGroupStatus) -> Value {
        json!(status)
    }
}

/// The error for a queue of an API that has none.
pub(super) fn no_queues(object: &RawObject) -> FactError {
    let name = object.metadata.name.as_deref().unwrap_or_default();
    FactError::new(format!("Queue {name}"), "apiVersion", "has no queues")
}

/// Removes fields that an API does not have.
pub(super) fn without(mut object: Value, fields: &[&str]) -> Value {
    let map = object.as_object_mut().expect("a struct is an object");
    fields.iter().for_each(|field| drop(map.remove(*field)));
    object
}
