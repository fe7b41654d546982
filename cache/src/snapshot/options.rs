//! What a snapshot depends on besides facts.

use std::{fmt, sync::Arc};

use kube_batch_model::name::Name;
use serde::{Deserialize, Serialize};

/// The values of `spec.schedulerName` of the pods that are scheduled: at least one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<Name>")]
pub struct SchedulerNames(Arc<[Name]>);

impl TryFrom<Vec<Name>> for SchedulerNames {
    type Error = &'static str;

    fn try_from(names: Vec<Name>) -> Result<Self, Self::Error> {
        Self::new(names).ok_or("at least one scheduler name is required")
    }
}

impl SchedulerNames {
    /// These names, each once; `None` if there are none.
    pub fn new(names: impl IntoIterator<Item = impl Into<Name>>) -> Option<Self> {
        let mut different: Vec<Name> = Vec::new();
        for name in names.into_iter().map(Into::into) {
            if !different.contains(&name) {
                different.push(name);
            }
        }
        (!different.is_empty()).then(|| Self(different.into()))
    }

    /// The first: the name by which the scheduler calls itself.
    pub fn first(&self) -> &Name {
        &self.0[0]
    }

    /// Whether pods with this `spec.schedulerName` are scheduled.
    pub fn contains(&self, name: &str) -> bool {
        self.0.iter().any(|own| **own == *name)
    }

    /// All, in the order in which they were given.
    pub fn iter(&self) -> impl Iterator<Item = &Name> {
        self.0.iter()
    }
}

impl Default for SchedulerNames {
    /// `kube-batch`.
    fn default() -> Self {
        Self(Arc::new([Name::from("kube-batch")]))
    }
}

impl fmt::Display for SchedulerNames {
    /// All, separated by commas.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(", "))
    }
}

/// Options of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotOptions {
    /// Scheduler names; only pods with one of them are scheduled.
    pub scheduler_names: SchedulerNames,
    /// Queue for PodGroups that name none and for pods without a group.
    pub default_queue: Name,
    /// Whether PriorityClasses rank jobs; otherwise all have priority 0.
    pub priority_class: bool,
}

impl Default for SnapshotOptions {
    /// Scheduler name `kube-batch`, queue `default`, priority classes used.
    fn default() -> Self {
        Self {
            scheduler_names: SchedulerNames::default(),
            default_queue: Name::from("default"),
            priority_class: true,
        }
    }
}
