//! The scores of many nodes at once.

use kube_batch_model::column::{ClassIdx, NodeIdx};

use super::{inputs::Inputs, rules::ClassRules};
use crate::{
    plugin::{Extremes, Scale, ScoreTerm},
    policy::Position,
};

/// The scores of these nodes for the class, normalised over them.
pub(super) fn normalised(
    inputs: Inputs<'_>,
    class: ClassIdx,
    rules: &ClassRules,
    nodes: &[NodeIdx],
) -> Vec<i64> {
    let mut totals = vec![0; nodes.len()];
    let mut raw = vec![0; nodes.len()];
    for (at, term) in rules.terms() {
        write_raw(inputs, class, (*at, *term), nodes, &mut raw);
        if term.scale == Scale::AsIs {
            add(&mut totals, term.weight, &raw);
            continue;
        }
        let among = Extremes::of(raw.iter().copied());
        for (total, raw) in totals.iter_mut().zip(&raw) {
            *total += term.weight * term.scale.apply(*raw, among);
        }
    }
    totals
}

/// The sum of these terms, none of which is normalised, for each node.
pub(super) fn absolute<'a>(
    inputs: Inputs<'_>,
    class: ClassIdx,
    terms: impl Iterator<Item = &'a (Position, ScoreTerm)>,
    nodes: &[NodeIdx],
) -> Vec<i64> {
    let mut totals = vec![0; nodes.len()];
    let mut raw = vec![0; nodes.len()];
    for (at, term) in terms {
        write_raw(inputs, class, (*at, *term), nodes, &mut raw);
        add(&mut totals, term.weight, &raw);
    }
    totals
}

fn add(totals: &mut [i64], weight: i64, raw: &[i64]) {
    for (total, raw) in totals.iter_mut().zip(raw) {
        *total += weight * raw;
    }
}

/// Writes the raw score of each node for one term.
pub(super) fn write_raw(
    inputs: Inputs<'_>,
    class: ClassIdx,
    (at, term): (Position, ScoreTerm),
    nodes: &[NodeIdx],
    raw: &mut [i64],
) {
    let Inputs { cluster, policy, .. } = inputs;
    if term.scale == Scale::Joint {
        raw.fill(0);
    }
    policy.plugin(at).scores(cluster, class, nodes, term.id, raw);
}
