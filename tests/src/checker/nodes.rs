//! Which nodes admit a pod.

use kube_batch_model::facts::{
    class::{Toleration, TolerationOperator},
    node::{NodeFacts, Taint},
};

use super::view::{Pod, View};

/// Pods are bound to nodes that are ready and not cordoned, and whose taints they tolerate.
pub(super) fn bound_pods_are_admitted(view: &View<'_>) -> Vec<String> {
    let mut problems = Vec::new();
    for (name, node) in &view.nodes {
        for pod in &node.bound {
            if let Some(problem) = problem_of(node.facts, pod) {
                problems.push(format!("pod {} is bound to {name}, which {problem}", pod.key()));
            }
        }
    }
    problems
}

fn problem_of(node: &NodeFacts, pod: &Pod<'_>) -> Option<String> {
    if node.unschedulable {
        return Some("is cordoned".to_owned());
    }
    if node.conditions.not_ready || node.conditions.network_unavailable {
        return Some("is not ready".to_owned());
    }
    let tolerations = &pod.facts.template.tolerations;
    let is_hard = |taint: &&Taint| matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute");
    let mut taints = node.taints.iter().filter(is_hard);
    let taint = taints.find(|taint| !tolerations.iter().any(|of| tolerates(of, taint)))?;
    Some(format!("has the taint {}={}", taint.key, taint.value))
}

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let Toleration { key, operator, value, effect } = toleration;
    let same_key = key == &taint.key || key.is_empty();
    let same_effect = effect.as_ref().is_none_or(|effect| *effect == taint.effect);
    let same_value = match operator {
        TolerationOperator::Exists => true,
        TolerationOperator::Equal => !key.is_empty() && *value == taint.value,
        TolerationOperator::Lt(_) | TolerationOperator::Gt(_) | TolerationOperator::Never => false,
    };
    same_key && same_effect && same_value
}
