//! The selectors of classes and requests, evaluated on every device.
//!
//! An expression is evaluated once for each distinct tuple of the values that it reads: a cluster has
//! thousands of devices, but few models. Devices are evaluated before any search, and the search looks at the
//! verdicts; an error counts only if a search reaches the device.

use std::collections::BTreeMap;

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

/// The cost of an expression on all devices together, beyond which it is not evaluated any further: about
/// 50 ms. Guessed.
const TOTAL_COST_LIMIT: u64 = 4_000_000;

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
    /// One verdict for each device.
    Each(Column<DeviceIdx, Verdict>),
}

/// The value of something that an expression reads.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Value {
    Absent,
    Driver(Name),
    Flag(bool),
    Attribute(AttributeValue),
    Capacity(Quantity),
}

/// Expressions and what they say, kept while the devices stay the same.
#[derive(Debug, Default)]
pub struct Selectors {
    by_expression: BTreeMap<Name, Verdicts>,
}

impl Selectors {
    /// Evaluates an expression, unless it has been.
    pub fn evaluate(&mut self, inventory: &Inventory, expression: &Name) -> &Verdicts {
        self.by_expression
            .entry(expression.clone())
            .or_insert_with(|| evaluate(inventory, expression))
    }

    /// What an expression says that has been evaluated.
    pub fn get(&self, expression: &Name) -> Option<&Verdicts> {
        self.by_expression.get(expression)
    }
}

fn evaluate(inventory: &Inventory, expression: &Name) -> Verdicts {
    let program = match Program::compile(expression) {
        Ok(program) => program,
        Err(error) => return Verdicts::CompileError(Name::from(error.to_string())),
    };
    let mut known = BTreeMap::<Vec<Value>, Verdict>::new();
    let mut cost = 0;
    let verdicts = inventory.devices().values().map(|device| {
        let (driver, facts) = (&device.id.driver, device.facts());
        let values = match program.reads() {
            Reads::Everything => None,
            Reads::Only(reads) => {
                Some(reads.iter().map(|read| value(driver, facts, read)).collect())
            }
        };
        if let Some(verdict) = values.as_ref().and_then(|values| known.get(values)) {
            return verdict.clone();
        }
        if cost > TOTAL_COST_LIMIT {
            return Verdict::TooComplex;
        }
        let verdict = evaluate_on(&program, driver, facts, &mut cost);
        if let Some(values) = values {
            known.insert(values, verdict.clone());
        }
        verdict
    });
    Verdicts::Each(verdicts.collect())
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

fn value(driver: &Name, facts: &DeviceFacts, read: &Read) -> Value {
    match read {
        Read::Driver => Value::Driver(driver.clone()),
        Read::AllowMultipleAllocations => Value::Flag(facts.allow_multiple_allocations),
        Read::Attribute { domain, name } => {
            let found = find(&facts.attributes, driver, (domain, name));
            found.map_or(Value::Absent, |value| Value::Attribute(value.clone()))
        }
        Read::Capacity { domain, name } => {
            let found = find(&facts.capacity, driver, (domain, name));
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
) -> Option<&'a T> {
    let qualified = format!("{domain}/{name}");
    let own = values.get(name).filter(|_| **driver == *domain);
    match (values.get(qualified.as_str()), own) {
        (Some(_), Some(own)) if name > qualified.as_str() => Some(own),
        (Some(found), _) => Some(found),
        (None, own) => own,
    }
}
