//! Why a class fits on no node.

use std::collections::BTreeMap;

use kube_batch_api::{
    column::{ClassIdx, Dim, NodeIdx},
    reason::{FitReport, Unfit},
};

use super::{inputs::Inputs, rules::ClassRules};
use crate::plugin::{Capacity, Dependency};

/// How many resources that no node has a message names.
const MAX_UNKNOWN: usize = 3;

/// For each node, the reasons why a task of the class does not fit there now.
pub(super) fn explain(inputs: Inputs<'_>, class: ClassIdx, rules: &ClassRules) -> FitReport {
    let cluster = inputs.cluster;
    let n_nodes = cluster.nodes.facts.len();
    if let Err(reason) = &rules.admission {
        return FitReport::everywhere(n_nodes, reason.clone());
    }
    let mut counts = BTreeMap::<Unfit, usize>::new();
    let mut reasons = Vec::new();
    for node in cluster.nodes.facts.ids() {
        collect_reasons(inputs, class, rules, node, &mut reasons);
        for reason in reasons.drain(..) {
            *counts.entry(reason).or_default() += 1;
        }
    }
    let mut report = FitReport::new(n_nodes);
    for (reason, n_nodes) in counts {
        report.add(reason.cause(), &cluster.reason_text(class, reason), n_nodes);
    }
    report
}

/// Adds the reasons of one node, as Kubernetes gives them: the first filter that refuses speaks
/// alone. Of the resources it reports every one that is short, and of volumes both bound and unbound
/// ones.
fn collect_reasons(
    inputs: Inputs<'_>,
    class: ClassIdx,
    rules: &ClassRules,
    node: NodeIdx,
    reasons: &mut Vec<Unfit>,
) {
    let Inputs { cluster, policy, .. } = inputs;
    let refusals = Dependency::ALL.into_iter().filter_map(|dependency| {
        rules.predicate(policy, cluster, class, node, dependency, Capacity::Idle).err()
    });
    let refusals: Vec<Unfit> = refusals.collect();
    let request = &cluster.classes.request[class];
    reasons.extend(cluster.nodes.lacking(node, request).map(short_of));
    let n_unknown = request.unknown().len().min(MAX_UNKNOWN);
    reasons.extend((0..n_unknown as u32).map(Unfit::UnknownResource));
    if let Some(first) = refusals.iter().min().copied()
        && (reasons.is_empty() || first < Unfit::TooManyPods)
    {
        reasons.clear();
        reasons.extend(refusals.into_iter().filter(|refusal| refusal.is_reported_with(first)));
    }
}

fn short_of(dim: Dim) -> Unfit {
    if dim == Dim::PODS { Unfit::TooManyPods } else { Unfit::Insufficient(dim) }
}
