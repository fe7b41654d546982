//! PriorityClasses and PodDisruptionBudgets.

use jiff::Timestamp;
use k8s_openapi::{
    api::{policy::v1::PodDisruptionBudget, scheduling::v1::PriorityClass},
    apimachinery::pkg::util::intstr::IntOrString,
};
use serde::{Deserialize, Serialize};

use super::{Controller, FactError, created, object_key};
use crate::{
    name::{Name, ObjectKey},
    selector::LabelSelector,
};

/// The highest value of a PriorityClass that users may define. Admission and quotas of Kubernetes
/// guard higher ones, but only where a pod names them.
pub const HIGHEST_USER_PRIORITY: i32 = 1_000_000_000;

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

/// The fields of a PodDisruptionBudget that the scheduler uses. If it has a controller, it also defines
/// a legacy gang.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetFacts {
    /// Namespace and name.
    pub key: ObjectKey,
    /// Creation time.
    pub created: Timestamp,
    /// The owner of the pods it selects.
    pub controller: Option<Controller>,
    /// How many of them belong together.
    pub min_available: Option<MinAvailable>,
    /// The pods it protects; `None` if none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
    /// How many more of them may be evicted: `status.disruptionsAllowed`.
    #[serde(default)]
    pub allowed: i32,
    /// The pods whose eviction is counted in [`Self::allowed`] already, sorted: the names in
    /// `status.disruptedPods`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disrupted: Vec<Name>,
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
        let selector = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref());
        let status = budget.status.as_ref();
        let disrupted = status.and_then(|status| status.disrupted_pods.as_ref());
        Ok(Self {
            created: created(&budget.metadata),
            controller: Controller::of(&budget.metadata),
            min_available,
            selector: selector.map(LabelSelector::from_api),
            allowed: status.and_then(|status| status.disruptions_allowed).unwrap_or(0),
            disrupted: disrupted
                .into_iter()
                .flatten()
                .map(|(name, _)| Name::from(&**name))
                .collect(),
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
