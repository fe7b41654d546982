//! The text form of overloads: `startsWith(self string, string) -> bool`.
//!
//! `self` marks the receiver of a method. Capital letters of one character are type parameters.

use std::sync::Arc;

use crate::types::{Opaque, Type};

/// A parsed signature.
#[derive(Debug)]
pub(crate) struct Signature {
    pub(crate) name: Arc<str>,
    /// Whether the first parameter is a receiver.
    pub(crate) is_method: bool,
    pub(crate) parameters: Vec<Type>,
    pub(crate) result: Type,
    /// How many type parameters there are; they are numbered from 0.
    pub(crate) n_type_parameters: u32,
}

impl Signature {
    /// Parses one row of the table of functions; `None` if it has not that form.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (name, rest) = text.split_once('(')?;
        let (parameters, result) = rest.rsplit_once(") -> ")?;
        let (is_method, parameters) = match parameters.strip_prefix("self ") {
            Some(rest) => (true, rest),
            None => (false, parameters),
        };
        let mut reader = Reader { rest: parameters, parameters: Vec::new() };
        let mut types = Vec::new();
        while !reader.rest.is_empty() {
            types.push(reader.read()?);
            reader.rest = reader.rest.strip_prefix(", ").unwrap_or(reader.rest);
        }
        reader.rest = result;
        let result = reader.read()?;
        Some(Self {
            name: name.into(),
            is_method,
            parameters: types,
            result,
            n_type_parameters: u32::try_from(reader.parameters.len()).ok()?,
        })
    }
}

struct Reader<'t> {
    rest: &'t str,
    parameters: Vec<&'t str>,
}

impl<'t> Reader<'t> {
    fn read(&mut self) -> Option<Type> {
        let end = self.rest.find(['<', '>', ',']).unwrap_or(self.rest.len());
        let (name, rest) = self.rest.split_at(end);
        self.rest = rest;
        let constructor: fn(Type) -> Type = match name {
            "list" => Type::list,
            "optional" => Type::optional,
            "type" => Type::type_of,
            "map" => return self.map(),
            _ => return self.simple(name),
        };
        self.expect("<")?;
        let inner = self.read()?;
        self.expect(">")?;
        Some(constructor(inner))
    }

    fn map(&mut self) -> Option<Type> {
        self.expect("<")?;
        let key = self.read()?;
        self.expect(", ")?;
        let value = self.read()?;
        self.expect(">")?;
        Some(Type::map(key, value))
    }

    fn simple(&mut self, name: &'t str) -> Option<Type> {
        Some(match name {
            "dyn" => Type::Dyn,
            "duration" => Type::Duration,
            "timestamp" => Type::Timestamp,
            "Quantity" => Type::Opaque(Opaque::Quantity),
            "Semver" => Type::Opaque(Opaque::Semver),
            "URL" => Type::Opaque(Opaque::Url),
            "IP" => Type::Opaque(Opaque::Ip),
            "CIDR" => Type::Opaque(Opaque::Cidr),
            "Format" => Type::Opaque(Opaque::Format),
            letter if letter.len() == 1 => self.parameter(letter),
            name => return Type::named(name),
        })
    }

    fn parameter(&mut self, letter: &'t str) -> Type {
        let known = self.parameters.iter().position(|known| *known == letter);
        let index = known.unwrap_or_else(|| {
            self.parameters.push(letter);
            self.parameters.len() - 1
        });
        Type::Param(u32::try_from(index).unwrap_or(u32::MAX))
    }

    fn expect(&mut self, text: &str) -> Option<()> {
        self.rest = self.rest.strip_prefix(text)?;
        Some(())
    }
}
