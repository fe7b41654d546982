//! A table among others, and what it leaves out.

use crate::table::TextTable;

/// Maximum number of rows in a table; further ones are only counted.
pub(super) const MAX_ROWS: usize = 50;

/// A table, and what it leaves out.
pub(super) type Section = (TextTable, Option<String>);

pub(super) fn more_rows(n_rows: usize, what: &str) -> Option<String> {
    let more = n_rows.checked_sub(MAX_ROWS).filter(|more| *more > 0)?;
    Some(format!("… and {more} more {what}"))
}
