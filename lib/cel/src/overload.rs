//! Functions for arguments of certain types, and what the code of several functions has in common.

use crate::{
    error::EvaluationError,
    meter::{Meter, size, tenths},
    signature::Signature,
    value::{Outcome, Value},
};

/// The code of a function. Its arguments have the types of its signature.
pub(crate) type Run = for<'a> fn(&mut Meter, &[Value<'a>]) -> Outcome<'a>;

/// cel-go's actual cost of a call, from the arguments and the result. Finding it out can be work.
pub(crate) type Cost = fn(&mut Meter, &[Value<'_>], &Value<'_>) -> Result<u64, EvaluationError>;

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

/// The cost of most calls.
pub(crate) const fn one(
    _: &mut Meter,
    _: &[Value<'_>],
    _: &Value<'_>,
) -> Result<u64, EvaluationError> {
    Ok(1)
}

/// The cost of reading the first argument.
pub(crate) fn read_first(
    meter: &mut Meter,
    arguments: &[Value<'_>],
    _: &Value<'_>,
) -> Result<u64, EvaluationError> {
    arguments.first().map_or(Ok(1), |text| Ok(tenths(size(text, meter)?)))
}

/// The cost of reading the first argument, and writing as much.
pub(crate) fn read_first_twice(
    meter: &mut Meter,
    arguments: &[Value<'_>],
    _: &Value<'_>,
) -> Result<u64, EvaluationError> {
    arguments.first().map_or(Ok(1), |text| Ok(tenths(size(text, meter)? * 2)))
}

/// The error of code whose arguments have not the types of its signature, which cannot happen.
pub(crate) const fn mistyped<'a>() -> Outcome<'a> {
    Err(EvaluationError::NoSuchOverload)
}

/// The value itself.
pub(crate) fn same<'a>(_: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    arguments.first().cloned().ok_or(EvaluationError::NoSuchOverload)
}
