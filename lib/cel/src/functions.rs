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
    overload::{Overload, Row},
    signature::Signature,
};

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
