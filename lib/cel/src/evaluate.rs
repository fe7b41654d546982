//! Evaluation of nodes.

mod fold;

use std::sync::Arc;

use crate::{
    ast::Access,
    device::Device,
    equality::{equal, index as index_of},
    error::EvaluationError,
    meter::Meter,
    node::Node,
    overload::Overload,
    value::{Entries, Key, Outcome, Value},
};

/// The state of one evaluation.
pub(crate) struct Evaluation<'a> {
    device: &'a Device,
    pub(crate) meter: Meter,
    /// The variables of macros, outermost first.
    locals: Vec<Local<'a>>,
    /// Nodes that are being evaluated within each other.
    depth: usize,
}

/// The variable of a macro.
#[derive(Clone, Debug)]
enum Local<'a> {
    Known(Outcome<'a>),
    /// A value of `cel.bind` that was not needed yet.
    Lazy(&'a Node),
    /// A value that costs something when it is needed first.
    Unpaid(Value<'a>, u64),
}

/// A value that is needed late is evaluated below the node that needs it, so that nodes can be
/// nested deeper than their tree is. The bound keeps the stack below a megabyte; cel-go has none.
const MAX_DEPTH: usize = 1000;

impl<'a> Evaluation<'a> {
    pub(crate) const fn new(device: &'a Device, meter: Meter) -> Self {
        Self { device, meter, locals: Vec::new(), depth: 0 }
    }

    pub(crate) fn evaluate(&mut self, node: &'a Node) -> Outcome<'a> {
        if self.depth == MAX_DEPTH {
            return Err(EvaluationError::CostLimitExceeded);
        }
        // cel-go charges nothing for constants, conditionals and the like.
        self.meter.work(1)?;
        self.depth += 1;
        let outcome = self.evaluate_node(node);
        self.depth -= 1;
        outcome
    }

    fn evaluate_node(&mut self, node: &'a Node) -> Outcome<'a> {
        match node {
            Node::Constant(value) => Ok(value.clone()),
            Node::Local(slot) => {
                self.meter.charge(1)?;
                self.local(*slot)
            }
            Node::Device => {
                self.meter.charge(1)?;
                Ok(Value::Device(self.device))
            }
            Node::Select { operand, field, access } => self.select(operand, field, *access),
            Node::Index { operand, index, access } => self.index(operand, index, *access),
            Node::Call { overloads, arguments } => self.call(overloads, arguments),
            Node::Member { value, of } => self.member(value, of),
            Node::And(terms) => self.decide(terms, false),
            Node::Or(terms) => self.decide(terms, true),
            Node::Conditional(parts) => self.conditional(parts),
            Node::List(elements) => self.list(elements),
            Node::Map(entries) => self.map(entries),
            Node::Fold(fold) => self.fold(fold),
            Node::Bind { value, body } => self.with_local(Local::Lazy(value), body),
            Node::OptionalMap { value, body, is_flat } => self.optional_map(value, body, *is_flat),
            Node::SortBy { value, body } => self.sort_by(value, body),
            Node::OptionalOr { operand, other } => match self.evaluate(operand)? {
                Value::Optional(None) => self.optional(other),
                Value::Optional(some) => Ok(Value::Optional(some)),
                _ => Err(EvaluationError::NoSuchOverload),
            },
            Node::OptionalOrValue { operand, other } => match self.evaluate(operand)? {
                Value::Optional(None) => self.evaluate(other),
                Value::Optional(Some(value)) => Ok((*value).clone()),
                _ => Err(EvaluationError::NoSuchOverload),
            },
        }
    }

    /// Evaluates `body` with one more variable.
    fn with_local(&mut self, local: Local<'a>, body: &'a Node) -> Outcome<'a> {
        let n_outer = self.locals.len();
        self.locals.push(local);
        let outcome = self.evaluate(body);
        self.locals.truncate(n_outer);
        outcome
    }

    fn local(&mut self, slot: usize) -> Outcome<'a> {
        let outcome = match self.locals.get(slot) {
            Some(Local::Known(outcome)) => return outcome.clone(),
            Some(Local::Unpaid(value, cost)) => {
                let (value, cost) = (value.clone(), *cost);
                self.meter.charge(cost)?;
                Ok(value)
            }
            Some(Local::Lazy(node)) => {
                let node = *node;
                // The value sees the variables around it, not those around its use.
                let inner = self.locals.split_off(slot);
                self.meter.work(inner.len())?;
                let outcome = self.evaluate(node);
                self.locals.truncate(slot);
                self.locals.extend(inner);
                outcome
            }
            None => return Err(EvaluationError::NoSuchOverload),
        };
        if let Some(local) = self.locals.get_mut(slot) {
            *local = Local::Known(outcome.clone());
        }
        outcome
    }

    fn optional(&mut self, node: &'a Node) -> Outcome<'a> {
        match self.evaluate(node)? {
            Value::Optional(value) => Ok(Value::Optional(value)),
            _ => Err(EvaluationError::NoSuchOverload),
        }
    }

    /// Evaluates what something is selected from. Selecting from a result that is no variable costs
    /// one more.
    fn operand(&mut self, node: &'a Node) -> Outcome<'a> {
        if !node.is_attribute() && !matches!(node, Node::Conditional(_)) {
            self.meter.charge(1)?;
        }
        self.evaluate(node)
    }

    fn select(&mut self, operand: &'a Node, field: &Arc<str>, access: Access) -> Outcome<'a> {
        let operand = self.operand(operand)?;
        let (value, access) = match (&operand, access) {
            (Value::Optional(inner), Access::Required) => (inner.as_deref(), Access::Optional),
            (Value::Optional(inner), access) => (inner.as_deref(), access),
            (value, access) => (Some(value), access),
        };
        if let Some(map) = value {
            self.meter.work_on_key(&Value::String(field.clone()), map)?;
        }
        let found = value.and_then(|value| value.field(field));
        if access == Access::Presence {
            return Ok(Value::Bool(found.is_some()));
        }
        if access == Access::Required || found.is_some() {
            self.meter.charge(1)?;
        }
        match (found, access) {
            (Some(found), Access::Required) => Ok(found),
            (None, Access::Required) => Err(EvaluationError::NoSuchKey(field.clone())),
            (found, _) => Ok(Value::Optional(found.map(Arc::new))),
        }
    }

    fn index(&mut self, operand: &'a Node, index: &'a Node, access: Access) -> Outcome<'a> {
        let operand = self.operand(operand)?;
        let key = self.evaluate(index)?;
        if index.is_attribute() {
            self.meter.refund(1);
        }
        let (value, access) = match (&operand, access) {
            (Value::Optional(inner), _) => (inner.as_deref(), Access::Optional),
            (value, access) => (Some(value), access),
        };
        if let Some(value) = value {
            self.meter.work_on_key(&key, value)?;
        }
        let found = value.map(|value| element(value, &key));
        if access == Access::Required || matches!(found, Some(Ok(_))) {
            self.meter.charge(1)?;
        }
        match (found, access) {
            (Some(outcome), Access::Required) => outcome,
            (Some(Ok(found)), _) => Ok(Value::some(found)),
            (Some(Err(EvaluationError::NoSuchOverload)), _) => Err(EvaluationError::NoSuchOverload),
            (Some(Err(_)) | None, _) => Ok(Value::Optional(None)),
        }
    }

    fn call(&mut self, overloads: &'a [&'static Overload], nodes: &'a [Node]) -> Outcome<'a> {
        match nodes {
            [] => self.apply(overloads, &[]),
            [only] => {
                let argument = self.argument(only, &[])?;
                self.apply(overloads, &[argument])
            }
            [first, second] => {
                let first = self.argument(first, std::slice::from_ref(second))?;
                let second = self.argument(second, &[])?;
                self.apply(overloads, &[first, second])
            }
            more => {
                let mut arguments = Vec::with_capacity(more.len());
                for (index, node) in more.iter().enumerate() {
                    arguments.push(self.argument(node, &more[index + 1..])?);
                }
                self.apply(overloads, &arguments)
            }
        }
    }

    /// Evaluates an argument. If that fails, cel-go still evaluates the others before it gives up,
    /// and charges for the call.
    fn argument(&mut self, node: &'a Node, others: &'a [Node]) -> Outcome<'a> {
        let outcome = self.evaluate(node);
        if outcome.is_err() {
            for other in others {
                if let Err(EvaluationError::CostLimitExceeded) = self.evaluate(other) {
                    return Err(EvaluationError::CostLimitExceeded);
                }
            }
            self.meter.charge(1)?;
        }
        outcome
    }

    fn apply(&mut self, overloads: &[&'static Overload], arguments: &[Value<'a>]) -> Outcome<'a> {
        let found = overloads.iter().find(|overload| overload.accepts(arguments));
        let outcome = match found {
            Some(overload) => self.run(overload, arguments),
            None => Err(EvaluationError::NoSuchOverload),
        };
        if outcome.is_err() {
            self.meter.charge(1)?;
        }
        outcome
    }

    fn run(&mut self, overload: &Overload, arguments: &[Value<'a>]) -> Outcome<'a> {
        for argument in arguments {
            self.meter.work_on_bytes(argument.bytes())?;
        }
        let result = (overload.run)(&mut self.meter, arguments)?;
        self.meter.work_on_bytes(result.bytes())?;
        let cost = (overload.cost)(&mut self.meter, arguments, &result)?;
        self.meter.charge(cost)?;
        Ok(result)
    }

    fn member(&mut self, value: &'a Node, of: &'a [Value<'static>]) -> Outcome<'a> {
        let value = self.evaluate(value)?;
        for element in of {
            self.meter.work(1)?;
            if equal(&value, element, &mut self.meter)? {
                return Ok(Value::Bool(true));
            }
        }
        Ok(Value::Bool(false))
    }

    /// `||` and `&&`: one operand that is `decisive` is the answer, whatever errors others have.
    fn decide(&mut self, terms: &'a [Node], decisive: bool) -> Outcome<'a> {
        let mut outcome = Ok(Value::Bool(!decisive));
        for term in terms {
            let n_locals = self.locals.len();
            match self.boolean(term) {
                Ok(value) if value == decisive => return Ok(Value::Bool(decisive)),
                Ok(_) => {}
                Err(EvaluationError::CostLimitExceeded) => {
                    return Err(EvaluationError::CostLimitExceeded);
                }
                Err(error) => {
                    self.locals.truncate(n_locals);
                    outcome = outcome.and(Err(error));
                }
            }
        }
        outcome
    }

    fn boolean(&mut self, node: &'a Node) -> Result<bool, EvaluationError> {
        match self.evaluate(node)? {
            Value::Bool(value) => Ok(value),
            _ => Err(EvaluationError::NoSuchOverload),
        }
    }

    /// cel-go does not charge for a variable that is chosen.
    fn conditional(&mut self, parts: &'a [Node; 3]) -> Outcome<'a> {
        let [condition, then, otherwise] = parts;
        let chosen = if self.boolean(condition)? { then } else { otherwise };
        let value = self.evaluate(chosen)?;
        if chosen.is_attribute() {
            self.meter.refund(1);
        }
        Ok(value)
    }

    fn list(&mut self, elements: &'a [(Node, bool)]) -> Outcome<'a> {
        self.meter.work_on_values(elements.len())?;
        let mut values = Vec::with_capacity(elements.len());
        for (node, is_optional) in elements {
            match (self.evaluate(node)?, is_optional) {
                (value, false) => values.push(value),
                (Value::Optional(value), true) => values.extend(value.as_deref().cloned()),
                _ => return Err(EvaluationError::NoSuchOverload),
            }
        }
        self.meter.charge(10)?;
        Ok(Value::list(values))
    }

    fn map(&mut self, entries: &'a [(Node, Node, bool)]) -> Outcome<'a> {
        let mut map = Entries::new();
        for (key, value, is_optional) in entries {
            let key = self.evaluate(key)?;
            self.meter.work_on_entry(&key, map.len())?;
            let key = Key::of(&key).ok_or(EvaluationError::NoSuchOverload)?;
            match (self.evaluate(value)?, is_optional) {
                (value, false) => drop(map.insert(key, value)),
                (Value::Optional(Some(value)), true) => drop(map.insert(key, (*value).clone())),
                (Value::Optional(None), true) => drop(map.remove(&key)),
                _ => return Err(EvaluationError::NoSuchOverload),
            }
        }
        self.meter.charge(30)?;
        Ok(Value::map(map))
    }
}

/// The element of a list or the entry of a map.
fn element<'a>(value: &Value<'a>, key: &Value<'_>) -> Outcome<'a> {
    if let Value::List(elements) = value {
        let index = index_of(key).ok_or(EvaluationError::NoSuchOverload)?;
        let found = usize::try_from(index).ok().and_then(|index| elements.get(index));
        return found
            .cloned()
            .ok_or_else(|| EvaluationError::invalid(format!("index out of bounds: {index}")));
    }
    value.entry(key).ok_or_else(|| match Key::of(key) {
        Some(Key::String(name)) => EvaluationError::NoSuchKey(name),
        Some(Key::Int(number)) => EvaluationError::NoSuchKey(number.to_string().into()),
        Some(Key::UInt(number)) => EvaluationError::NoSuchKey(number.to_string().into()),
        Some(Key::Bool(value)) => EvaluationError::NoSuchKey(value.to_string().into()),
        None => EvaluationError::NoSuchOverload,
    })
}
