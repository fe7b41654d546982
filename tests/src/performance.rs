//! The figures of cycles, shown in docs/performance.md as a table.

mod baseline;
mod table;

use std::{fs, path::Path};

use anyhow::Context;

use crate::figures::{self, Figures};

/// The document with the table, below the root of the repository.
pub const DOCUMENT: &str = "docs/performance.md";

/// The document, with the table that the committed figures give.
///
/// # Errors
///
/// If a file of the repository cannot be read, or lacks what is needed.
pub fn document(root: &Path) -> anyhow::Result<String> {
    let figures = read(root)?;
    let document = fs::read_to_string(root.join(DOCUMENT)).context(DOCUMENT)?;
    table::replace(&document, &figures)
}

fn read(root: &Path) -> anyhow::Result<Vec<Figures>> {
    let text = fs::read_to_string(root.join(figures::PATH)).context(figures::PATH)?;
    let line =
        |line| serde_json::from_str(line).with_context(|| format!("{}: {line}", figures::PATH));
    text.lines().map(line).collect()
}
