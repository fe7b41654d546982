//! The selectors of classes and requests, evaluated on every device.
//!
//! An expression is evaluated once for each distinct tuple of the values that it reads: a cluster has
//! thousands of devices, but few models. What evaluations may cost is bounded, for each expression and for all new
//! ones together. Devices are evaluated before any search, and the search looks at the
//! verdicts; an error counts only if a search reaches the device.

use std::{collections::BTreeMap, sync::Arc};

use kube_batch_api::{
    column::Column,
    facts::device::slice::{AttributeValue, DeviceFacts},
    name::Name,
    quantity::Quantity,
};
use kube_batch_cel::{Attribute, Device as CelDevice, Program, Read, Reads};

use crate::{inventory::Inventory, rows::DeviceIdx};

/// The cost at which the evaluation of an expression on one device ends with an error, as in Kubernetes.
const COST_LIMIT: u64 = 1_000_000;

/// The cost of an expression on all devices together, beyond which it is not evaluated any further: 5 ms, and about
/// 0.3 µs for each device. Guessed.
fn total_cost_limit(inventory: &Inventory) -> u64 {
    500_000 + 25 * inventory.devices().len() as u64
}

/// What the new expressions of one namespace may cost in a cycle: enough for a costly one, or for several cheap ones.
pub fn budget(inventory: &Inventory) -> u64 {
    most_of_one(inventory) * 3 / 2
}

/// The most that one expression costs.
fn most_of_one(inventory: &Inventory) -> u64 {
    total_cost_limit(inventory)
        + (COST_OF_DEVICE + COST_OF_START) * inventory.devices().len() as u64
}

/// The cost of finding the group of a device and of recording its verdict, in steps of an evaluation. Measured.
const COST_OF_DEVICE: u64 = 4;
/// The cost of starting an evaluation, in the same unit.
const COST_OF_START: u64 = 25;

/// What Kubernetes adds to an error about a missing key.
const MISSING_KEY_HINT: &str = ". consider using CEL optional chaining (.? followed by orValue()) or guarding the check with has() for optional fields";

/// What an expression says of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It holds, or not.
    Is(bool),
    /// It cannot be evaluated, and why.
    Fails(Name),
    /// Evaluating it on the devices before has cost too much.
    TooComplex,
}

/// What an expression says of every device.
#[derive(Debug)]
pub enum Verdicts {
    /// It does not compile, and why.
    CompileError(Name),
    /// It has not been evaluated: others have used up the budget.
    Postponed,
    /// One verdict for each device.
    Each(Each),
}

/// One verdict for each device. Devices for which it must be the same share one.
#[derive(Debug)]
pub struct Each {
    groups: Column<DeviceIdx, u32>,
    verdicts: Vec<Verdict>,
}

impl Each {
    /// The verdict about a device.
    pub fn of(&self, device: DeviceIdx) -> &Verdict {
        &self.verdicts[self.groups[device] as usize]
    }
}

/// The value of something that an expression reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Value<'a> {
    Absent,
    Driver(&'a Name),
    Flag(bool),
    Attribute(&'a AttributeValue),
    Capacity(Quantity),
}

/// Expressions and what they say, kept while the devices stay the same.
#[derive(Clone, Debug, Default)]
pub struct Selectors {
    by_expression: BTreeMap<Name, Arc<Verdicts>>,
    /// The values of all devices, as numbers: equal ones have the same number.
    values: BTreeMap<Read, Arc<Column<DeviceIdx, u32>>>,
}

impl Selectors {
    /// Evaluates an expression, unless it has been. Takes what that costs from `budget`; it is postponed if the
    /// budget could be exceeded.
    pub fn evaluate(
        &mut self,
        inventory: &Inventory,
        expression: &Name,
        budget: &mut u64,
    ) -> &Verdicts {
        let known = self.by_expression.get(expression);
        if known.is_none_or(|known| matches!(**known, Verdicts::Postponed)) {
            let verdicts = Arc::new(self.evaluated(inventory, expression, budget));
            self.by_expression.insert(expression.clone(), verdicts);
        }
        &self.by_expression[expression]
    }

    /// What an expression says that has been evaluated.
    pub fn get(&self, expression: &Name) -> Option<&Verdicts> {
        self.by_expression.get(expression).map(|verdicts| &**verdicts)
    }

    /// Forgets all expressions that `is_used` does not pick.
    pub(crate) fn retain(&mut self, is_used: impl Fn(&Name) -> bool) {
        self.by_expression.retain(|expression, _| is_used(expression));
    }

    fn evaluated(
        &mut self,
        inventory: &Inventory,
        expression: &Name,
        budget: &mut u64,
    ) -> Verdicts {
        if *budget < most_of_one(inventory) {
            return Verdicts::Postponed;
        }
        *budget -= COST_OF_DEVICE * inventory.devices().len() as u64;
        let program = match Program::compile(expression) {
            Ok(program) => program,
            Err(error) => return Verdicts::CompileError(Name::from(error.to_string())),
        };
        let groups = match program.reads() {
            Reads::Everything => (0..inventory.devices().len() as u32).collect(),
            Reads::Only(reads) => {
                let mut reads = reads.iter();
                let mut groups = match reads.next() {
                    Some(first) => self.values(inventory, first).clone(),
                    None => Column::filled(0, inventory.devices().len()),
                };
                for read in reads {
                    groups = combined(&groups, self.values(inventory, read));
                }
                groups
            }
        };
        let (mut verdicts, mut cost) = (Vec::<Verdict>::new(), 0);
        let limit = total_cost_limit(inventory);
        for (row, group) in groups.iter() {
            // Groups are numbered in the order of their first devices.
            if *group as usize == verdicts.len() {
                let device = &inventory.devices()[row];
                verdicts.push(match cost > limit {
                    true => Verdict::TooComplex,
                    false => evaluate_on(&program, &device.id.driver, device.facts(), &mut cost),
                });
            }
        }
        *budget = budget.saturating_sub(cost + COST_OF_START * verdicts.len() as u64);
        Verdicts::Each(Each { groups, verdicts })
    }

    /// The values of devices that an expression reads.
    fn values(&mut self, inventory: &Inventory, read: &Read) -> &Column<DeviceIdx, u32> {
        self.values.entry(read.clone()).or_insert_with(|| {
            let mut numbers = BTreeMap::new();
            let qualified = qualified(read);
            let mut of_devices = Column::new();
            for device in inventory.devices().values() {
                let value = value(&device.id.driver, device.facts(), (read, &qualified));
                let next = numbers.len() as u32;
                of_devices.push(*numbers.entry(value).or_insert(next));
            }
            Arc::new(of_devices)
        })
    }
}

/// Numbers for pairs of numbers, in the order of their first devices.
fn combined(
    groups: &Column<DeviceIdx, u32>,
    values: &Column<DeviceIdx, u32>,
) -> Column<DeviceIdx, u32> {
    let mut numbers = BTreeMap::new();
    let mut last = None;
    let pairs = groups.values().zip(values.values()).map(|(group, value)| (*group, *value));
    let number = |pair: (u32, u32)| match last {
        // Devices of one model are often adjacent.
        Some((known, number)) if known == pair => number,
        _ => {
            let next = numbers.len() as u32;
            let number = *numbers.entry(pair).or_insert(next);
            last = Some((pair, number));
            number
        }
    };
    pairs.map(number).collect()
}

fn evaluate_on(program: &Program, driver: &Name, facts: &DeviceFacts, cost: &mut u64) -> Verdict {
    let evaluation = program.evaluate(&cel_device(driver, facts), COST_LIMIT);
    *cost += evaluation.cost;
    match evaluation.outcome {
        Ok(holds) => Verdict::Is(holds),
        Err(error) => {
            let text = error.to_string();
            let hint = if text.starts_with("no such key: ") { MISSING_KEY_HINT } else { "" };
            Verdict::Fails(Name::from(format!("{text}{hint}")))
        }
    }
}

/// The device as an expression sees it.
fn cel_device(driver: &Name, facts: &DeviceFacts) -> CelDevice {
    let attributes =
        facts.attributes.iter().filter_map(|(name, value)| Some((&**name, cel_attribute(value)?)));
    let capacity = facts.capacity.iter().map(|(name, capacity)| (&**name, capacity.value));
    CelDevice::new(driver, facts.allow_multiple_allocations, attributes, capacity)
}

/// `None` for a version that is none: the API server rejects it.
fn cel_attribute(value: &AttributeValue) -> Option<Attribute> {
    Some(match value {
        AttributeValue::Int(value) => Attribute::Int(*value),
        AttributeValue::Bool(value) => Attribute::Bool(*value),
        AttributeValue::String(value) => Attribute::String(value.as_str().into()),
        AttributeValue::Version(value) => Attribute::version(value)?,
        AttributeValue::List(values) => {
            Attribute::List(values.iter().filter_map(cel_attribute).collect())
        }
    })
}

/// The name of what is read, with its domain.
fn qualified(read: &Read) -> String {
    match read {
        Read::Driver | Read::AllowMultipleAllocations => String::new(),
        Read::Attribute { domain, name } | Read::Capacity { domain, name } => {
            format!("{domain}/{name}")
        }
    }
}

fn value<'a>(
    driver: &'a Name,
    facts: &'a DeviceFacts,
    (read, qualified): (&Read, &str),
) -> Value<'a> {
    match read {
        Read::Driver => Value::Driver(driver),
        Read::AllowMultipleAllocations => Value::Flag(facts.allow_multiple_allocations),
        Read::Attribute { domain, name } => {
            let found = find(&facts.attributes, driver, (domain, name), qualified);
            found.map_or(Value::Absent, Value::Attribute)
        }
        Read::Capacity { domain, name } => {
            let found = find(&facts.capacity, driver, (domain, name), qualified);
            found.map_or(Value::Absent, |capacity| Value::Capacity(capacity.value))
        }
    }
}

/// A value by domain and name: names without a domain are in that of the driver. If a driver publishes both
/// forms of a name, the later one counts, as for [`CelDevice::new`].
fn find<'a, T>(
    values: &'a BTreeMap<Name, T>,
    driver: &Name,
    (domain, name): (&str, &str),
    qualified: &str,
) -> Option<&'a T> {
    let own = values.get(name).filter(|_| **driver == *domain);
    match (values.get(qualified), own) {
        (Some(_), Some(own)) if name > qualified => Some(own),
        (Some(found), _) => Some(found),
        (None, own) => own,
    }
}
