//! Claims to be allocated, made ready for the search.

use std::{collections::BTreeMap, sync::Arc};

use kube_batch_model::{
    facts::device::{
        class::DeviceClassFacts,
        request::{AllocationMode, Alternatives, ClaimSpec, ConstraintRule, Selector, Wanted},
    },
    name::Name,
};

use crate::{inventory::Inventory, rows::WantedIdx, selectors::Selectors, wanted::AllWanted};

/// The classes of devices by name.
pub type DeviceClasses = BTreeMap<Name, Arc<DeviceClassFacts>>;

/// The most devices of a claim.
pub const MAX_DEVICES: u64 = 32;

/// The most requests of the claims of a pod, alternatives included, that are read.
// Parity: see docs/parity.md#j11-the-largest-pod.
pub const MAX_REQUESTS: usize = 500;

/// How many requests a claim has, alternatives included.
#[must_use]
pub fn number_of_requests(spec: &ClaimSpec) -> usize {
    let of_request = |alternatives: &Alternatives| match alternatives {
        Alternatives::FirstAvailable(list) => list.len(),
        Alternatives::Exactly(_) | Alternatives::Unknown => 1,
    };
    spec.requests.iter().map(|request| of_request(&request.alternatives)).sum()
}

/// A claim that is not allocated.
#[derive(Clone, Debug)]
pub struct Claim {
    /// What it requests.
    pub spec: Arc<ClaimSpec>,
    /// The alternatives of each of its requests.
    pub requests: Vec<RequestAlternatives>,
    /// Why it cannot be allocated on any node: it uses something that is not supported.
    pub problem: Option<String>,
}

/// The alternatives of a request: one, or those of `firstAvailable`.
#[derive(Clone, Debug)]
pub struct RequestAlternatives {
    /// The wanted devices of each.
    pub alternatives: Vec<WantedIdx>,
    /// Whether they are those of `firstAvailable`.
    pub is_list: bool,
}

impl Claim {
    /// Makes a claim ready. `name` is its namespace and name, and `budget` the cost that the evaluation of new
    /// expressions may have.
    ///
    /// # Errors
    ///
    /// The message, if it names a class that does not exist, or has a request of an unknown kind: the pod
    /// fits on no node, and no node is searched.
    pub fn new(
        (inventory, selectors, wanted): (&Inventory, &mut Selectors, &mut AllWanted),
        classes: &DeviceClasses,
        (name, spec): (&str, &Arc<ClaimSpec>),
        budget: &mut u64,
    ) -> Result<Self, String> {
        let mut requests = Vec::new();
        for request in &spec.requests {
            let mut row = |text: &str, own: &Wanted| {
                let class = classes.get(&own.class).ok_or_else(|| {
                    format!("request {text}: device class {} does not exist", own.class)
                })?;
                Ok::<_, String>(wanted.row(inventory, selectors, (own, class), budget))
            };
            requests.push(match &request.alternatives {
                Alternatives::Exactly(own) => RequestAlternatives {
                    alternatives: vec![row(&request.name, own)?],
                    is_list: false,
                },
                Alternatives::FirstAvailable(list) => {
                    let rows = list.iter().map(|(alternative, own)| {
                        row(&format!("{}/{alternative}", request.name), own)
                    });
                    RequestAlternatives {
                        alternatives: rows.collect::<Result<_, _>>()?,
                        is_list: true,
                    }
                }
                Alternatives::Unknown => {
                    return Err(format!(
                        "resource claim {name}, request {}: unknown request type",
                        request.name
                    ));
                }
            });
        }
        let problem = problem(classes, name, spec);
        Ok(Self { spec: Arc::clone(spec), requests, problem })
    }
}

/// Every alternative of every request, with its name: `request` or `request/alternative`.
pub(crate) fn alternatives(spec: &ClaimSpec) -> impl Iterator<Item = (String, &Wanted)> {
    spec.requests.iter().flat_map(|request| {
        let name = &request.name;
        let list: Vec<(String, &Wanted)> = match &request.alternatives {
            Alternatives::Exactly(own) => vec![(name.to_string(), own)],
            Alternatives::FirstAvailable(list) => {
                list.iter().map(|(own, wanted)| (format!("{name}/{own}"), wanted)).collect()
            }
            Alternatives::Unknown => Vec::new(),
        };
        list
    })
}

/// Why a claim cannot be allocated on any node, as far as that does not depend on devices.
fn problem(classes: &DeviceClasses, claim: &str, spec: &ClaimSpec) -> Option<String> {
    let of_requests = alternatives(spec).find_map(|(request, wanted)| {
        let at = format!("claim {claim}, request {request}");
        if wanted.has_derived_attributes {
            return Some(format!(
                "{at}: cannot handle request with derived attributes, the feature is disabled"
            ));
        }
        let of_class = classes.get(&wanted.class).map_or(&[][..], |class| &class.selectors);
        let empty = |selectors: &[Selector]| selectors.iter().position(|own| own.0.is_none());
        if let Some(selector) = empty(of_class) {
            return Some(format!(
                "class {}, selector #{selector}: CEL expression empty (unsupported selector type?)",
                wanted.class
            ));
        }
        if let Some(selector) = empty(&wanted.selectors) {
            return Some(format!(
                "{at}, selector #{selector}: CEL expression empty (unsupported selector type?)"
            ));
        }
        match &wanted.mode {
            AllocationMode::Unknown(mode) => Some(format!("{at}: unsupported count mode {mode}")),
            AllocationMode::ExactCount(_) | AllocationMode::All => None,
        }
    });
    let of_constraints = || {
        let mut rules = spec.constraints.iter().map(|constraint| &constraint.rule);
        let at = rules.position(|rule| *rule == ConstraintRule::Unknown)?;
        Some(format!(
            "claim {claim}, constraint #{at}: empty constraint (unsupported constraint type?)"
        ))
    };
    of_requests.or_else(of_constraints)
}
