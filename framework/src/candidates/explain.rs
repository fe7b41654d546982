//! Why a class fits on no node.

use std::collections::BTreeMap;

use kube_batch_model::{
    column::{ClassIdx, Dim, NodeIdx, Ordinal},
    reason::{FitReport, Unfit},
};

use super::{inputs::Inputs, rules::ClassRules};
use crate::plugin::{Capacity, Dependency};

/// How many resources that no node has a message names.
const MAX_UNKNOWN: usize = 3;

/// For each node of the scope, the reasons why a task of the class does not fit there now.
pub(super) fn explain(inputs: Inputs<'_>, class: ClassIdx, rules: &ClassRules) -> FitReport {
    let mut counts = Counts::new();
    let mut reasons = Vec::new();
    let nodes = inputs.nodes();
    for node in nodes.iter().copied().filter(|_| rules.admission.is_ok()) {
        collect_reasons(inputs, class, rules, node, &mut reasons);
        for reason in reasons.drain(..) {
            *counts.entry(reason).or_default() += 1;
        }
    }
    report((inputs, nodes.len()), class, rules, &counts)
}

/// How many nodes give each reason.
type Counts = BTreeMap<Unfit, usize>;

fn report(
    (inputs, n_nodes): (Inputs<'_>, usize),
    class: ClassIdx,
    rules: &ClassRules,
    counts: &Counts,
) -> FitReport {
    if let Err(reason) = &rules.admission {
        return FitReport::everywhere(n_nodes, reason.clone());
    }
    let mut report = FitReport::new(n_nodes);
    for (reason, n_nodes) in counts.iter().filter(|(_, n_nodes)| **n_nodes > 0) {
        report.add(inputs.policy.about(inputs.cluster).named_reason(class, *reason), *n_nodes);
    }
    report
}

/// The reasons of each node for one class.
#[derive(Debug)]
pub(super) struct Explanation {
    of_nodes: Vec<Vec<Unfit>>,
    counts: Counts,
    /// The length of the log of touched nodes that it reflects.
    seen: usize,
}

impl Explanation {
    pub(super) fn new(inputs: Inputs<'_>, class: ClassIdx, rules: &ClassRules) -> Self {
        let mut new = Self {
            of_nodes: vec![Vec::new(); inputs.cluster.nodes.facts.len()],
            counts: Counts::new(),
            seen: inputs.touched.len(),
        };
        if rules.admission.is_ok() {
            for node in inputs.cluster.nodes.facts.ids() {
                new.explain_node(inputs, class, rules, node);
            }
        }
        new
    }

    /// Looks again at the nodes that have changed, and returns how many. The rules of the class must not
    /// depend on other nodes.
    pub(super) fn catch_up(
        &mut self,
        inputs: Inputs<'_>,
        class: ClassIdx,
        rules: &ClassRules,
    ) -> usize {
        let changed = &inputs.touched[self.seen..];
        for node in changed.iter().filter(|_| rules.admission.is_ok()) {
            self.explain_node(inputs, class, rules, *node);
        }
        self.seen = inputs.touched.len();
        changed.len()
    }

    fn explain_node(
        &mut self,
        inputs: Inputs<'_>,
        class: ClassIdx,
        rules: &ClassRules,
        node: NodeIdx,
    ) {
        let reasons = &mut self.of_nodes[node.at()];
        for reason in reasons.drain(..) {
            *self.counts.get_mut(&reason).expect("it was counted") -= 1;
        }
        collect_reasons(inputs, class, rules, node, reasons);
        for reason in reasons {
            *self.counts.entry(*reason).or_default() += 1;
        }
    }

    pub(super) fn report(
        &self,
        inputs: Inputs<'_>,
        class: ClassIdx,
        rules: &ClassRules,
    ) -> FitReport {
        report((inputs, self.of_nodes.len()), class, rules, &self.counts)
    }
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
    let request = &cluster.classes.request[class];
    reasons.extend(cluster.nodes.lacking(node, request).map(short_of));
    let n_unknown = request.unknown().len().min(MAX_UNKNOWN);
    reasons.extend((0..n_unknown as u32).map(Unfit::UnknownResource));
    let refusals: Vec<Unfit> = if reasons.is_empty() {
        let of = |dependency| {
            rules.predicate(policy, cluster, class, node, dependency, Capacity::Idle).err()
        };
        Dependency::ALL.into_iter().filter_map(of).collect()
    } else {
        rules.refusals_before_resources(inputs, class, node)
    };
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
