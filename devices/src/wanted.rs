//! What requests want, and which devices are what they want.
//!
//! Requests with equal fields share one row, whatever claim they are of: pods made from one template have
//! equal claims. Requests that differ in amounts only share what is known of the devices.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use fixedbitset::FixedBitSet;
use kube_batch_model::{
    column::{Column, Ordinal},
    facts::device::{
        class::DeviceClassFacts,
        request::{Selector, Wanted},
    },
    name::Name,
};

use crate::{
    inventory::{Device, Inventory},
    rows::{DeviceIdx, WantedIdx},
    selectors::{Selectors, VerdictProblem, Verdicts},
};

/// How many devices a request is compared with for a unit of the budget. Measured.
const DEVICES_PER_UNIT: u64 = 2;

/// Which devices are what a request wants, whether they are free or not.
#[derive(Debug)]
pub struct Matching {
    /// What is wanted.
    pub wanted: Wanted,
    /// Its class.
    pub class: Arc<DeviceClassFacts>,
    decided: Arc<Decided>,
}

/// Which devices the class, the selectors and the tolerations of a request admit.
#[derive(Debug)]
struct Decided {
    /// The devices for which every selector holds.
    matches: FixedBitSet,
    /// The devices on which a selector fails before another says no.
    fails: FixedBitSet,
    /// The errors of those devices. Each holds from its device up to the next entry: devices that fail in the same way
    /// are mostly adjacent.
    errors: Vec<(DeviceIdx, SelectorError)>,
    /// The devices of which every taint is tolerated.
    tolerated: FixedBitSet,
    /// Those that match, are tolerated, and are either free or not: a claim that wants a number of devices can take
    /// them one after the other.
    plain: FixedBitSet,
    /// Those that match, are tolerated, and can be taken alone.
    single: FixedBitSet,
    /// Those about which only a search can tell.
    other: FixedBitSet,
    /// Whether no expression is postponed.
    is_final: bool,
}

/// What decides whether a request can have a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Test {
    /// Nothing: it cannot.
    Never,
    /// Whether it is free.
    Free,
    /// Whether it is free and its pool has the counters, if it is the only device.
    Counters,
    /// A search.
    Search,
}

/// What the selectors of a request say of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Match {
    /// All hold.
    Yes,
    /// One does not hold.
    No,
    /// One fails.
    Fails,
}

/// The selector that decides about a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectorError {
    /// Whether it is one of the class.
    pub is_of_class: bool,
    /// Its position among those of the class or of the request.
    pub at: usize,
    /// What is wrong.
    pub problem: SelectorFailure,
}

/// What is wrong with a selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SelectorFailure {
    /// It does not compile.
    Compile(Name),
    /// It fails on the device.
    Evaluate(Name),
    /// Evaluating it on all devices costs too much.
    TooComplex,
}

impl Decided {
    fn new(
        inventory: &Inventory,
        selectors: &mut Selectors,
        (wanted, class): (&Wanted, &DeviceClassFacts),
        budget: &mut u64,
    ) -> Self {
        for expression in expressions(wanted, class) {
            selectors.evaluate(inventory, expression, budget);
        }
        let deciders = deciders(selectors, wanted, class);
        let is_postponed = |own: &&Decider<'_>| matches!(own.verdicts, Verdicts::Postponed(_));
        // No device is looked at before all expressions are evaluated, and the budget has something left for that.
        let postponed = deciders
            .iter()
            .find(is_postponed)
            .or_else(|| deciders.first().filter(|_| *budget == 0));
        if let Some(decider) = postponed {
            return Self::postponed(inventory, decider);
        }
        if !deciders.is_empty() {
            *budget = budget.saturating_sub(inventory.devices().len() as u64 / DEVICES_PER_UNIT);
        }
        Self::of(inventory, wanted, &deciders)
    }

    /// What is not known yet.
    fn postponed(inventory: &Inventory, Decider { is_of_class, at, .. }: &Decider<'_>) -> Self {
        let n_devices = inventory.devices().len();
        let none = FixedBitSet::with_capacity(n_devices);
        let mut all = none.clone();
        all.insert_range(..);
        let problem = SelectorFailure::TooComplex;
        let error = SelectorError { is_of_class: *is_of_class, at: *at, problem };
        Self {
            matches: none.clone(),
            fails: all.clone(),
            errors: vec![(DeviceIdx::new(0), error)],
            tolerated: all.clone(),
            plain: none.clone(),
            single: none,
            other: all,
            is_final: false,
        }
    }

    fn of(inventory: &Inventory, wanted: &Wanted, deciders: &[Decider<'_>]) -> Self {
        let n_devices = inventory.devices().len();
        let empty = || FixedBitSet::with_capacity(n_devices);
        let (matches, fails, errors) = decide(n_devices, deciders);
        let (mut tolerated, mut plain, mut single) = (empty(), empty(), empty());
        let mut other = fails.clone();
        for (row, device) in inventory.devices().iter() {
            let is_tolerated = tolerates(wanted, device);
            tolerated.set(row.at(), is_tolerated);
            if matches.contains(row.at()) {
                let bits = match device {
                    _ if device.is_plain() => &mut plain,
                    _ if device.is_single() => &mut single,
                    _ => &mut other,
                };
                bits.set(row.at(), is_tolerated);
            }
        }
        Self { matches, fails, errors, tolerated, plain, single, other, is_final: true }
    }
}

impl Matching {
    /// What decides whether the request can have a device.
    pub(crate) fn test(&self, device: DeviceIdx) -> Test {
        let decided = &self.decided;
        match device.at() {
            at if decided.plain.contains(at) => Test::Free,
            at if decided.single.contains(at) => Test::Counters,
            at if decided.other.contains(at) => Test::Search,
            _ => Test::Never,
        }
    }

    /// What the selectors say of a device.
    pub fn of(&self, device: DeviceIdx) -> Match {
        if self.decided.matches.contains(device.at()) {
            Match::Yes
        } else if self.decided.fails.contains(device.at()) {
            Match::Fails
        } else {
            Match::No
        }
    }

    /// Why the selectors fail on a device; `None` if they do not.
    pub fn error(&self, device: DeviceIdx) -> Option<&SelectorError> {
        let errors = &self.decided.errors;
        let next = errors.partition_point(|(first, _)| *first <= device);
        let (_, error) = errors.get(next.checked_sub(1)?)?;
        self.decided.fails.contains(device.at()).then_some(error)
    }

    /// Whether every taint of a device is tolerated.
    pub fn tolerates(&self, device: DeviceIdx) -> bool {
        self.decided.tolerated.contains(device.at())
    }
}

/// A request that admits the same devices, and asks for one of them.
fn without_amounts(wanted: &Wanted) -> Wanted {
    Wanted {
        selectors: wanted.selectors.clone(),
        tolerations: wanted.tolerations.clone(),
        ..Wanted::of_class(&wanted.class, 1)
    }
}

/// The expressions of a class, then those of a request.
fn expressions<'a>(
    wanted: &'a Wanted,
    class: &'a DeviceClassFacts,
) -> impl Iterator<Item = &'a Name> {
    let all = class.selectors.iter().chain(&wanted.selectors);
    all.filter_map(|Selector(expression)| expression.as_ref())
}

/// A selector, and what it says of each device.
struct Decider<'a> {
    is_of_class: bool,
    at: usize,
    verdicts: &'a Verdicts,
}

/// The selectors of a class, then those of a request.
fn deciders<'a>(
    selectors: &'a Selectors,
    wanted: &Wanted,
    class: &DeviceClassFacts,
) -> Vec<Decider<'a>> {
    let mut deciders = Vec::new();
    for (is_of_class, list) in [(true, &class.selectors), (false, &wanted.selectors)] {
        for (at, Selector(expression)) in list.iter().enumerate() {
            // A selector of an unknown kind is a problem of the claim, found before any search.
            let Some(expression) = expression else { continue };
            let Some(verdicts) = selectors.get(expression) else {
                unreachable!("every expression is evaluated before it is read");
            };
            deciders.push(Decider { is_of_class, at, verdicts });
        }
    }
    deciders
}

impl Decider<'_> {
    fn error(&self, problem: SelectorFailure) -> SelectorError {
        SelectorError { is_of_class: self.is_of_class, at: self.at, problem }
    }

    /// Why the selector fails on a device.
    fn error_on(&self, device: DeviceIdx) -> SelectorError {
        self.error(match self.verdicts {
            Verdicts::CompileError(text) => SelectorFailure::Compile(text.clone()),
            Verdicts::Postponed(_) => SelectorFailure::TooComplex,
            Verdicts::Each(each) => match each.problem(device) {
                Some(VerdictProblem::Fails(text)) => SelectorFailure::Evaluate(text.clone()),
                Some(VerdictProblem::TooComplex) | None => SelectorFailure::TooComplex,
            },
        })
    }
}

/// The devices for which all selectors hold, those on which one fails before another does not hold, and why it
/// fails there.
fn decide(
    n_devices: usize,
    deciders: &[Decider<'_>],
) -> (FixedBitSet, FixedBitSet, Vec<(DeviceIdx, SelectorError)>) {
    let mut undecided = FixedBitSet::with_capacity(n_devices);
    undecided.insert_range(..);
    let mut fails = FixedBitSet::with_capacity(n_devices);
    let mut failing: Vec<(&Decider<'_>, FixedBitSet)> = Vec::new();
    for decider in deciders {
        let mut own = undecided.clone();
        if let Verdicts::Each(each) = decider.verdicts {
            own.intersect_with(each.fails());
            undecided.intersect_with(each.holds());
        } else {
            undecided.clear();
        }
        if !own.is_clear() {
            fails.union_with(&own);
            failing.push((decider, own));
        }
    }
    let mut errors: Vec<(DeviceIdx, SelectorError)> = Vec::new();
    for at in fails.ones() {
        let Some((decider, _)) = failing.iter().find(|(_, own)| own.contains(at)) else { continue };
        let error = decider.error_on(DeviceIdx::new(at));
        if errors.last().is_none_or(|(_, last)| *last != error) {
            errors.push((DeviceIdx::new(at), error));
        }
    }
    (undecided, fails, errors)
}

fn tolerates(wanted: &Wanted, device: &Device) -> bool {
    let mut taints = device.taints.iter();
    taints.all(|taint| wanted.tolerations.iter().any(|toleration| toleration.tolerates(taint)))
}

/// What all requests want.
#[derive(Clone, Debug, Default)]
pub struct AllWanted {
    rows: BTreeMap<Wanted, WantedIdx>,
    matching: Column<WantedIdx, Arc<Matching>>,
    /// The first row with what is decided of a request without its amounts, if it is decided.
    first_alike: BTreeMap<Wanted, WantedIdx>,
    /// What was known before, about the same devices and classes.
    known: BTreeMap<Wanted, Arc<Matching>>,
}

impl AllWanted {
    /// The row of what a request wants, added if it is new. `budget` is the cost that the evaluation of new
    /// expressions may have; what is used of it is taken away.
    pub fn row(
        &mut self,
        inventory: &Inventory,
        selectors: &mut Selectors,
        (wanted, class): (&Wanted, &Arc<DeviceClassFacts>),
        budget: &mut u64,
    ) -> WantedIdx {
        if let Some(row) = self.rows.get(wanted) {
            return *row;
        }
        let known = self.known.remove(wanted);
        let alike = without_amounts(wanted);
        // What one namespace has no budget left for, another may have.
        let is_final = |row: &WantedIdx| self.matching[*row].decided.is_final;
        let first = self.first_alike.get(&alike).copied().filter(is_final);
        let matching = known.unwrap_or_else(|| {
            let decided = match first {
                Some(first) => Arc::clone(&self.matching[first].decided),
                None => Arc::new(Decided::new(inventory, selectors, (wanted, &**class), budget)),
            };
            let (wanted, class) = (wanted.clone(), Arc::clone(class));
            Arc::new(Matching { wanted, class, decided })
        });
        let row = self.matching.push(matching);
        if first.is_none() {
            self.first_alike.insert(alike, row);
        }
        self.rows.insert(wanted.clone(), row);
        row
    }

    /// The first row of a request that admits the same devices.
    pub fn first_alike(&self, row: WantedIdx) -> WantedIdx {
        self.first_alike.get(&without_amounts(&self.matching[row].wanted)).copied().unwrap_or(row)
    }

    /// Starts again without rows, with what is known. Expressions are forgotten that no row needed. Those of rows that
    /// are not decided yet are kept: the next session continues with them.
    #[must_use]
    pub fn again(&self, selectors: &mut Selectors) -> Self {
        let matching = self.matching.values();
        let used = matching.flat_map(|matching| expressions(&matching.wanted, &matching.class));
        let used: BTreeSet<&Name> = used.collect();
        selectors.retain(|expression| used.contains(expression));
        let known = self.rows.iter().map(|(wanted, row)| (wanted.clone(), &self.matching[*row]));
        let known = known.filter(|(_, matching)| matching.decided.is_final);
        let known: BTreeMap<Wanted, Arc<Matching>> =
            known.map(|(wanted, matching)| (wanted, Arc::clone(matching))).collect();
        Self { known, ..Self::default() }
    }

    /// Whether expressions are postponed to the next session: it may give other answers.
    pub fn has_postponed(&self) -> bool {
        self.matching.values().any(|matching| !matching.decided.is_final)
    }

    /// Which devices are what a request wants.
    pub fn get(&self, row: WantedIdx) -> &Matching {
        &self.matching[row]
    }
}
