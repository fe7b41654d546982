//! Zones and regions of bound volumes, as labels on the volume.
//!
//! A node that carries none of the four labels passes. Otherwise each such label of the volume must
//! be met: by the node's value of that key or, for a key of the beta time, of the key that replaced
//! it. A volume's value may name several zones, joined by `__`.
//!
//! Source: Kubernetes 1.36, `plugins/volumezone`.

use kube_batch_api::{column::NodeIdx, name::Name, selector::Labels};

use crate::{
    node_labels::{Key, NodeLabels, Value},
    node_tests::Compiler,
};

const ZONE: &str = "topology.kubernetes.io/zone";
const REGION: &str = "topology.kubernetes.io/region";

/// Each label, with the one that stands in for it where a node lacks it.
const LABELS: [(&str, Option<&str>); 4] = [
    (ZONE, None),
    (REGION, None),
    ("failure-domain.beta.kubernetes.io/zone", Some(ZONE)),
    ("failure-domain.beta.kubernetes.io/region", Some(REGION)),
];

/// The zones and regions a volume can be reached from.
#[derive(Clone, Debug)]
pub(super) struct ZoneTest {
    /// The keys of all four labels.
    keys: [Key; LABELS.len()],
    wanted: Vec<Wanted>,
}

/// One label of the volume.
#[derive(Clone, Debug)]
struct Wanted {
    key: Key,
    values: Vec<Value>,
    substitute: Option<(Key, Vec<Value>)>,
}

impl ZoneTest {
    /// The test for a volume with these labels; `None` if it has no zone or region.
    pub(super) fn new(compiler: &mut Compiler<'_>, labels: &Labels) -> Option<Self> {
        let mut wanted = Vec::new();
        for (name, substitute) in LABELS {
            let Some(places) = labels.get(name).and_then(places) else { continue };
            let (key, values) = find(compiler, name, &places);
            let substitute = substitute.map(|name| find(compiler, name, &places));
            wanted.push(Wanted { key, values, substitute });
        }
        let keys = LABELS.map(|(name, _)| compiler.key(&Name::from(name)));
        (!wanted.is_empty()).then_some(Self { keys, wanted })
    }

    pub(super) fn passes(&self, labels: &NodeLabels, node: NodeIdx) -> bool {
        let is_met = |wanted: &Wanted| match &wanted.substitute {
            Some((key, values)) if !labels.has(wanted.key, node) => {
                values.contains(&labels.value(*key, node))
            }
            Some(_) | None => wanted.values.contains(&labels.value(wanted.key, node)),
        };
        !self.keys.iter().any(|key| labels.has(*key, node)) || self.wanted.iter().all(is_met)
    }
}

/// The places a label value names; a value with an empty one among them is ignored.
fn places(value: &Name) -> Option<Vec<Name>> {
    let places: Vec<Name> = value.split("__").map(Name::from).collect();
    places.iter().all(|place| !place.is_empty()).then_some(places)
}

fn find(compiler: &mut Compiler<'_>, key: &str, places: &[Name]) -> (Key, Vec<Value>) {
    let key = compiler.key(&Name::from(key));
    (key, places.iter().filter_map(|place| compiler.labels.find(key, place)).collect())
}
