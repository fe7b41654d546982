//! What Cargo compiles, as `cargo tree` lists it.

use std::collections::BTreeSet;

use anyhow::{Context, ensure};
use xtask_launcher::build;

/// The packages of a selection and their dependencies over these edges, each in a format.
pub(super) fn packages(
    selection: &[&str],
    edges: &str,
    format: &str,
) -> anyhow::Result<BTreeSet<String>> {
    let output = build::cargo()
        .args(["tree", "--locked", "--prefix", "none", "--edges", edges, "--format", format])
        .args(selection)
        .output()
        .context("run cargo tree")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout)?;
    // A package that is listed again has this mark.
    Ok(text.lines().map(|line| line.trim_end_matches(" (*)").to_owned()).collect())
}
