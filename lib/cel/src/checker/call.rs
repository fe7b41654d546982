//! Calls of functions and methods.

use crate::{
    ast::Expression,
    checker::{Checker, Typed, qualified_name},
    error::CompileError,
    functions,
    meter::Meter,
    node::Node,
    overload::Overload,
    pattern::{Draft, MAX_BUILD},
    types::Type,
    value::Value,
};

/// Conversions, which cel-go calls when it compiles if the argument is constant.
const CONVERSIONS: [&str; 10] =
    ["bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"];

/// Functions whose second argument is a regular expression.
const SEARCHES: [&str; 3] = ["matches", "find", "findAll"];

impl Checker<'_> {
    pub(super) fn call(
        &mut self,
        offset: usize,
        receiver: Option<&Expression>,
        function: &str,
        arguments: &[Expression],
    ) -> Typed {
        // `a.b.c()` is the function `a.b.c`, if there is one, and else the method `c` of `a.b`.
        let qualified = receiver
            .and_then(qualified_name)
            .map(|name| format!("{}.{function}", name.trim_start_matches('.')))
            .filter(|name| functions::named(name).is_some());
        if let Some(name) = qualified {
            return self.apply(offset, &name, None, arguments);
        }
        self.apply(offset, function, receiver, arguments)
    }

    fn apply(
        &mut self,
        offset: usize,
        function: &str,
        receiver: Option<&Expression>,
        arguments: &[Expression],
    ) -> Typed {
        let is_format = function == "format";
        self.format_depth += usize::from(is_format);
        let mut types = Vec::with_capacity(arguments.len() + 1);
        let mut nodes = Vec::with_capacity(arguments.len() + 1);
        for argument in receiver.into_iter().chain(arguments) {
            let (of, node) = self.check(argument)?;
            types.push(of);
            nodes.push(node);
        }
        self.format_depth -= usize::from(is_format);
        let (result, overloads) = self.resolve(offset, function, receiver.is_some(), &types)?;
        if is_format {
            self.remember_format(offset, &nodes, arguments);
        }
        let first_offset =
            receiver.into_iter().chain(arguments).next().map_or(offset, |e| e.offset);
        if SEARCHES.contains(&function) {
            let pattern = receiver.into_iter().chain(arguments).nth(1);
            self.compile_pattern(pattern.map_or(offset, |e| e.offset), &nodes)?;
        }
        let node = if CONVERSIONS.contains(&function) {
            self.convert(first_offset, function, overloads, nodes)?
        } else {
            call_node(function, overloads, nodes)
        };
        Ok((result, node))
    }

    /// Compiles a constant regular expression.
    fn compile_pattern(&mut self, offset: usize, nodes: &[Node]) -> Result<(), CompileError> {
        let Some(Value::String(text)) = nodes.get(1).and_then(Node::constant) else {
            return Ok(());
        };
        if self.patterns.iter().any(|(known, _)| known == text) {
            return Ok(());
        }
        let invalid = |error| format!("invalid matches argument: {error}");
        let draft = Draft::new(text).map_err(|error| self.fail(offset, invalid(error)))?;
        let work = self.pattern_work.saturating_add(draft.work());
        if work > MAX_BUILD {
            return Err(self.fail(offset, "the regular expressions are too large together"));
        }
        self.pattern_work = work;
        let pattern = draft.build().map_err(|error| self.fail(offset, invalid(error)))?;
        self.patterns.push((text.clone(), pattern.into()));
        Ok(())
    }

    /// Calls a conversion of a constant at once.
    fn convert(
        &self,
        offset: usize,
        function: &str,
        overloads: Vec<&'static Overload>,
        nodes: Vec<Node>,
    ) -> Result<Node, CompileError> {
        let [Node::Constant(value)] = &nodes[..] else {
            return Ok(call_node(function, overloads, nodes));
        };
        let arguments = std::slice::from_ref(value);
        let Some(overload) = overloads.iter().find(|overload| overload.accepts(arguments)) else {
            let message = format!("no such overload: {function}({})", value.type_name());
            return Err(self.fail(offset, message));
        };
        let mut meter = Meter::new(u64::MAX, [].into());
        match (overload.run)(&mut meter, arguments) {
            Ok(result) => Ok(Node::Constant(result)),
            Err(error) => Err(self.fail(offset, format!("invalid {function} argument: {error}"))),
        }
    }
}

fn call_node(function: &str, overloads: Vec<&'static Overload>, nodes: Vec<Node>) -> Node {
    match (function, <[Node; 2]>::try_from(nodes)) {
        ("or", Ok([operand, other])) => {
            Node::OptionalOr { operand: operand.into(), other: other.into() }
        }
        ("orValue", Ok([operand, other])) => {
            Node::OptionalOrValue { operand: operand.into(), other: other.into() }
        }
        // cel-go does not even evaluate the value.
        ("@in", Ok([_, Node::Constant(Value::List(of))])) if of.is_empty() => {
            Node::Constant(Value::Bool(false))
        }
        ("@in", Ok([value, Node::Constant(Value::List(of))])) if of.iter().all(is_simple) => {
            Node::Member { value: value.into(), of }
        }
        (_, Ok(two)) => Node::Call { overloads, arguments: Vec::from(two) },
        (_, Err(arguments)) => Node::Call { overloads, arguments },
    }
}

/// Whether cel-go can look the value up in a set of constants.
const fn is_simple(value: &Value<'_>) -> bool {
    matches!(
        value,
        Value::Bool(_) | Value::Int(_) | Value::UInt(_) | Value::Double(_) | Value::String(_)
    )
}

/// The receiver of a call, if it is a constant text.
pub(super) fn constant_text(nodes: &[Node]) -> Option<std::sync::Arc<str>> {
    match nodes.first().and_then(Node::constant) {
        Some(Value::String(text)) => Some(text.clone()),
        _ => None,
    }
}

/// Whether a type is one of those that a clause of `format` accepts. Unknown types are.
pub(super) fn is_one_of(found: &Type, accepted: &[Type]) -> bool {
    matches!(found, Type::Dyn | Type::Param(_))
        || accepted.iter().any(|of| of.name() == found.name())
}
