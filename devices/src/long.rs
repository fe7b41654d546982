//! Searches that take long: their answers are remembered for nodes whose devices are alike, and what all of them
//! together may take is bounded for each owner, so that no tenant's claims cost the others much.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use kube_batch_model::{
    column::{NodeIdx, Ordinal},
    facts::device::{
        request::{ClaimSpec, ConstraintRule},
        slice::AttributeValue,
    },
    name::Name,
};

use crate::{
    claims::Claim,
    constraints::attribute,
    inventory::PoolState,
    rows::{DeviceIdx, WantedIdx},
    search::{Chosen, ChosenDevice, Devices, InUse, MAX_STEPS, Refusal},
    wanted::{Match, Matching},
};

/// To begin a search costs about as much as this many steps.
const START: u32 = 8;

/// The steps of a search that is not long.
const SHORT: u32 = 100;

/// The steps that the long searches of one owner may take together: about 15 ms. Guessed.
const STEPS_OF_OWNER: u32 = 200_000;

/// The number of comparisons of a request with a device that take as long as one step.
const COMPARISONS_OF_A_STEP: usize = 8;

/// The long searches of a session.
#[derive(Clone, Debug, Default)]
pub struct LongSearches {
    specs: Specs,
    /// What the requests of claims want, each once, by the numbers of the claims' specs.
    alternatives: BTreeMap<Vec<u64>, Arc<[WantedIdx]>>,
    answers: BTreeMap<Signature, Answer>,
    /// The steps that are left to an owner.
    left: BTreeMap<Name, u32>,
    /// The steps of all searches, and one for each device whose node was compared with others.
    n_steps: u64,
}

/// All that an answer depends on besides which node it is about: what is searched for, and what the devices of the
/// node are like.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Signature {
    specs: Vec<u64>,
    words: Vec<u64>,
}

/// An answer with the positions of devices among those of the node.
type Answer = Result<Vec<Vec<ChosenDevice>>, Refusal>;

impl Devices<'_> {
    /// Chooses devices of a node for all claims, as [`Devices::choose`] does, if that does not take long; and how many
    /// steps it took, 0 if there was no search.
    ///
    /// # Errors
    ///
    /// Why there are none.
    pub fn choose_quickly(
        &self,
        node: NodeIdx,
        claims: &[(&str, &Claim)],
        in_use: InUse<'_>,
    ) -> (Option<Result<Vec<Chosen>, Refusal>>, u32) {
        if let Some(answer) = self.choose_plain(node, claims, in_use) {
            return (Some(answer), 0);
        }
        let (answer, n_steps) = self.choose_within(node, claims, in_use, SHORT);
        ((answer != Err(Refusal::TooComplex)).then_some(answer), START + n_steps)
    }
}

impl LongSearches {
    /// How many steps they took so far.
    pub const fn n_steps(&self) -> u64 {
        self.n_steps
    }

    /// Chooses devices of a node for all claims of an owner, as [`Devices::choose`] does. To be asked if
    /// [`Devices::choose_quickly`] has no answer, there or on other nodes: the answer is the same.
    ///
    /// # Errors
    ///
    /// Why there are none.
    pub fn choose(
        &mut self,
        devices: Devices<'_>,
        owner: &Name,
        (node, claims): (NodeIdx, &[(&str, &Claim)]),
        in_use: InUse<'_>,
    ) -> Result<Vec<Chosen>, Refusal> {
        let rows: Vec<DeviceIdx> = rows_of(devices, node).collect();
        let specs: Vec<u64> =
            claims.iter().map(|(_, claim)| self.specs.number(&claim.spec)).collect();
        let of_specs = self.alternatives.entry(specs.clone());
        let alternatives = Arc::clone(of_specs.or_insert_with(|| alternatives(claims)));
        let words = words(devices, &rows, (node, claims), &alternatives, in_use);
        let signature = words.map(|words| Signature { specs, words });
        let n_comparisons = rows.len() * alternatives.len() + claims.len();
        self.n_steps += (rows.len() + n_comparisons / COMPARISONS_OF_A_STEP) as u64;
        if let Some(known) = signature.as_ref().and_then(|own| self.answers.get(own)) {
            return moved(known, |at| rows[at.at()]);
        }
        let left = self.left.entry(owner.clone()).or_insert(STEPS_OF_OWNER);
        let most = MAX_STEPS.min((*left).max(SHORT));
        let (answer, n_steps) = devices.choose_within(node, claims, in_use, most);
        *left = left.saturating_sub(n_steps);
        self.n_steps += u64::from(START + n_steps);
        let is_final = *left > 0 || answer != Err(Refusal::TooComplex);
        // Few searches are long, because each takes of what is left.
        let is_worth_it = is_final && n_steps > SHORT;
        if let Some(signature) = signature.filter(|_| is_worth_it) {
            let position = |row| {
                let at = rows.iter().position(|own| *own == row).unwrap_or_default();
                DeviceIdx::new(at)
            };
            if !matches!(answer, Err(Refusal::Error(_))) {
                self.answers.insert(signature, moved(&answer, position));
            }
        }
        answer
    }
}

fn moved(answer: &Answer, to: impl Fn(DeviceIdx) -> DeviceIdx) -> Answer {
    let device =
        |chosen: &ChosenDevice| ChosenDevice { device: to(chosen.device), ..chosen.clone() };
    let claim = |chosen: &Vec<ChosenDevice>| chosen.iter().map(device).collect();
    answer.as_ref().map(|claims| claims.iter().map(claim).collect()).map_err(Clone::clone)
}

/// The devices that a search on a node can take.
fn rows_of(devices: Devices<'_>, node: NodeIdx) -> impl Iterator<Item = DeviceIdx> {
    let complete =
        devices.inventory.pools_of(node).filter(|view| view.state == PoolState::Complete);
    complete.flat_map(|view| view.rows().collect::<Vec<_>>())
}

/// What the requests of claims want, each once.
fn alternatives(claims: &[(&str, &Claim)]) -> Arc<[WantedIdx]> {
    let requests = claims.iter().flat_map(|(_, claim)| &claim.requests);
    let rows: BTreeSet<WantedIdx> =
        requests.flat_map(|request| request.alternatives.iter().copied()).collect();
    rows.into_iter().collect()
}

/// What the devices of a node are like for these claims; `None` if the answer may depend on more: on names of devices,
/// or on how much of them is shared.
fn words(
    devices: Devices<'_>,
    rows: &[DeviceIdx],
    (node, claims): (NodeIdx, &[(&str, &Claim)]),
    alternatives: &[WantedIdx],
    in_use: InUse<'_>,
) -> Option<Vec<u64>> {
    let alternatives: Vec<&Matching> =
        alternatives.iter().map(|row| devices.wanted.get(*row)).collect();
    if alternatives.iter().any(|matching| !matching.wanted.capacity.is_empty()) {
        return None;
    }
    let mut words = vec![rows.len() as u64, devices.first as u64];
    words.extend(devices.inventory.pools_of(node).map(|view| view.state as u64));
    let attributes = claims.iter().flat_map(|(_, claim)| &claim.spec.constraints);
    let attributes = attributes.filter_map(|constraint| match &constraint.rule {
        ConstraintRule::Match(name) | ConstraintRule::Distinct(name) => Some(name),
        ConstraintRule::Unknown => None,
    });
    let attributes: Vec<&Name> = attributes.collect();
    let mut counters = Numbers::default();
    let mut values: Vec<Numbers<Option<&AttributeValue>>> =
        attributes.iter().map(|_| Numbers::default()).collect();
    let mut pools = Numbers::default();
    for row in rows {
        let device = &devices.inventory.devices()[*row];
        if device.facts().allow_multiple_allocations {
            return None;
        }
        for matching in &alternatives {
            let verdict = match matching.of(*row) {
                Match::Yes => 1,
                Match::No => 0,
                Match::Fails => return None,
            };
            words.push(verdict | u64::from(matching.tolerates(*row)) << 1);
        }
        let mut bits = u64::from(device.is_usable_on(node));
        for usage in in_use {
            bits = bits << 1 | u64::from(usage.is_exclusive(*row));
        }
        words.extend([bits, pools.number(device.pool)]);
        for (name, values) in attributes.iter().zip(&mut values) {
            let value = attribute(device, name);
            let is_list = matches!(value, Some(AttributeValue::List(_)));
            words.extend([values.number(value), u64::from(value.is_some()), u64::from(is_list)]);
        }
        words.push(device.consumes.len() as u64);
        for (counter, amount) in &device.consumes {
            words.push(counters.number(*counter));
            push(&mut words, *amount);
        }
    }
    let pools = devices.inventory.pools_of(node).map(|view| devices.inventory.pool(view.pool));
    for counter in pools.flat_map(|pool| &pool.counters) {
        words.push(counters.number(*counter));
        for usage in in_use {
            push(&mut words, usage.left(devices.inventory, *counter));
        }
    }
    Some(words)
}

/// Numbers for what claims request, so that long lists of requests are compared once.
#[derive(Clone, Debug, Default)]
struct Specs {
    of_equal: BTreeMap<Arc<ClaimSpec>, u64>,
    /// By address: it stays valid because the specs are kept here.
    of_same: BTreeMap<usize, (Arc<ClaimSpec>, u64)>,
}

impl Specs {
    fn number(&mut self, spec: &Arc<ClaimSpec>) -> u64 {
        if let Some((_, number)) = self.of_same.get(&Arc::as_ptr(spec).addr()) {
            return *number;
        }
        let next = self.of_equal.len() as u64;
        let number = *self.of_equal.entry(Arc::clone(spec)).or_insert(next);
        self.of_same.insert(Arc::as_ptr(spec).addr(), (Arc::clone(spec), number));
        number
    }
}

fn push(words: &mut Vec<u64>, amount: i128) {
    words.extend([amount as u64, (amount >> 64) as u64]);
}

/// Numbers for values, in the order in which they come.
#[derive(Debug)]
struct Numbers<T>(BTreeMap<T, u64>);

impl<T> Default for Numbers<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T: Ord> Numbers<T> {
    fn number(&mut self, value: T) -> u64 {
        let next = self.0.len() as u64;
        *self.0.entry(value).or_insert(next)
    }
}
