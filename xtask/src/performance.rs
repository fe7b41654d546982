//! The figures of cycles, shown in docs/performance.md as a table.

mod baseline;
mod table;

use std::fs;

use anyhow::Context;
use kube_batch_tests::figures::{self, Figures};
use xtask_launcher::build::root;

/// The document with the table.
const DOCUMENT: &str = "docs/performance.md";

/// The document with a table of the figures: path below the root, and content.
pub(crate) fn file() -> anyhow::Result<(String, String)> {
    let document = fs::read_to_string(root().join(DOCUMENT))?;
    Ok((DOCUMENT.to_owned(), table::replace(&document, &read()?)?))
}

fn read() -> anyhow::Result<Vec<Figures>> {
    let text = fs::read_to_string(root().join(figures::PATH)).context(figures::PATH)?;
    let line =
        |line| serde_json::from_str(line).with_context(|| format!("{}: {line}", figures::PATH));
    text.lines().map(line).collect()
}
