//! The crates of the workspace: that they are as the table in ARCHITECTURE.md says, and their manifests.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use anyhow::{Context, ensure};
use cargo_metadata::{DependencyKind, Metadata, Package};
use xtask_launcher::build::root;

use super::tree::packages;

const DOCUMENT: &str = "ARCHITECTURE.md";

/// The head of the table.
const HEAD: &str = "| crates | depend on | rules |\n|---|---|---|\n";

/// What must not be compiled into a crate with a rule.
const RULES: [(&str, &[&str]); 3] = [
    (PURE, &["hyper", "kube-client", "kube-runtime", "rand", "reqwest", "tokio"]),
    ("no network", &["hyper", "kube-client", "kube-runtime", "reqwest", "tokio"]),
    ("no Kubernetes", &["k8s-openapi", "kube", "kube-core", "schemars"]),
];

/// No network, no clock and no random numbers: Clippy forbids what would bring them in.
const PURE: &str = "pure";

/// Differences between the table and the crates, and what their manifests lack.
pub(super) fn violations(metadata: &Metadata) -> anyhow::Result<Vec<String>> {
    let text = fs::read_to_string(root().join(DOCUMENT)).context(DOCUMENT)?;
    let table = table(&text)?;
    let crates = crates(metadata)?;
    let mut violations = differences(&table, &crates);
    violations.extend(map_violations(&text, &crates));
    for (name, Row { rules, .. }) in &table {
        if let Some(package) = crates.get(name) {
            violations.extend(rule_violations(name, &package.name, rules)?);
        }
    }
    for (name, package) in &crates {
        violations.extend(manifest_violations(name, package)?);
    }
    Ok(violations)
}

/// The crates of the project by their directories. Examples are crates as users write them.
fn crates(metadata: &Metadata) -> anyhow::Result<BTreeMap<String, &Package>> {
    let mut crates = BTreeMap::new();
    for package in metadata.workspace_packages() {
        let directory = package.manifest_path.parent().context("a manifest has a directory")?;
        let directory = directory.strip_prefix(&metadata.workspace_root)?;
        if !directory.starts_with("examples") {
            crates.insert(directory.to_string(), package);
        }
    }
    Ok(crates)
}

/// What the table says of a crate.
#[derive(Debug, Default, PartialEq)]
struct Row {
    dependencies: BTreeSet<String>,
    rules: BTreeSet<String>,
}

/// The rows of the table, by crate.
fn table(text: &str) -> anyhow::Result<BTreeMap<String, Row>> {
    let (_, rows) = text.split_once(HEAD).with_context(|| format!("{DOCUMENT} has no crates"))?;
    let list = |cell: &str| -> BTreeSet<String> {
        let items = cell.split(',').map(|item| item.trim().trim_matches('`').to_owned());
        items.filter(|item| !item.is_empty()).collect()
    };
    let mut table = BTreeMap::new();
    for line in rows.lines().take_while(|line| line.starts_with('|')) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').collect();
        ensure!(cells.len() == 3, "{DOCUMENT}: {line} does not have three cells");
        for name in list(cells[0]) {
            let row = Row { dependencies: list(cells[1]), rules: list(cells[2]) };
            ensure!(table.insert(name, row).is_none(), "{DOCUMENT}: {line} repeats a crate");
        }
    }
    Ok(table)
}

/// Where the dependencies between the crates are not those of the table.
fn differences(table: &BTreeMap<String, Row>, crates: &BTreeMap<String, &Package>) -> Vec<String> {
    let directories: BTreeMap<&str, &String> =
        crates.iter().map(|(directory, package)| (package.name.as_str(), directory)).collect();
    let mut violations = Vec::new();
    for (name, package) in crates {
        let Some(row) = table.get(name) else {
            violations.push(format!("{DOCUMENT}: the table of crates does not have {name}"));
            continue;
        };
        let normal = package.dependencies.iter().filter(|dep| dep.kind == DependencyKind::Normal);
        let actual = normal.filter_map(|dep| directories.get(dep.name.as_str()));
        let actual: BTreeSet<String> = actual.map(|directory| (*directory).clone()).collect();
        for dependency in actual.difference(&row.dependencies) {
            violations.push(format!("{name}: may not depend on {dependency}, by {DOCUMENT}"));
        }
        for dependency in row.dependencies.difference(&actual) {
            violations.push(format!("{DOCUMENT}: {name} does not depend on {dependency}"));
        }
    }
    let gone = table.keys().filter(|name| !crates.contains_key(*name));
    violations.extend(gone.map(|name| format!("{DOCUMENT}: there is no crate {name}")));
    violations
}

/// Crates without a line in the code map.
fn map_violations(text: &str, crates: &BTreeMap<String, &Package>) -> Vec<String> {
    let map = text.split("```").find(|block| block.contains("\nmodel/ ")).unwrap_or_default();
    let is_listed = |name: &str| {
        let directory = format!("{name}/");
        map.lines().any(|line| line.split_whitespace().next() == Some(&directory))
    };
    let missing = crates.keys().filter(|name| !is_listed(name));
    missing.map(|name| format!("{DOCUMENT}: the code map does not have {name}")).collect()
}

/// What a crate is compiled with against its rules.
fn rule_violations(
    name: &str,
    package: &str,
    rules: &BTreeSet<String>,
) -> anyhow::Result<Vec<String>> {
    let mut violations = Vec::new();
    let compiled = if rules.is_empty() { BTreeSet::new() } else { compiled_with(package)? };
    for rule in rules {
        let Some((_, forbidden)) = RULES.iter().find(|(known, _)| known == rule) else {
            violations.push(format!("{DOCUMENT}: there is no rule `{rule}`"));
            continue;
        };
        let found = forbidden.iter().filter(|name| compiled.contains(**name));
        violations
            .extend(found.map(|found| format!("{name}: is `{rule}` and may not use {found}")));
        if rule == PURE && !root().join(name).join("clippy.toml").exists() {
            violations.push(format!("{name}: is pure and needs a clippy.toml with its bans"));
        }
    }
    Ok(violations)
}

/// All crates that one is compiled with, as Cargo resolves features for it alone.
fn compiled_with(package: &str) -> anyhow::Result<BTreeSet<String>> {
    let packages = packages(&["--package", package], "normal", "{p}")?;
    let name = |package: &String| package.split(' ').next().map(str::to_owned);
    Ok(packages.iter().filter_map(name).collect())
}

fn manifest_violations(name: &str, package: &Package) -> anyhow::Result<Vec<String>> {
    let text = fs::read_to_string(&package.manifest_path)?;
    let mut violations = Vec::new();
    let mut require = |is_met: bool, what: &str| {
        if !is_met {
            violations.push(format!("{name}: {what}"));
        }
    };
    require(text.contains("[lints]\nworkspace = true"), "must use the workspace lints");
    let own_versions =
        text.lines().filter(|line| line.contains("version = \"") || line.contains("path = \"../"));
    require(own_versions.count() == 0, "must declare dependencies in the workspace only");
    require(package.description.is_some(), "must have a description");
    if package.publish.as_ref().is_none_or(|registries| !registries.is_empty()) {
        require(root().join(name).join("README.md").exists(), "must have a README");
        require(package.license.is_some(), "must have a license");
    }
    Ok(violations)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_of_one_crate_or_of_several() {
        let text =
            format!("{HEAD}| `a`, `b/c` | `d`, `e` | pure |\n| `d` | | |\n\n| x | y | z |\n");
        let set = |items: &[&str]| items.iter().map(ToString::to_string).collect();
        let row = || Row { dependencies: set(&["d", "e"]), rules: set(&["pure"]) };
        let expected =
            [("a".to_owned(), row()), ("b/c".to_owned(), row()), ("d".to_owned(), Row::default())];
        assert_eq!(table(&text).expect("a table"), BTreeMap::from(expected));
        for wrong in ["| `a` | `b` |\n", "| `a`, `a` | | |\n| `a` | | |\n"] {
            assert!(table(&format!("{HEAD}{wrong}")).is_err(), "{wrong}");
        }
    }
}
