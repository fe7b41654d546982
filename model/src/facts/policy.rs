//! PriorityClasses and PodDisruptionBudgets.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{ControllerRef, fact::Fact, size::Bounds};
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

impl Fact for PriorityClassFacts {}

/// The fields of a PodDisruptionBudget that the scheduler uses. If it has a controller, it also defines
/// a legacy gang.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetFacts {
    /// Namespace and name.
    pub key: ObjectKey,
    /// Creation time.
    pub created: Timestamp,
    /// The owner of the pods it selects.
    pub controller: Option<ControllerRef>,
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

impl Fact for BudgetFacts {
    const BOUNDS: Bounds = Bounds::USERS;
}

/// A minimum, as a number or as a part of the job's pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MinAvailable {
    /// This number of pods.
    Count(u32),
    /// This percentage of the pods of the job, rounded up.
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
