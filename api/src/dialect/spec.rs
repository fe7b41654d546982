//! What a dialect defines.

use serde_json::{Value, json};

use super::{object::RawObject, status::Transition};
use crate::{
    crd::{PodGroupCondition, PodGroupStatus, QueueStatus},
    facts::{FactError, group::GroupFacts, metadata::MetadataPrefixes, queue::QueueFacts},
    job_report::JobReport,
    naming::Naming,
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
    /// How its objects are read and reported.
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

/// How the objects of one API are read and reported.
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

    /// Returns the status of a PodGroup after a cycle. It may differ from the stored status only in fields
    /// that the API has: a field that the API server drops would be written again in every cycle.
    fn next_status(
        &self,
        stored: &PodGroupStatus,
        report: &JobReport,
        at: Transition<'_>,
    ) -> PodGroupStatus;

    /// Whether the status of a PodGroup has conditions that say why it waits.
    fn has_conditions(&self) -> bool {
        true
    }

    /// Whether controllers create the pods of a PodGroup only once its phase says that it is admitted.
    fn waits_for_admission(&self) -> bool {
        false
    }

    /// Whether the status of a PodGroup says that its pods may be created, where controllers wait for that.
    fn is_admitted(&self, _status: &PodGroupStatus) -> bool {
        false
    }

    /// Whether a stored status already reports this message in a condition of this type, numbers aside.
    fn reports(&self, status: &PodGroupStatus, condition: &str, message: &str) -> bool {
        let is_same = |own: &PodGroupCondition| differ_only_in_numbers(&own.message, message);
        let mut conditions = status.conditions.iter().filter(|own| own.type_ == condition);
        conditions.any(|own| own.status == "True" && is_same(own))
    }

    /// The fields of a status that this scheduler writes, with the names that the API gives them.
    fn status_value(&self, status: &PodGroupStatus) -> Value {
        json!(status)
    }

    /// Returns the status of a queue after a cycle. `next` has all the fields of our own queues.
    fn next_queue_status(&self, _stored: &QueueStatus, next: QueueStatus) -> QueueStatus {
        next
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

/// Whether two texts are the same apart from numbers.
fn differ_only_in_numbers(l: &str, r: &str) -> bool {
    let words = |text: &str| text.chars().filter(|c| !c.is_ascii_digit()).collect::<String>();
    words(l) == words(r)
}
