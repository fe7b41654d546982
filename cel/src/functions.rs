//! The functions and operators: one table, read by the checker and by the evaluation.
//!
//! It has what Kubernetes 1.37 declares for the selectors of devices. The libraries are those of
//! cel-go's `ext` and of Kubernetes' `apiserver/pkg/cel/library`, which each module names.

pub(crate) mod addresses;
pub(crate) mod conversions;
pub(crate) mod format;
pub(crate) mod lists;
pub(crate) mod named_format;
pub(crate) mod operators;
pub(crate) mod optionals;
pub(crate) mod quantities;
pub(crate) mod regexes;
pub(crate) mod semvers;
pub(crate) mod sets;
pub(crate) mod strings;
pub(crate) mod times;
pub(crate) mod url;

use std::{collections::BTreeMap, sync::LazyLock};

use crate::{
    meter::Meter,
    signature::Signature,
    value::{Outcome, Value},
};

/// The code of a function. Its arguments have the types of its signature.
pub(crate) type Run = for<'a> fn(&mut Meter, &[Value<'a>]) -> Outcome<'a>;

/// cel-go's actual cost of a call, from the arguments and the result.
pub(crate) type Cost = fn(&[Value<'_>], &Value<'_>) -> u64;

/// A row of the table: a signature in text form, its cost, its code.
pub(crate) type Row = (&'static str, Cost, Run);

/// A function for arguments of certain types.
pub(crate) struct Overload {
    pub(crate) signature: Signature,
    pub(crate) cost: Cost,
    pub(crate) run: Run,
}

impl std::fmt::Debug for Overload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.signature.fmt(f)
    }
}

impl Overload {
    /// Whether the arguments have the types of the signature.
    pub(crate) fn accepts(&self, arguments: &[Value<'_>]) -> bool {
        let parameters = &self.signature.parameters;
        parameters.len() == arguments.len()
            && arguments.iter().zip(parameters).all(|(argument, of)| argument.is(of))
    }
}

static TABLE: LazyLock<BTreeMap<&'static str, Vec<Overload>>> = LazyLock::new(|| {
    let mut table: BTreeMap<&'static str, Vec<Overload>> = BTreeMap::new();
    for (text, cost, run) in rows() {
        let signature = Signature::parse(text).expect("a test parses every signature");
        let name = text.split('(').next().unwrap_or(text);
        table.entry(name).or_default().push(Overload { signature, cost: *cost, run: *run });
    }
    table
});

fn rows() -> impl Iterator<Item = &'static Row> {
    [
        operators::ROWS,
        conversions::ROWS,
        strings::ROWS,
        format::ROWS,
        lists::ROWS,
        sets::ROWS,
        optionals::ROWS,
        times::ROWS,
        quantities::ROWS,
        semvers::ROWS,
        addresses::ROWS,
        url::ROWS,
        named_format::ROWS,
        regexes::ROWS,
    ]
    .into_iter()
    .flatten()
}

/// The overloads of a function, or none if there is no such function.
pub(crate) fn named(function: &str) -> Option<&'static [Overload]> {
    TABLE.get(function).map(Vec::as_slice)
}

/// The cost of most calls.
pub(crate) const fn one(_: &[Value<'_>], _: &Value<'_>) -> u64 {
    1
}

/// The cost of reading the first argument.
pub(crate) fn read_first(arguments: &[Value<'_>], _: &Value<'_>) -> u64 {
    arguments.first().map_or(1, |text| crate::meter::tenths(crate::meter::size(text)))
}

/// The cost of reading the first argument, and writing as much.
pub(crate) fn read_first_twice(arguments: &[Value<'_>], _: &Value<'_>) -> u64 {
    arguments.first().map_or(1, |text| crate::meter::tenths(crate::meter::size(text) * 2))
}

/// The error of code whose arguments have not the types of its signature, which cannot happen.
pub(crate) const fn mistyped<'a>() -> Outcome<'a> {
    Err(crate::error::EvaluationError::NoSuchOverload)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_signature_can_be_parsed() {
        for (text, ..) in rows() {
            assert!(Signature::parse(text).is_some(), "{text}");
        }
    }
}
