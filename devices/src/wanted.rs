//! What requests want, and which devices are what they want.
//!
//! Requests with equal fields share one row, whatever claim they are of: pods made from one template have
//! equal claims.

use std::{collections::BTreeMap, sync::Arc};

use fixedbitset::FixedBitSet;
use kube_batch_api::{
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
    selectors::{Selectors, Verdict, Verdicts},
};

/// Which devices are what a request wants, whether they are free or not.
#[derive(Debug)]
pub struct Matching {
    /// What is wanted.
    pub wanted: Wanted,
    /// Its class.
    pub class: Arc<DeviceClassFacts>,
    /// The devices for which every selector holds.
    matches: FixedBitSet,
    /// The devices on which a selector fails before another says no.
    fails: FixedBitSet,
    /// The devices of which every taint is tolerated.
    tolerated: FixedBitSet,
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
    pub problem: SelectorProblem,
}

/// What is wrong with a selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SelectorProblem {
    /// It does not compile.
    Compile(Name),
    /// It fails on the device.
    Evaluate(Name),
    /// Evaluating it on all devices costs too much.
    TooComplex,
}

impl Matching {
    fn new(
        inventory: &Inventory,
        selectors: &mut Selectors,
        wanted: Wanted,
        class: Arc<DeviceClassFacts>,
    ) -> Self {
        for expression in expressions(&wanted, &class) {
            selectors.evaluate(inventory, expression);
        }
        let n_devices = inventory.devices().len();
        let empty = || FixedBitSet::with_capacity(n_devices);
        let (mut matches, mut fails, mut tolerated) = (empty(), empty(), empty());
        for (row, device) in inventory.devices().iter() {
            match decide(selectors, &wanted, &class, row) {
                Ok(holds) => matches.set(row.at(), holds),
                Err(_) => fails.insert(row.at()),
            }
            tolerated.set(row.at(), tolerates(&wanted, device));
        }
        Self { wanted, class, matches, fails, tolerated }
    }

    /// What the selectors say of a device.
    pub fn of(&self, device: DeviceIdx) -> Match {
        if self.matches.contains(device.at()) {
            Match::Yes
        } else if self.fails.contains(device.at()) {
            Match::Fails
        } else {
            Match::No
        }
    }

    /// Why the selectors fail on a device; `None` if they do not.
    pub fn error(&self, selectors: &Selectors, device: DeviceIdx) -> Option<SelectorError> {
        decide(selectors, &self.wanted, &self.class, device).err()
    }

    /// Whether every taint of a device is tolerated.
    pub fn tolerates(&self, device: DeviceIdx) -> bool {
        self.tolerated.contains(device.at())
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

/// Whether all selectors hold for a device, up to the first that does not.
fn decide(
    selectors: &Selectors,
    wanted: &Wanted,
    class: &DeviceClassFacts,
    device: DeviceIdx,
) -> Result<bool, SelectorError> {
    for (is_of_class, list) in [(true, &class.selectors), (false, &wanted.selectors)] {
        for (at, Selector(expression)) in list.iter().enumerate() {
            // A selector of an unknown kind is a problem of the claim, found before any search.
            let Some(expression) = expression else { continue };
            let error = |problem| Err(SelectorError { is_of_class, at, problem });
            match selectors.get(expression) {
                Some(Verdicts::CompileError(text)) => {
                    return error(SelectorProblem::Compile(text.clone()));
                }
                Some(Verdicts::Each(verdicts)) => match &verdicts[device] {
                    Verdict::Is(true) => {}
                    Verdict::Is(false) => return Ok(false),
                    Verdict::Fails(text) => return error(SelectorProblem::Evaluate(text.clone())),
                    Verdict::TooComplex => return error(SelectorProblem::TooComplex),
                },
                None => unreachable!("every expression is evaluated before it is read"),
            }
        }
    }
    Ok(true)
}

fn tolerates(wanted: &Wanted, device: &Device) -> bool {
    let mut taints = device.taints.iter();
    taints.all(|taint| wanted.tolerations.iter().any(|toleration| toleration.tolerates(taint)))
}

/// What all requests want.
#[derive(Debug, Default)]
pub struct AllWanted {
    rows: BTreeMap<Wanted, WantedIdx>,
    matching: Column<WantedIdx, Matching>,
}

impl AllWanted {
    /// The row of what a request wants, added if it is new.
    pub fn row(
        &mut self,
        inventory: &Inventory,
        selectors: &mut Selectors,
        wanted: &Wanted,
        class: &Arc<DeviceClassFacts>,
    ) -> WantedIdx {
        if let Some(row) = self.rows.get(wanted) {
            return *row;
        }
        let matching = Matching::new(inventory, selectors, wanted.clone(), Arc::clone(class));
        let row = self.matching.push(matching);
        self.rows.insert(wanted.clone(), row);
        row
    }

    /// Which devices are what a request wants.
    pub fn get(&self, row: WantedIdx) -> &Matching {
        &self.matching[row]
    }
}
