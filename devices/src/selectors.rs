//! The selectors of classes and requests, evaluated on every device.
//!
//! An expression is evaluated once for each distinct tuple of the values that it reads: a cluster has
//! thousands of devices, but few models. What compiling and evaluating may take is bounded, for each expression and
//! for all of one namespace in a cycle. An expression that is not finished then is continued in the next cycle.
//! Devices are evaluated before any search, and the search looks at the verdicts; an error counts only if a search
//! reaches the device.
//!
//! Costs are in units of about 10 ns, as those of the crate `kube_batch_cel`.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use fixedbitset::FixedBitSet;
use kube_batch_cel::{Attribute, Device as CelDevice, EvaluationError, Program, Read, Reads};
use kube_batch_model::{
    column::{Column, Ordinal},
    facts::device::slice::{AttributeValue, DeviceFacts},
    name::Name,
    quantity::Quantity,
    text::cut,
};

use crate::{
    inventory::{Device, Inventory},
    rows::DeviceIdx,
};

/// The cost at which the evaluation of an expression on one device ends with an error, as in Kubernetes.
const COST_LIMIT: u64 = 1_000_000;

/// The cost of an expression on all devices together, beyond which it is not evaluated any further: 20 ms, and 2.5 µs
/// for each device. Guessed.
fn total_cost_limit(inventory: &Inventory) -> u64 {
    2_000_000 + 250 * inventory.devices().len() as u64
}

/// What the expressions of one namespace may cost in a cycle, apart from the rest of the last of them: 13 ms, and 0.2 µs
/// for each device.
pub fn budget(inventory: &Inventory) -> u64 {
    1_300_000 + 20 * inventory.devices().len() as u64
}

/// What an expression may cost in a cycle at least, once it is begun: after it was compiled, some devices are evaluated.
const LEAST_OF_ONE: u64 = 300_000;

/// The cost of finding the group of a device and of recording its verdict. Measured, as those that follow.
const COST_OF_DEVICE: u64 = 4;
/// The cost of starting an evaluation.
const COST_OF_START: u64 = 20;
/// The cost of a value that an evaluation starts with.
const COST_OF_VALUE: u64 = 15;
/// The cost of finding a value of a device.
const COST_OF_READ: u64 = 18;
/// The cost of finding the group of a device from two values.
const COST_OF_PAIR: u64 = 12;

/// The most values by which devices are grouped. Beyond that each device is evaluated by itself: what grouping costs is
/// then no longer saved.
const MAX_GROUPED: usize = 8;

/// The longest text of an error that is kept, in bytes.
const MAX_ERROR: usize = 256;
/// The most different errors of an expression that are kept, in the order of devices.
const MAX_ERRORS: usize = 8;

/// What Kubernetes adds to an error about a missing key.
const MISSING_KEY_HINT: &str = ". consider using CEL optional chaining (.? followed by orValue()) or guarding the check with has() for optional fields";

/// Why an expression says nothing of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VerdictProblem {
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
    /// It is not evaluated on all devices yet: the budget was used up. Has what is known so far.
    Postponed(Each),
    /// One verdict for each device.
    Each(Each),
}

/// One verdict for each device, in a quarter of a byte: there can be thousands of expressions.
#[derive(Clone, Debug)]
pub struct Each {
    /// The devices for which the expression holds.
    holds: FixedBitSet,
    /// The devices on which it fails.
    fails: FixedBitSet,
    /// Why it fails. Each entry is about its device and those that fail after it, up to the next entry.
    problems: Vec<(DeviceIdx, VerdictProblem)>,
    /// The devices so far.
    n_devices: usize,
    /// What the evaluations have cost.
    cost: u64,
}

impl Each {
    fn none(inventory: &Inventory) -> Self {
        let empty = || FixedBitSet::with_capacity(inventory.devices().len());
        Self { holds: empty(), fails: empty(), problems: Vec::new(), n_devices: 0, cost: 0 }
    }

    /// The devices for which the expression holds.
    pub fn holds(&self) -> &FixedBitSet {
        &self.holds
    }

    /// The devices on which it fails.
    pub fn fails(&self) -> &FixedBitSet {
        &self.fails
    }

    /// Why it fails on a device. If it fails in many ways, the text may be that of a device before.
    pub fn problem(&self, device: DeviceIdx) -> Option<&VerdictProblem> {
        let next = self.problems.partition_point(|(first, _)| *first <= device);
        let (_, problem) = self.problems.get(next.checked_sub(1)?)?;
        self.fails.contains(device.at()).then_some(problem)
    }

    /// Adds the verdict about the next device.
    fn push(&mut self, verdict: Result<bool, VerdictProblem>) {
        let device = DeviceIdx::new(self.n_devices);
        self.n_devices += 1;
        match verdict {
            Ok(holds) => self.holds.set(device.at(), holds),
            Err(problem) => {
                self.fails.insert(device.at());
                let is_known = self.problems.last().is_some_and(|(_, last)| *last == problem);
                if !is_known && self.problems.len() < MAX_ERRORS {
                    self.problems.push((device, problem));
                }
            }
        }
    }

    /// The verdict about a device before.
    fn verdict(&self, device: DeviceIdx) -> Result<bool, VerdictProblem> {
        match self.problem(device) {
            Some(problem) => Err(problem.clone()),
            None => Ok(self.holds.contains(device.at())),
        }
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
    /// What drivers have published of any device. What no device has is the same for all.
    published: Option<Arc<BTreeSet<Read>>>,
    /// The values of all devices, as numbers: equal ones have the same number. There are as many columns as drivers
    /// publish names, whatever expressions read.
    values: BTreeMap<Read, Arc<Column<DeviceIdx, u32>>>,
}

impl Selectors {
    /// Evaluates an expression, unless it has been. Takes what that costs from `budget`. If that is used up, the expression
    /// is postponed; if it is used up later, the rest of the devices are.
    pub fn evaluate(
        &mut self,
        inventory: &Inventory,
        expression: &Name,
        budget: &mut u64,
    ) -> &Verdicts {
        let each = match self.by_expression.get(expression).map(|known| &**known) {
            Some(Verdicts::CompileError(_) | Verdicts::Each(_)) => None,
            Some(Verdicts::Postponed(each)) if *budget > 0 => Some(each.clone()),
            Some(Verdicts::Postponed(_)) => None,
            None => Some(Each::none(inventory)),
        };
        if let Some(each) = each {
            let verdicts = match *budget {
                0 => Verdicts::Postponed(each),
                _ => self.evaluated(inventory, expression, each, budget),
            };
            self.by_expression.insert(expression.clone(), Arc::new(verdicts));
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
        mut each: Each,
        budget: &mut u64,
    ) -> Verdicts {
        let compilation = Program::compile_metered(expression);
        take(budget, compilation.work);
        let program = match compilation.program {
            Ok(program) => program,
            Err(error) => return Verdicts::CompileError(Name::from(error.to_string())),
        };
        let plan = self.plan(inventory, &program, budget);
        take(budget, COST_OF_DEVICE * inventory.devices().len() as u64);
        let allowed = LEAST_OF_ONE.max(*budget);
        let cost_before = each.cost;
        plan.evaluate(inventory, &program, allowed, &mut each);
        take(budget, each.cost - cost_before);
        if each.n_devices < inventory.devices().len() {
            return Verdicts::Postponed(each);
        }
        Verdicts::Each(each)
    }

    /// The devices on which the answer must be the same.
    fn plan(&mut self, inventory: &Inventory, program: &Program, budget: &mut u64) -> Plan {
        let by_itself = || (0..inventory.devices().len() as u32).collect();
        let Reads::Only(reads) = program.reads() else {
            return Plan { groups: by_itself(), reads: None };
        };
        let published =
            Arc::clone(self.published.get_or_insert_with(|| Arc::new(published(inventory))));
        let reads: Vec<Read> =
            reads.iter().filter(|read| published.contains(read)).cloned().collect();
        let groups = match &reads[..] {
            _ if reads.len() > MAX_GROUPED => by_itself(),
            [] => Column::filled(0, inventory.devices().len()),
            [first, others @ ..] => {
                let mut groups = self.values(inventory, first, budget).clone();
                for read in others {
                    take(budget, COST_OF_PAIR * groups.len() as u64);
                    groups = combined(&groups, self.values(inventory, read, budget));
                }
                groups
            }
        };
        Plan { groups, reads: Some(reads) }
    }

    /// The values of devices that an expression reads.
    fn values(
        &mut self,
        inventory: &Inventory,
        read: &Read,
        budget: &mut u64,
    ) -> &Column<DeviceIdx, u32> {
        self.values.entry(read.clone()).or_insert_with(|| {
            take(budget, COST_OF_READ * inventory.devices().len() as u64);
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

const fn take(budget: &mut u64, cost: u64) {
    *budget = budget.saturating_sub(cost);
}

/// How an expression is evaluated on all devices.
struct Plan {
    /// Devices with the same number get the same answer. Numbers are in the order of their first devices.
    groups: Column<DeviceIdx, u32>,
    /// What it reads of a device; none if that may be everything.
    reads: Option<Vec<Read>>,
}

impl Plan {
    /// Evaluates the expression on the devices that are missing in `each`, until that has cost `allowed`.
    fn evaluate(&self, inventory: &Inventory, program: &Program, allowed: u64, each: &mut Each) {
        let stops_at = each.cost.saturating_add(allowed);
        let limit = total_cost_limit(inventory);
        let mut first_of_groups: Vec<DeviceIdx> = Vec::new();
        for (row, group) in self.groups.iter() {
            let first = first_of_groups.get(*group as usize).copied();
            if first.is_none() {
                first_of_groups.push(row);
            }
            if row.at() < each.n_devices {
                continue;
            }
            let verdict = match first {
                Some(first) => each.verdict(first),
                None if each.cost > limit => Err(VerdictProblem::TooComplex),
                None if each.cost > stops_at => return,
                None => self.evaluate_on(program, &inventory.devices()[row], &mut each.cost),
            };
            each.push(verdict);
        }
    }

    fn evaluate_on(
        &self,
        program: &Program,
        device: &Device,
        cost: &mut u64,
    ) -> Result<bool, VerdictProblem> {
        let (driver, facts) = (&device.id.driver, device.facts());
        let (device, n_values) = match &self.reads {
            Some(reads) => (cel_device_with(driver, facts, reads), reads.len()),
            None => (cel_device(driver, facts), facts.attributes.len() + facts.capacity.len()),
        };
        let evaluation = program.evaluate(&device, COST_LIMIT);
        *cost += evaluation.work + COST_OF_START + COST_OF_VALUE * n_values as u64;
        evaluation.outcome.map_err(|error| {
            let is_missing_key = matches!(error, EvaluationError::NoSuchKey(_));
            let hint = if is_missing_key { MISSING_KEY_HINT } else { "" };
            VerdictProblem::Fails(Name::from(format!(
                "{}{hint}",
                cut(&error.to_string(), MAX_ERROR)
            )))
        })
    }
}

/// What devices have of what an expression can read.
fn published(inventory: &Inventory) -> BTreeSet<Read> {
    let mut published = BTreeSet::from([Read::Driver, Read::AllowMultipleAllocations]);
    let mut last: Option<&Device> = None;
    for device in inventory.devices().values() {
        // Devices of one model are often adjacent.
        if last.is_some_and(|last| has_same_names(last, device)) {
            continue;
        }
        last = Some(device);
        let split = |name: &Name| {
            let (domain, name) = name.split_once('/').unwrap_or((&device.id.driver, name));
            (domain.into(), name.into())
        };
        let attributes = device.facts().attributes.keys().map(split);
        published.extend(attributes.map(|(domain, name)| Read::Attribute { domain, name }));
        let capacity = device.facts().capacity.keys().map(split);
        published.extend(capacity.map(|(domain, name)| Read::Capacity { domain, name }));
    }
    published
}

fn has_same_names(left: &Device, right: &Device) -> bool {
    left.id.driver == right.id.driver
        && left.facts().attributes.keys().eq(right.facts().attributes.keys())
        && left.facts().capacity.keys().eq(right.facts().capacity.keys())
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

/// The device as an expression sees it.
fn cel_device(driver: &Name, facts: &DeviceFacts) -> CelDevice {
    let attributes =
        facts.attributes.iter().filter_map(|(name, value)| Some((&**name, cel_attribute(value)?)));
    let capacity = facts.capacity.iter().map(|(name, capacity)| (&**name, capacity.value));
    CelDevice::new(driver, facts.allow_multiple_allocations, attributes, capacity)
}

/// The device, with nothing but what an expression reads: it gets the same answer.
fn cel_device_with(driver: &Name, facts: &DeviceFacts, reads: &[Read]) -> CelDevice {
    let (mut attributes, mut capacity) = (Vec::new(), Vec::new());
    for read in reads {
        let qualified = qualified(read);
        match value(driver, facts, (read, &qualified)) {
            Value::Attribute(value) => {
                attributes.extend(cel_attribute(value).map(|value| (qualified, value)));
            }
            Value::Capacity(amount) => capacity.push((qualified, amount)),
            Value::Absent | Value::Driver(_) | Value::Flag(_) => {}
        }
    }
    let attributes = attributes.iter().map(|(name, value)| (&**name, value.clone()));
    let capacity = capacity.iter().map(|(name, amount)| (&**name, *amount));
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
