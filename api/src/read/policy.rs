//! PriorityClasses and PodDisruptionBudgets.

use k8s_openapi::{
    api::{policy::v1::PodDisruptionBudget, scheduling::v1::PriorityClass},
    apimachinery::pkg::util::intstr::IntOrString,
};
use kube_batch_model::{
    facts::{
        FactError,
        policy::{BudgetFacts, MinAvailable, PriorityClassFacts},
    },
    name::Name,
};

use super::{
    metadata::{controlled_by, created, object_key},
    selector::label_selector,
};

/// Reads a PriorityClass.
///
/// # Errors
///
/// [`FactError`] if it has no name: skip it.
pub fn priority_class(class: &PriorityClass) -> Result<PriorityClassFacts, FactError> {
    let key = object_key("PriorityClass", &class.metadata)?;
    Ok(PriorityClassFacts {
        name: key.name,
        value: class.value.unwrap_or(0),
        global_default: class.global_default.unwrap_or(false),
        never_preempts: class.preemption_policy.as_deref() == Some("Never"),
    })
}

/// Reads a PodDisruptionBudget.
///
/// # Errors
///
/// [`FactError`] if it has no name or a `minAvailable` that is neither a count nor a
/// percentage: skip it.
pub fn budget(budget: &PodDisruptionBudget) -> Result<BudgetFacts, FactError> {
    let key = object_key("PodDisruptionBudget", &budget.metadata)?;
    let min_available = budget.spec.as_ref().and_then(|spec| spec.min_available.as_ref());
    let min_available = min_available.map(parse_min_available).transpose().map_err(|problem| {
        FactError::new(format!("PodDisruptionBudget {key}"), "spec.minAvailable", problem)
    })?;
    let selector = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    let status = budget.status.as_ref();
    let disrupted = status.and_then(|status| status.disrupted_pods.as_ref());
    Ok(BudgetFacts {
        created: created(&budget.metadata),
        controller: controlled_by(&budget.metadata),
        min_available,
        selector: selector.map(label_selector),
        allowed: status.and_then(|status| status.disruptions_allowed).unwrap_or(0),
        disrupted: disrupted.into_iter().flatten().map(|(name, _)| Name::from(&**name)).collect(),
        key,
    })
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
