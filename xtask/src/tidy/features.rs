//! Features of dependencies that only tests turn on.
//!
//! `cargo xtask` compiles itself for the workspace without tests, and tests compile all of it for the workspace with
//! them. What has other features then is compiled twice, with all that depends on it.

use std::collections::BTreeSet;

use super::tree::packages;

/// Dependencies of `xtask` that have other features when tests are compiled too.
pub(super) fn violations() -> anyhow::Result<Vec<String>> {
    let of_xtask = packages(&["--package", "xtask"], "normal,build", "{p}")?;
    let with_features = |edges| packages(&["--workspace"], edges, "{p} {f}");
    let (alone, with_tests) = (with_features("normal,build")?, with_features("normal,build,dev")?);
    let differing = of_xtask.iter().filter(|name| of(name, &alone) != of(name, &with_tests));
    let report = |name| format!("{name}: has other features in tests, so it is compiled twice");
    Ok(differing.map(report).collect())
}

/// The lines of a package, one for each set of features.
fn of<'a>(name: &str, lines: &'a BTreeSet<String>) -> Vec<&'a String> {
    let is_of = |line: &&String| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(' '));
    lines.iter().filter(is_of).collect()
}
