//! Static types: from a syntax tree to nodes that can be evaluated.
//!
//! The rules are those of cel-go's `checker/checker.go`, with the options that Kubernetes sets:
//! literals of lists and maps have elements of one type, and constant regular expressions,
//! durations and timestamps must be valid.

mod call;
mod fold;
mod literal;
mod pending;

use std::sync::Arc;

use crate::{
    ast::{Access, Expression, Kind, Literal},
    error::CompileError,
    node::Node,
    overload::Overload,
    pattern::Pattern,
    types::Type,
    unify::{Unifier, instantiate},
    value::Value,
};

/// A checked expression and what it needs to be evaluated.
#[derive(Debug)]
pub(crate) struct Checked {
    pub(crate) node: Node,
    /// The constant regular expressions.
    pub(crate) patterns: Arc<[(Arc<str>, Arc<Pattern>)]>,
}

/// Checks an expression that selects devices.
///
/// # Errors
///
/// The first problem: a name that is not declared, a field that is not defined, types that do not
/// agree, a constant that is not valid, or a result that cannot be a boolean.
///
/// Adds to `work` what checking takes, also if it fails, in units of about 10 ns.
pub(crate) fn check(
    source: &str,
    expression: &Expression,
    work: &mut u64,
) -> Result<Checked, CompileError> {
    let mut checker = Checker::new(source);
    let checked = checker.check_all(expression);
    *work += WORK_OF_STEP * u64::from(checker.unifier.steps()) + checker.pattern_work;
    Ok(Checked { node: checked?, patterns: checker.patterns.into() })
}

/// The work of a step of the unifier. Measured.
const WORK_OF_STEP: u64 = 2;

struct Checker<'s> {
    source: &'s str,
    unifier: Unifier,
    /// The variables of macros, outermost first.
    scope: Vec<(Arc<str>, Type)>,
    /// What is checked when all types are known.
    literals: Vec<pending::Pending>,
    patterns: Vec<(Arc<str>, Arc<Pattern>)>,
    /// What building the constant regular expressions takes.
    pattern_work: u64,
    /// How many calls of `format` are around: their lists may be mixed.
    format_depth: usize,
    /// The lists and maps within calls of `format`: where they are, and what is in them.
    format_literals: Vec<(usize, Vec<(usize, Type)>)>,
}

type Typed = Result<(Type, Node), CompileError>;

impl<'s> Checker<'s> {
    fn new(source: &'s str) -> Self {
        Self {
            source,
            unifier: Unifier::default(),
            scope: Vec::new(),
            literals: Vec::new(),
            patterns: Vec::new(),
            pattern_work: 0,
            format_depth: 0,
            format_literals: Vec::new(),
        }
    }

    fn check_all(&mut self, expression: &Expression) -> Result<Node, CompileError> {
        let (result, node) = self.check(expression)?;
        self.check_literals()?;
        let result = self.unifier.substitute(&result);
        if self.unifier.is_exhausted() {
            return Err(self.too_complex(0));
        }
        if !matches!(result, Type::Bool | Type::Dyn | Type::Param(_)) {
            let message = format!("must evaluate to bool or the unknown type, not {result}");
            return Err(self.fail(0, message));
        }
        Ok(node)
    }

    fn fail(&self, offset: usize, message: impl Into<String>) -> CompileError {
        CompileError::at(self.source, offset, message.into())
    }

    fn undeclared(&self, offset: usize, name: &str) -> CompileError {
        self.fail(offset, format!("undeclared reference to '{name}' (in container '')"))
    }

    fn mismatch(&self, offset: usize, expected: &Type, found: &Type) -> CompileError {
        self.fail(offset, format!("expected type '{expected}' but found '{found}'"))
    }

    fn too_complex(&self, offset: usize) -> CompileError {
        self.fail(offset, "the types of the expression are too complex")
    }

    fn assignable(&mut self, from: &Type, to: &Type) -> bool {
        self.unifier.assignable(std::iter::once((from, to)))
    }

    fn check(&mut self, expression: &Expression) -> Typed {
        if self.unifier.is_exhausted() {
            return Err(self.too_complex(expression.offset));
        }
        match &expression.kind {
            Kind::Literal(literal) => Ok(constant(literal)),
            Kind::Identifier(name) => self
                .identifier(name)
                .ok_or_else(|| self.undeclared(expression.offset, name.trim_start_matches('.'))),
            Kind::Select { operand, field, access } => {
                self.select(expression, operand, field, *access)
            }
            Kind::Index { operand, index, access } => {
                self.index(expression.offset, operand, index, *access)
            }
            Kind::Call { receiver, function, arguments } => {
                self.call(expression.offset, receiver.as_deref(), function, arguments)
            }
            Kind::And(terms) => Ok((Type::Bool, Node::And(self.terms(terms)?))),
            Kind::Or(terms) => Ok((Type::Bool, Node::Or(self.terms(terms)?))),
            Kind::Conditional(parts) => self.conditional(expression.offset, parts),
            Kind::List(elements) => self.list(expression.offset, elements),
            Kind::Map(entries) => self.map(expression.offset, entries),
            Kind::Fold(fold) => self.fold(fold),
            Kind::Bind(bind) => {
                let (value, value_node) = self.check(&bind.value)?;
                let (body, body_node) = self.check_with(&bind.variable, value, &bind.body)?;
                let node = Node::Bind { value: value_node.into(), body: body_node.into() };
                Ok((body, node))
            }
            Kind::OptionalMap { bind, is_flat } => {
                self.optional_map(expression.offset, bind, *is_flat)
            }
            Kind::SortBy(bind) => self.sort_by(expression.offset, bind),
        }
    }

    /// Checks `body` with one more variable.
    fn check_with(&mut self, variable: &Arc<str>, of: Type, body: &Expression) -> Typed {
        self.scope.push((variable.clone(), of));
        let checked = self.check(body);
        self.scope.pop();
        checked
    }

    /// A variable or the name of a type.
    fn identifier(&mut self, name: &str) -> Option<(Type, Node)> {
        if let Some(slot) = self.scope.iter().rposition(|(known, _)| &**known == name) {
            let of = self.scope[slot].1.clone();
            return Some((of, Node::Local(slot)));
        }
        match name.trim_start_matches('.') {
            "device" => Some((Type::Device, Node::Device)),
            name => type_name(name),
        }
    }

    fn select(
        &mut self,
        expression: &Expression,
        operand: &Expression,
        field: &Arc<str>,
        access: Access,
    ) -> Typed {
        if access == Access::Required
            && let Some(name) = qualified_name(expression)
            && let Some(found) = type_name(name.trim_start_matches('.'))
        {
            return Ok(found);
        }
        let (of, node) = self.check(operand)?;
        let of = self.unifier.substitute(&of);
        let (target, is_optional) = match &of {
            Type::Optional(inner) => ((**inner).clone(), true),
            other => (other.clone(), false),
        };
        let value = match &target {
            Type::Map(pair) => pair.1.clone(),
            Type::Device => Type::device_field(field).ok_or_else(|| {
                self.fail(expression.offset, format!("undefined field '{field}'"))
            })?,
            Type::Param(_) => {
                self.assignable(&Type::Dyn, &target);
                Type::Dyn
            }
            Type::Dyn => Type::Dyn,
            other => {
                let message = format!("type '{other}' does not support field selection");
                return Err(self.fail(expression.offset, message));
            }
        };
        let result = match access {
            Access::Presence => Type::Bool,
            Access::Optional => Type::optional(value),
            Access::Required if is_optional => Type::optional(value),
            Access::Required => value,
        };
        Ok((result, Node::Select { operand: node.into(), field: field.clone(), access }))
    }

    fn index(
        &mut self,
        offset: usize,
        operand: &Expression,
        index: &Expression,
        access: Access,
    ) -> Typed {
        let (of_operand, operand) = self.check(operand)?;
        let (of_index, index) = self.check(index)?;
        let function = if access == Access::Optional { "_[?_]" } else { "_[_]" };
        let (result, _) = self.resolve(offset, function, false, &[of_operand, of_index])?;
        Ok((result, Node::Index { operand: operand.into(), index: index.into(), access }))
    }

    fn terms(&mut self, terms: &[Expression]) -> Result<Vec<Node>, CompileError> {
        terms.iter().map(|term| self.condition(term)).collect()
    }

    /// An expression that must be a boolean.
    fn condition(&mut self, expression: &Expression) -> Result<Node, CompileError> {
        let (found, node) = self.check(expression)?;
        if self.assignable(&found, &Type::Bool) {
            return Ok(node);
        }
        let found = self.unifier.substitute(&found);
        Err(self.mismatch(expression.offset, &Type::Bool, &found))
    }

    fn conditional(&mut self, offset: usize, parts: &[Expression; 3]) -> Typed {
        let [condition, then, otherwise] = parts;
        let (of_condition, condition) = self.check(condition)?;
        let (of_then, then) = self.check(then)?;
        let (of_otherwise, otherwise) = self.check(otherwise)?;
        let (result, _) =
            self.resolve(offset, "_?_:_", false, &[of_condition, of_then, of_otherwise])?;
        Ok((result, Node::Conditional(Box::new([condition, then, otherwise]))))
    }

    /// The result of calling a function with arguments of these types, and the overloads that agree.
    fn resolve(
        &mut self,
        offset: usize,
        function: &str,
        is_method: bool,
        arguments: &[Type],
    ) -> Result<(Type, Vec<&'static Overload>), CompileError> {
        let Some(overloads) = crate::functions::named(function) else {
            return Err(self.undeclared(offset, function));
        };
        let mut result: Option<Type> = None;
        let mut agreeing = Vec::new();
        for overload in overloads {
            let signature = &overload.signature;
            if signature.is_method != is_method || signature.parameters.len() != arguments.len() {
                continue;
            }
            let own = self.unifier.fresh_block(signature.n_type_parameters);
            let parameters: Vec<Type> =
                signature.parameters.iter().map(|of| instantiate(of, own)).collect();
            if !self.unifier.assignable(arguments.iter().zip(&parameters)) {
                continue;
            }
            agreeing.push(overload);
            let this = self.unifier.substitute(&instantiate(&signature.result, own));
            result = Some(match result {
                Some(Type::Dyn) => Type::Dyn,
                Some(first) if self.unifier.equal(&first, &this) => first,
                Some(_) => Type::Dyn,
                None => this,
            });
        }
        if self.unifier.is_exhausted() {
            return Err(self.too_complex(offset));
        }
        match result {
            Some(result) => Ok((result, agreeing)),
            None => Err(self.no_overload(offset, function, is_method, arguments)),
        }
    }

    fn no_overload(
        &mut self,
        offset: usize,
        function: &str,
        is_method: bool,
        arguments: &[Type],
    ) -> CompileError {
        let names: Vec<String> =
            arguments.iter().map(|of| self.unifier.substitute(of).to_string()).collect();
        let applied = match &names[..] {
            [receiver, rest @ ..] if is_method => format!("{receiver}.({})", rest.join(", ")),
            all => format!("({})", all.join(", ")),
        };
        let message = format!("found no matching overload for '{function}' applied to '{applied}'");
        self.fail(offset, message)
    }
}

fn constant(literal: &Literal) -> (Type, Node) {
    let (of, value) = match literal {
        Literal::Null => (Type::Null, Value::Null),
        Literal::Bool(value) => (Type::Bool, Value::Bool(*value)),
        Literal::Int(number) => (Type::Int, Value::Int(*number)),
        Literal::UInt(number) => (Type::UInt, Value::UInt(*number)),
        Literal::Double(number) => (Type::Double, Value::Double(*number)),
        Literal::String(text) => (Type::String, Value::String(text.clone())),
        Literal::Bytes(bytes) => (Type::Bytes, Value::Bytes(bytes.clone())),
    };
    (of, Node::Constant(value))
}

fn type_name(name: &str) -> Option<(Type, Node)> {
    let of = Type::named(name)?;
    let node = Node::Constant(Value::Type(of.name()));
    Some((Type::type_of(of), node))
}

/// The most names in that of a type or a function: `google.protobuf.Duration`.
const MAX_NAMES: usize = 3;

/// `a.b.c`, if the expression is a few names only. Long chains are not written out for each of their
/// parts.
fn qualified_name(expression: &Expression) -> Option<String> {
    names(expression, MAX_NAMES)
}

fn names(expression: &Expression, at_most: usize) -> Option<String> {
    match &expression.kind {
        _ if at_most == 0 => None,
        Kind::Identifier(name) => Some(name.to_string()),
        Kind::Select { operand, field, access: Access::Required } => {
            Some(format!("{}.{field}", names(operand, at_most - 1)?))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parser::parse;

    /// The steps and the error of checking an expression.
    fn steps(expression: &str) -> (u32, Option<String>) {
        let mut checker = Checker::new(expression);
        let error = checker.check_all(&parse(expression).unwrap()).err();
        (checker.unifier.steps(), error.map(|error| error.message))
    }

    /// A type that mentions another twice, `n` times, in an expression of about `22 * n` bytes.
    fn doubled(n: usize, last: &str) -> String {
        let mut text = "cel.bind(v0, {1: 1}, ".to_owned();
        for level in 1..n {
            let before = level - 1;
            text.push_str(&format!("cel.bind(v{level}, {{v{before}: v{before}}}, "));
        }
        text.push_str(&last.replace('$', &format!("v{}", n - 1)));
        text.push_str(&")".repeat(n));
        text
    }

    #[test]
    fn a_type_that_doubles_with_each_level_is_too_complex() {
        for last in ["[$, $].size() == 0", "$ == $", "[$, {}].size() == 0"] {
            let (steps, error) = steps(&doubled(60, last));
            assert!(steps < 110_000, "{last}: {steps}");
            assert_eq!(error.as_deref(), Some("the types of the expression are too complex"));
        }
    }

    #[test]
    fn a_message_about_a_large_type_is_short() {
        let (steps, error) = steps(&doubled(12, "[$, 1].size() == 0"));
        let error = error.unwrap();
        assert!(error.starts_with("expected type 'map(map(map("), "{error}");
        assert!(error.len() <= 512 + 3, "{}", error.len());
        assert!(steps < 110_000, "{steps}");
        let name = "x".repeat(5000);
        let error = crate::Program::compile(&name).unwrap_err();
        assert!(error.message.starts_with("undeclared reference to 'xxx"), "{error}");
        assert!(error.message.len() <= 512 + 3, "{}", error.message.len());
    }

    #[test]
    fn a_list_of_a_thousand_constants_is_checked_in_few_steps() {
        let numbers: Vec<String> = (0..1000).map(|n| n.to_string()).collect();
        let (steps, error) = steps(&format!("1 in [{}]", numbers.join(", ")));
        assert_eq!(error, None);
        assert!(steps < 10_000, "{steps}");
    }
}
