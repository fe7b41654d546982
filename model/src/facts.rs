//! The fields of each API object that the scheduler uses, parsed once when the object arrives.
//!
//! A field that cannot be absent is not an `Option`, and a number is not kept as a string. An object
//! that cannot be parsed gives a [`FactError`] with the object and the field; the caller skips that
//! object only.

pub mod batch_job;
pub mod class;
pub mod composite;
pub mod device;
pub mod extended;
pub mod fact;
pub mod gang_annotations;
pub mod group;
pub mod group_refs;
pub mod metadata;
pub mod node;
pub mod pod;
pub mod pod_hints;
pub mod policy;
pub mod queue;
pub mod request;
pub mod run_time;
pub mod size;
pub mod storage;
pub mod topology;

use serde::{Deserialize, Serialize};

use crate::{name::Name, resource::AmountError, text::shortened};

/// Why an object cannot be used. The object is skipped, nothing else.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{object}: {field}: {problem}")]
pub struct FactError {
    /// Kind, namespace and name.
    pub object: String,
    /// The path of the field.
    pub field: String,
    /// What is wrong with the field.
    pub problem: String,
}

impl FactError {
    /// A problem with a field of an object.
    pub fn new(
        object: impl ToString,
        field: impl Into<String>,
        problem: impl Into<String>,
    ) -> Self {
        // They may quote what they are about.
        let short = |text: String| shortened(&text).into_owned();
        Self {
            object: short(object.to_string()),
            field: short(field.into()),
            problem: short(problem.into()),
        }
    }

    /// An amount of a field that cannot be read.
    pub fn amount(object: impl ToString, field: impl Into<String>, error: &AmountError) -> Self {
        use std::error::Error;
        let mut problem = error.to_string();
        if let Some(source) = error.source() {
            problem = format!("{problem}: {source}");
        }
        Self::new(object, field, problem)
    }
}

/// A controlling owner. Pods without a group that share one are one job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControllerRef {
    /// Its uid.
    pub uid: Name,
    /// Its kind.
    pub kind: Name,
    /// Its name.
    pub name: Name,
}
