//! Literals of lists and maps, and constant format strings.
//!
//! Whether the elements of a literal have one type is decided when all types are known.

use crate::{
    ast::{Element, Entry, Expression, Kind},
    checker::{
        Checker, Typed,
        call::{constant_text, is_one_of},
        pending::Pending,
    },
    error::CompileError,
    functions::format::{Clause, clauses},
    node::Node,
    types::Type,
    value::{Key, Value},
};

impl Checker<'_> {
    pub(super) fn list(&mut self, offset: usize, elements: &[Element]) -> Typed {
        let mut joined: Option<Type> = None;
        let mut nodes = Vec::with_capacity(elements.len());
        let mut uniform = Vec::with_capacity(elements.len());
        let mut raw = Vec::new();
        for element in elements {
            let (of, node) = self.element(&element.value, element.is_optional)?;
            raw.push((element.value.offset, in_literal(&of, element.is_optional)));
            joined = Some(self.join(element.value.offset, joined, &of)?);
            uniform.push((element.value.offset, of));
            nodes.push((node, element.is_optional));
        }
        if self.format_depth > 0 {
            self.format_literals.push((offset, raw));
        }
        self.remember_uniform(uniform);
        let element = joined.unwrap_or_else(|| self.unifier.fresh());
        Ok((Type::list(element), fold_list(nodes)))
    }

    pub(super) fn map(&mut self, offset: usize, entries: &[Entry]) -> Typed {
        let (mut keys, mut values) = (None, None);
        let mut nodes = Vec::with_capacity(entries.len());
        let (mut uniform_keys, mut uniform_values) = (Vec::new(), Vec::new());
        let mut raw = Vec::new();
        for entry in entries {
            let (of_key, key) = self.check(&entry.key)?;
            keys = Some(self.join(entry.key.offset, keys, &of_key)?);
            let (of_value, value) = self.element(&entry.value, entry.is_optional)?;
            values = Some(self.join(entry.value.offset, values, &of_value)?);
            raw.push((entry.key.offset, of_key.clone()));
            raw.push((entry.value.offset, in_literal(&of_value, entry.is_optional)));
            uniform_keys.push((entry.key.offset, of_key));
            uniform_values.push((entry.value.offset, of_value));
            nodes.push((key, value, entry.is_optional));
        }
        if self.format_depth > 0 {
            self.format_literals.push((offset, raw));
        }
        self.remember_uniform(uniform_keys);
        self.remember_uniform(uniform_values);
        let key = keys.unwrap_or_else(|| self.unifier.fresh());
        let value = values.unwrap_or_else(|| self.unifier.fresh());
        Ok((Type::map(key, value), fold_map(nodes)))
    }

    /// An element and its type; of an optional one, the type of what is in it.
    fn element(&mut self, value: &Expression, is_optional: bool) -> Typed {
        let (of, node) = self.check(value)?;
        if !is_optional {
            return Ok((of, node));
        }
        match self.unifier.substitute(&of) {
            Type::Optional(inner) => Ok(((*inner).clone(), node)),
            Type::Dyn => Ok((Type::Dyn, node)),
            other => {
                let expected = Type::optional(other.clone());
                Err(self.mismatch(value.offset, &expected, &other))
            }
        }
    }

    fn join(
        &mut self,
        offset: usize,
        previous: Option<Type>,
        current: &Type,
    ) -> Result<Type, CompileError> {
        let Some(previous) = previous else { return Ok(current.clone()) };
        if self.assignable(&previous, current) {
            return Ok(self.unifier.most_general(&previous, current));
        }
        if self.format_depth > 0 {
            return Ok(Type::Dyn);
        }
        let found = self.unifier.substitute(current);
        Err(self.mismatch(offset, &previous, &found))
    }

    fn remember_uniform(&mut self, elements: Vec<(usize, Type)>) {
        if elements.len() > 1 && self.format_depth == 0 {
            self.literals.push(Pending::Uniform(elements));
        }
    }

    /// Remembers a call of `format`, if its text is constant and its arguments are a list literal.
    pub(super) fn remember_format(
        &mut self,
        offset: usize,
        nodes: &[Node],
        arguments: &[Expression],
    ) {
        let Some(text) = constant_text(nodes) else { return };
        let [Expression { kind: Kind::List(_), offset: of_list, .. }] = arguments else { return };
        if let Some(arguments) = self.format_literal(*of_list) {
            self.literals.push(Pending::Format { offset, text, arguments });
        }
    }

    /// What is in the list or map at this place, within a call of `format`.
    fn format_literal(&self, offset: usize) -> Option<Vec<(usize, Type)>> {
        let found = self.format_literals.iter().rfind(|(known, _)| *known == offset);
        found.map(|(_, inner)| inner.clone())
    }

    pub(super) fn check_literals(&mut self) -> Result<(), CompileError> {
        for pending in std::mem::take(&mut self.literals) {
            match pending {
                Pending::Uniform(elements) => self.check_uniform(&elements)?,
                Pending::Format { offset, text, arguments } => {
                    self.check_format(offset, &text, &arguments)?;
                }
            }
        }
        Ok(())
    }

    fn check_uniform(&mut self, elements: &[(usize, Type)]) -> Result<(), CompileError> {
        let mut first: Option<Type> = None;
        for (offset, of) in elements {
            let of = self.unifier.substitute(of);
            match &first {
                Some(first) if !self.unifier.is_same(first, &of) => {
                    return Err(self.mismatch(*offset, first, &of));
                }
                Some(_) => {}
                None => first = Some(of),
            }
        }
        Ok(())
    }

    fn check_format(
        &mut self,
        offset: usize,
        text: &str,
        arguments: &[(usize, Type)],
    ) -> Result<(), CompileError> {
        let mut given = arguments.iter();
        for part in clauses(text) {
            let clause = part.map_err(|message| self.fail(offset, message))?.clause;
            if matches!(clause, Clause::Literal) {
                continue;
            }
            let Some((at, of)) = given.next() else {
                let message = format!("index {} out of range", arguments.len());
                return Err(self.fail(offset, message));
            };
            self.check_clause(clause, *at, of)?;
            if clause == Clause::Text {
                self.check_texts(*at)?;
            }
        }
        let n_left = given.len();
        if n_left > 0 {
            let expected = arguments.len() - n_left;
            let message = format!(
                "too many arguments supplied to string.format (expected {expected}, got {})",
                arguments.len()
            );
            return Err(self.fail(offset, message));
        }
        Ok(())
    }

    /// Checks what is in the list or map at this place, if there is one.
    fn check_texts(&mut self, offset: usize) -> Result<(), CompileError> {
        for (at, of) in self.format_literal(offset).unwrap_or_default() {
            self.check_clause(Clause::Text, at, &of)?;
            self.check_texts(at)?;
        }
        Ok(())
    }

    fn check_clause(
        &mut self,
        clause: Clause,
        offset: usize,
        of: &Type,
    ) -> Result<(), CompileError> {
        let of = self.unifier.substitute(of);
        if is_one_of(&of, &clause.accepted_types()) {
            return Ok(());
        }
        let message = format!("error during formatting: {}", clause.rejects(of.name()));
        Err(self.fail(offset, message))
    }
}

/// The type of what is written in a literal, from that of the element that it adds.
fn in_literal(element: &Type, is_optional: bool) -> Type {
    if is_optional { Type::optional(element.clone()) } else { element.clone() }
}

/// A list of constants is a constant, which costs nothing to evaluate.
fn fold_list(nodes: Vec<(Node, bool)>) -> Node {
    let values: Option<Vec<Value<'static>>> = nodes
        .iter()
        .map(|(node, is_optional)| node.constant().filter(|_| !is_optional).cloned())
        .collect();
    match values {
        Some(values) => Node::Constant(Value::list(values)),
        None => Node::List(nodes),
    }
}

fn fold_map(nodes: Vec<(Node, Node, bool)>) -> Node {
    let entries: Option<_> = nodes
        .iter()
        .map(|(key, value, is_optional)| {
            let key = Key::of(key.constant().filter(|_| !is_optional)?)?;
            Some((key, value.constant()?.clone()))
        })
        .collect();
    match entries {
        Some(entries) => Node::Constant(Value::map(entries)),
        None => Node::Map(nodes),
    }
}
