//! The allocation of a claim, as it is written to its status.

use std::collections::BTreeSet;

use kube_batch_model::{
    facts::{
        device::{
            claim::{Allocation, AllocationConfig, DeviceResult},
            class::DeviceClassFacts,
            request::{Alternatives, ClaimSpec, DeviceRequest},
            slice::DeviceNodes,
        },
        node::NodeFacts,
    },
    name::Name,
    quantity::Quantity,
    selector::NodeTerm,
};

use crate::{
    claims::Claim,
    inventory::Device,
    search::{Chosen, ChosenDevice, Devices, id, names},
    usage::{Held, HeldDevice},
    wanted::Matching,
};

/// The most alternatives of a request.
const MAX_ALTERNATIVES: i64 = 8;

/// Stands for the id of a share until one is made when the allocation is written.
pub const NEW_SHARE: &str = "";

impl Devices<'_> {
    /// The allocation of a claim with the devices chosen on a node.
    pub fn allocation(&self, claim: &Claim, chosen: &Chosen, node: &Name) -> Allocation {
        Allocation {
            results: chosen.iter().map(|chosen| self.result(claim, chosen)).collect(),
            config: self.config(claim, chosen),
            nodes: self.nodes(chosen, node),
            timestamp: None,
        }
    }

    fn device(&self, chosen: &ChosenDevice) -> &Device {
        &self.inventory.devices()[chosen.device]
    }

    fn matching(&self, claim: &Claim, chosen: &ChosenDevice) -> &Matching {
        self.wanted.get(claim.requests[chosen.request].alternatives[chosen.alternative])
    }

    fn result(&self, claim: &Claim, chosen: &ChosenDevice) -> DeviceResult {
        let (device, wanted) = (self.device(chosen).facts(), &self.matching(claim, chosen).wanted);
        let consumed = chosen.share.iter().flatten();
        DeviceResult {
            request: label(claim, chosen),
            id: id(self.inventory, chosen),
            admin_access: wanted.admin_access,
            share: chosen.share.as_ref().map(|_| Name::from(NEW_SHARE)),
            consumed: consumed
                .map(|(name, nano)| (name.clone(), Quantity::from_nano(*nano)))
                .collect(),
            tolerations: wanted.tolerations.clone(),
            binding_conditions: device.binding_conditions.clone(),
            binding_failure_conditions: device.binding_failure_conditions.clone(),
        }
    }

    /// The configuration of classes, each once, then that of the claim, as far as it is about requests or
    /// alternatives that were chosen.
    fn config(&self, claim: &Claim, chosen: &Chosen) -> Vec<AllocationConfig> {
        let mut of_classes: Vec<(&DeviceClassFacts, BTreeSet<usize>)> = Vec::new();
        let mut served = BTreeSet::new();
        for chosen in chosen {
            served.insert((chosen.request, chosen.alternative));
            let class = &*self.matching(claim, chosen).class;
            match of_classes.iter_mut().find(|(own, _)| own.name == class.name) {
                Some((_, requests)) => {
                    requests.insert(chosen.request);
                }
                None => of_classes.push((class, BTreeSet::from([chosen.request]))),
            }
        }
        let mut config = Vec::new();
        for (class, requests) in &of_classes {
            let is_about_all = requests.len() == claim.spec.requests.len();
            let mut labels = Vec::new();
            for (request, alternative) in served.iter().filter(|(own, _)| requests.contains(own)) {
                labels.push(label_of(claim, *request, *alternative));
            }
            config.extend(class.config.iter().map(|opaque| AllocationConfig {
                source: Name::from("FromClass"),
                requests: if is_about_all { Vec::new() } else { labels.clone() },
                opaque: opaque.clone(),
            }));
        }
        for own in &claim.spec.config {
            let is_about = |(request, alternative): &&(usize, usize)| {
                let (request, alternative) = names(claim, *request, *alternative);
                own.is_about(request, alternative.map(|name| &**name))
            };
            if served.iter().any(|served| is_about(&served)) {
                let is_about_all = served.iter().all(|served| is_about(&served));
                config.push(AllocationConfig {
                    source: Name::from("FromClaim"),
                    requests: if is_about_all { Vec::new() } else { own.requests.clone() },
                    opaque: own.opaque.clone(),
                });
            }
        }
        config
    }

    /// The nodes that can use all these devices.
    fn nodes(&self, chosen: &Chosen, node: &Name) -> Option<Vec<NodeTerm>> {
        if self.is_for_one_node(chosen) {
            return Some(vec![NodeTerm::of_node(node)]);
        }
        let terms =
            chosen.iter().filter_map(|chosen| match self.device(chosen).published_nodes() {
                DeviceNodes::Selector(terms) => Some(terms),
                DeviceNodes::Node(_) | DeviceNodes::All | DeviceNodes::None => None,
            });
        let all = NodeTerm::all_of(terms.flatten());
        (!all.is_empty()).then(|| vec![all])
    }

    fn is_for_one_node(&self, chosen: &Chosen) -> bool {
        chosen.iter().map(|chosen| self.device(chosen)).any(|device| {
            device.facts().binds_to_node || matches!(device.published_nodes(), DeviceNodes::Node(_))
        })
    }

    /// Whether another node can use the devices chosen on a node too.
    pub fn reaches(&self, chosen: &Chosen, node: &Name, other: &NodeFacts) -> bool {
        let matches = |term: &NodeTerm| term.matches(&other.name, &other.labels);
        !self.is_for_one_node(chosen)
            && self.nodes(chosen, node).is_none_or(|terms| terms.iter().any(matches))
    }

    /// The devices chosen for a claim, as far as they count as in use.
    pub fn held(&self, claim: &Claim, chosen: &Chosen) -> Held {
        let counted = chosen.iter().filter(|own| !self.matching(claim, own).wanted.admin_access);
        let mut held = Vec::with_capacity(chosen.len());
        for ChosenDevice { device, share, .. } in counted {
            let Device { is_listed_once, id, .. } = &self.inventory.devices()[*device];
            if *is_listed_once {
                held.push(HeldDevice { row: *device, share: share.clone() });
            } else {
                let rows = self.inventory.rows_of(id);
                held.extend(rows.map(|row| HeldDevice { row, share: share.clone() }));
            }
        }
        Held(held)
    }
}

fn label(claim: &Claim, chosen: &ChosenDevice) -> Name {
    label_of(claim, chosen.request, chosen.alternative)
}

fn label_of(claim: &Claim, request: usize, alternative: usize) -> Name {
    match names(claim, request, alternative) {
        (request, Some(alternative)) => Name::from(format!("{request}/{alternative}")),
        (request, None) => request.clone(),
    }
}

/// How good the devices chosen for a claim are; see [`score`].
pub fn score_of(claim: &Claim, chosen: &Chosen) -> i64 {
    let requests = claim.requests.iter().enumerate().filter(|(_, request)| request.is_list);
    let of_request = |(at, _)| {
        let chosen = chosen.iter().find(|chosen| chosen.request == at);
        chosen.map_or(0, |chosen| MAX_ALTERNATIVES - chosen.alternative as i64)
    };
    requests.map(of_request).sum()
}

/// How good an allocation is for a claim: the earlier the alternatives of `firstAvailable` that were chosen, the
/// better. Requests without alternatives do not count.
pub fn score(spec: &ClaimSpec, allocation: &Allocation) -> i64 {
    let of_request = |request: &DeviceRequest| {
        let Alternatives::FirstAvailable(list) = &request.alternatives else { return 0 };
        let chosen = list.iter().position(|(alternative, _)| {
            let label = format!("{}/{alternative}", request.name);
            allocation.results.iter().any(|result| *result.request == *label)
        });
        chosen.map_or(0, |at| MAX_ALTERNATIVES - i64::try_from(at).unwrap_or(MAX_ALTERNATIVES))
    };
    spec.requests.iter().map(of_request).sum()
}
