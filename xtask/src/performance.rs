//! The figures of cycles, shown in docs/performance.md as a table and as charts.

mod baseline;
mod chart;
mod table;

use std::fs;

use anyhow::Context;
use kube_batch_tests::{
    build::root,
    figures::{self, Figures},
};

use crate::picture::THEMES;

/// The document with the table.
const DOCUMENT: &str = "docs/performance.md";

/// The files that are made from the figures: path below the root, and content.
pub(crate) fn files() -> anyhow::Result<Vec<(String, String)>> {
    let figures = read()?;
    let document = fs::read_to_string(root().join(DOCUMENT))?;
    let mut files = vec![(DOCUMENT.to_owned(), table::replace(&document, &figures)?)];
    for theme in &THEMES {
        for chart in chart::charts(&figures) {
            let path = format!("docs/images/{}-{}.svg", chart.name, theme.name);
            files.push((path, chart.draw(theme)));
        }
    }
    Ok(files)
}

fn read() -> anyhow::Result<Vec<Figures>> {
    let text = fs::read_to_string(root().join(figures::PATH)).context(figures::PATH)?;
    let line =
        |line| serde_json::from_str(line).with_context(|| format!("{}: {line}", figures::PATH));
    text.lines().map(line).collect()
}
