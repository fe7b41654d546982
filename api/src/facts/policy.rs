//! PriorityClasses and PodDisruptionBudgets.

use jiff::Timestamp;
use k8s_openapi::{
    api::{policy::v1::PodDisruptionBudget, scheduling::v1::PriorityClass},
    apimachinery::pkg::util::intstr::IntOrString,
};
use serde::{Deserialize, Serialize};

use super::{Controller, FactError, created, object_key};
use crate::name::{Name, ObjectKey};

/// The fields of a PriorityClass that the scheduler uses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PriorityClassFacts {
    /// Its name.
    pub name: Name,
    /// Its value.
    pub value: i32,
    /// Whether it applies to groups that name no class.
    pub global_default: bool,
    /// Whether its `preemptionPolicy` is `Never`. Admission sets it in pods; the scheduler reads it
    /// there.
    #[serde(default)]
    pub never_preempts: bool,
}

impl PriorityClassFacts {
    /// Reads a PriorityClass.
    ///
    /// # Errors
    ///
    /// [`FactError`] if it has no name: skip it.
    pub fn from_class(class: &PriorityClass) -> Result<Self, FactError> {
        let key = object_key("PriorityClass", &class.metadata)?;
        Ok(Self {
            name: key.name,
            value: class.value.unwrap_or(0),
            global_default: class.global_default.unwrap_or(false),
            never_preempts: class.preemption_policy.as_deref() == Some("Never"),
        })
    }
}

/// The fields of a PodDisruptionBudget that the scheduler uses: a legacy gang, if it has a
/// controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetFacts {
    /// Namespace and name.
    pub key: ObjectKey,
    /// Creation time.
    pub created: Timestamp,
    /// The owner of the pods it selects.
    pub controller: Option<Controller>,
    /// How many of them belong together.
    pub min_available: Option<MinAvailable>,
}

/// A minimum, as a number or as a part of the job's pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MinAvailable {
    /// So many.
    Count(u32),
    /// So many of a hundred, rounded up.
    Percent(u32),
}

impl MinAvailable {
    /// The minimum of a job of `n_tasks`.
    // Parity: differs, see docs/parity.md#j5.
    pub fn of(self, n_tasks: usize) -> u32 {
        match self {
            Self::Count(count) => count,
            Self::Percent(percent) => {
                let part = (n_tasks as u64).saturating_mul(percent.into()).div_ceil(100);
                u32::try_from(part).unwrap_or(u32::MAX)
            }
        }
    }
}

impl BudgetFacts {
    /// Reads a PodDisruptionBudget.
    ///
    /// # Errors
    ///
    /// [`FactError`] if it has no name or a `minAvailable` that is neither a count nor a
    /// percentage: skip it.
    pub fn from_budget(budget: &PodDisruptionBudget) -> Result<Self, FactError> {
        let key = object_key("PodDisruptionBudget", &budget.metadata)?;
        let min_available = budget.spec.as_ref().and_then(|spec| spec.min_available.as_ref());
        let min_available =
            min_available.map(parse_min_available).transpose().map_err(|problem| {
                FactError::new(format!("PodDisruptionBudget {key}"), "spec.minAvailable", problem)
            })?;
        Ok(Self {
            created: created(&budget.metadata),
            controller: Controller::of(&budget.metadata),
            min_available,
            key,
        })
    }
}

fn parse_min_available(value: &IntOrString) -> Result<MinAvailable, String> {
    match value {
        IntOrString::Int(count) => u32::try_from(*count)
            .map(MinAvailable::Count)
            .map_err(|_| format!("{count} is negative")),
        IntOrString::String(text) => text
            .strip_suffix('%')
            .and_then(|percent| percent.parse().ok())
            .map(MinAvailable::Percent)
            .ok_or_else(|| format!("\"{text}\" is neither a number nor a percentage")),
    }
}
