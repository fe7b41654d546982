//! Zones and regions of bound volumes, as labels of the volume.
//!
//! A node that has none of the four labels passes. Otherwise it must have the value of each such
//! label of the volume; for a beta label, the node may have the label that replaced it instead. A
//! volume's value may name several zones, joined by `__`.
//!
//! Source: Kubernetes 1.36, `plugins/volumezone`.

use std::sync::Arc;

use kube_batch_framework::plugin::{Dependencies, Dependency};
use kube_batch_model::{
    column::{Column, NodeIdx},
    name::Name,
    reason::Unfit,
    selector::Labels,
};

use super::{
    arguments::PredicatesArguments,
    filter::{Filter, Query},
};
use crate::{
    compiled::Opening,
    constraint_classes::ConstraintClassIdx,
    node_labels::{LabelColumn, Value},
    node_terms::Compiler,
};

const ZONE: &str = "topology.kubernetes.io/zone";
const REGION: &str = "topology.kubernetes.io/region";

/// Each label, with the one that a node may have instead.
const LABELS: [(&str, Option<&str>); 4] = [
    (ZONE, None),
    (REGION, None),
    ("failure-domain.beta.kubernetes.io/zone", Some(ZONE)),
    ("failure-domain.beta.kubernetes.io/region", Some(REGION)),
];

#[derive(Debug)]
struct VolumeZone {
    /// One test for each bound volume with a zone or region.
    tests: Column<ConstraintClassIdx, Vec<ZoneTest>>,
}

pub(super) fn build(opening: Opening<'_>, _: &PredicatesArguments) -> Box<dyn Filter> {
    let mut tests = opening.by_class(Vec::new());
    for class in opening.classes().to_place() {
        // VolumeBinding reports what is wrong with the claims.
        let Ok(resolved) = &opening.claims()[class] else { continue };
        let bound = resolved.bound.iter().filter(|claim| !claim.is_ephemeral);
        let volumes = bound.filter_map(|claim| claim.volume.as_ref());
        tests[class] = volumes
            .filter_map(|volume| ZoneTest::new(opening.compiler(), &volume.labels))
            .collect();
    }
    Box::new(VolumeZone { tests })
}

impl Filter for VolumeZone {
    fn dependencies(&self, class: ConstraintClassIdx) -> Dependencies {
        Dependencies::NONE.with_if(Dependency::Class, !self.tests[class].is_empty())
    }

    fn check(&self, query: Query) -> Result<(), Unfit> {
        let passes = self.tests[query.class].iter().all(|test| test.passes(query.node));
        if passes { Ok(()) } else { Err(Unfit::VolumeZone) }
    }
}

/// The zones and regions from which a volume can be reached.
#[derive(Clone, Debug)]
struct ZoneTest {
    /// The columns of all four labels.
    all: [Arc<LabelColumn>; LABELS.len()],
    required: Vec<Required>,
}

/// One label of the volume.
#[derive(Clone, Debug)]
struct Required {
    label: OneOf,
    substitute: Option<OneOf>,
}

/// A label and the values that pass.
#[derive(Clone, Debug)]
struct OneOf {
    labels: Arc<LabelColumn>,
    values: Vec<Value>,
}

impl OneOf {
    fn new(compiler: Compiler<'_>, key: &str, names: &[Name]) -> Self {
        let labels = compiler.column(&Name::from(key));
        let values = names.iter().filter_map(|name| labels.find(name)).collect();
        Self { labels, values }
    }

    fn passes(&self, node: NodeIdx) -> bool {
        self.values.contains(&self.labels.value(node))
    }
}

impl ZoneTest {
    /// The test for a volume with these labels; `None` if it has no zone or region.
    fn new(compiler: Compiler<'_>, labels: &Labels) -> Option<Self> {
        let mut required = Vec::new();
        for (key, substitute) in LABELS {
            let Some(names) = labels.get(key).and_then(zones) else { continue };
            required.push(Required {
                label: OneOf::new(compiler, key, &names),
                substitute: substitute.map(|key| OneOf::new(compiler, key, &names)),
            });
        }
        let all = || LABELS.map(|(key, _)| compiler.column(&Name::from(key)));
        (!required.is_empty()).then(|| Self { all: all(), required })
    }

    fn passes(&self, node: NodeIdx) -> bool {
        let is_met = |required: &Required| match &required.substitute {
            Some(substitute) if !required.label.labels.has(node) => substitute.passes(node),
            Some(_) | None => required.label.passes(node),
        };
        !self.all.iter().any(|labels| labels.has(node)) || self.required.iter().all(is_met)
    }
}

/// The zones that a label value names. A value with an empty name among them is ignored.
fn zones(value: &Name) -> Option<Vec<Name>> {
    let names: Vec<Name> = value.split("__").map(Name::from).collect();
    names.iter().all(|name| !name.is_empty()).then_some(names)
}
