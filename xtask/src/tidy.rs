//! The house rules that a machine can check.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, bail};
use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package};

use crate::{chart, codegen, monitoring, root};

/// What each crate may depend on, inside the workspace. Arrows go down only; see ARCHITECTURE.md.
const EDGES: [(&str, &[&str]); 13] = [
    ("kube-batch-yaml", &[]),
    ("kube-batch-api", &[]),
    ("kube-batch-cache", &["kube-batch-api"]),
    ("kube-batch-manifest", &["kube-batch-api", "kube-batch-cache", "kube-batch-yaml"]),
    ("kube-batch-framework", &["kube-batch-api"]),
    ("kube-batch-plugins", &["kube-batch-api", "kube-batch-framework"]),
    ("kube-batch-actions", &["kube-batch-api", "kube-batch-framework"]),
    (
        "kube-batch-scheduler",
        &[
            "kube-batch-actions",
            "kube-batch-api",
            "kube-batch-cache",
            "kube-batch-framework",
            "kube-batch-plugins",
            "kube-batch-yaml",
        ],
    ),
    (
        "kube-batch-sim",
        &[
            "kube-batch-api",
            "kube-batch-cache",
            "kube-batch-framework",
            "kube-batch-manifest",
            "kube-batch-scheduler",
            "kube-batch-yaml",
        ],
    ),
    (
        "kube-batch",
        &[
            "kube-batch-api",
            "kube-batch-cache",
            "kube-batch-framework",
            "kube-batch-manifest",
            "kube-batch-scheduler",
            "kube-batch-sim",
            "kube-batch-yaml",
        ],
    ),
    ("kube-batch-testbed", &[]),
    (
        "xtask",
        &[
            "kube-batch-api",
            "kube-batch-cache",
            "kube-batch-framework",
            "kube-batch-manifest",
            "kube-batch-scheduler",
            "kube-batch-sim",
            "kube-batch-testbed",
            "kube-batch-tests",
        ],
    ),
    (
        "kube-batch-tests",
        &[
            "kube-batch",
            "kube-batch-actions",
            "kube-batch-api",
            "kube-batch-cache",
            "kube-batch-framework",
            "kube-batch-manifest",
            "kube-batch-plugins",
            "kube-batch-scheduler",
            "kube-batch-sim",
            "kube-batch-yaml",
            "kube-batch-testbed",
        ],
    ),
];

/// Crates whose code must not see the network, the clock or chance.
const PURE: [&str; 4] = ["framework", "plugins", "actions", "scheduler"];

/// Crates of the runtime and the network, which only the binary may use.
const IMPURE_DEPENDENCIES: [&str; 6] =
    ["tokio", "rand", "hyper", "reqwest", "kube-client", "kube-runtime"];

/// Checks every rule and lists every breach.
pub(crate) fn run() -> anyhow::Result<()> {
    let metadata = MetadataCommand::new().manifest_path(root().join("Cargo.toml")).exec()?;
    let mut breaches = Vec::new();
    breaches.extend(edges(&metadata));
    breaches.extend(manifests(&metadata)?);
    breaches.extend(pure_crates());
    breaches.extend(sources()?);
    breaches.extend(links()?);
    breaches.extend(chart::breaches()?);
    breaches.extend(monitoring::breaches()?);
    breaches.extend(codegen::check().err().map(|error| format!("{error:#}")));
    if breaches.is_empty() {
        return Ok(());
    }
    bail!("{} house rules are broken:\n  {}", breaches.len(), breaches.join("\n  "))
}

fn workspace(metadata: &Metadata) -> Vec<&Package> {
    metadata.workspace_packages()
}

fn edges(metadata: &Metadata) -> Vec<String> {
    let allowed: BTreeMap<&str, &[&str]> = EDGES.into_iter().collect();
    let members: BTreeSet<&str> = workspace(metadata).iter().map(|p| p.name.as_str()).collect();
    let mut breaches = Vec::new();
    for package in workspace(metadata) {
        let Some(allowed) = allowed.get(package.name.as_str()) else {
            breaches.push(format!("{}: crate has no place in the list of edges", package.name));
            continue;
        };
        for dependency in &package.dependencies {
            let name = dependency.name.as_str();
            let inside = members.contains(name) && dependency.kind == DependencyKind::Normal;
            if inside && !allowed.contains(&name) {
                breaches.push(format!("{}: may not depend on {name}", package.name));
            }
        }
    }
    breaches
}

fn manifests(metadata: &Metadata) -> anyhow::Result<Vec<String>> {
    let mut breaches = Vec::new();
    for package in workspace(metadata) {
        let folder = package.manifest_path.parent().context("a manifest lies in a folder")?;
        let text = fs::read_to_string(&package.manifest_path)?;
        let mut demand = |holds: bool, what: &str| {
            if !holds {
                breaches.push(format!("{}: {what}", package.name));
            }
        };
        demand(text.contains("[lints]\nworkspace = true"), "takes the workspace's lints");
        let own_versions = text
            .lines()
            .filter(|line| line.contains("version = \"") || line.contains("path = \"../"));
        demand(own_versions.count() == 0, "declares dependencies in the workspace only");
        demand(package.description.is_some(), "has a description");
        if package.publish.as_ref().is_none_or(|registries| !registries.is_empty()) {
            demand(folder.join("README.md").exists(), "has a README");
            demand(package.license.is_some() && package.repository.is_some(), "has full metadata");
        }
    }
    Ok(breaches)
}

fn pure_crates() -> Vec<String> {
    let mut breaches = Vec::new();
    for name in PURE {
        let folder = root().join(name);
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap_or_default();
        for dependency in IMPURE_DEPENDENCIES {
            let declares = |line: &str| {
                line.split(['.', ' ', '=']).next().is_some_and(|name| name == dependency)
            };
            if manifest.lines().any(declares) {
                breaches.push(format!("{name}: is pure and may not use {dependency}"));
            }
        }
        if !folder.join("clippy.toml").exists() {
            breaches.push(format!("{name}: is pure and needs a clippy.toml with its bans"));
        }
    }
    breaches
}

/// Files under version control.
fn tracked() -> anyhow::Result<Vec<PathBuf>> {
    let output = Command::new("git").args(["ls-files"]).current_dir(root()).output()?;
    let listing = String::from_utf8(output.stdout)?;
    Ok(listing.lines().map(PathBuf::from).filter(|path| root().join(path).exists()).collect())
}

fn sources() -> anyhow::Result<Vec<String>> {
    // Spelt apart so that this file does not find itself.
    let unwanted = [concat!("FIX", "ME"), concat!("TO", "DO:"), concat!("#[", "ignore")];
    let mut breaches = Vec::new();
    for path in tracked()?.iter().filter(|path| path.extension().is_some_and(|e| e == "rs")) {
        let text = fs::read_to_string(root().join(path))?;
        for word in unwanted.iter().filter(|word| text.contains(**word)) {
            breaches.push(format!("{}: contains {word}", path.display()));
        }
        if text.lines().any(|line| line.ends_with([' ', '\t'])) {
            breaches.push(format!("{}: has trailing blanks", path.display()));
        }
    }
    Ok(breaches)
}

/// Relative links of Markdown files lead somewhere, anchors included.
fn links() -> anyhow::Result<Vec<String>> {
    let mut breaches = Vec::new();
    for path in tracked()?.iter().filter(|path| path.extension().is_some_and(|e| e == "md")) {
        let text = fs::read_to_string(root().join(path))?;
        for target in link_targets(&text) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let folder = path.parent().unwrap_or(Path::new(""));
            let file = if file.is_empty() { path.clone() } else { folder.join(file) };
            let file = root().join(file);
            let lives = file.exists()
                && (anchor.is_empty() || anchors(&file).is_some_and(|all| all.contains(anchor)));
            if !lives {
                breaches.push(format!("{}: dead link {target}", path.display()));
            }
        }
    }
    breaches.extend(parity_references()?);
    Ok(breaches)
}

fn link_targets(markdown: &str) -> Vec<&str> {
    let mut targets = Vec::new();
    let mut in_code = false;
    for line in markdown.lines() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        if in_code {
            continue;
        }
        for part in line.split("](").skip(1) {
            if let Some(end) = part.find(')') {
                targets.push(&part[..end]);
            }
        }
    }
    targets
}

/// The anchors of a Markdown file: headings as slugs, and explicit ids.
fn anchors(file: &Path) -> Option<BTreeSet<String>> {
    let text = fs::read_to_string(file).ok()?;
    let mut anchors = BTreeSet::new();
    for line in text.lines() {
        if let Some(heading) = line.strip_prefix('#') {
            let heading = heading.trim_start_matches('#').trim().to_lowercase();
            let kept =
                heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
            anchors.insert(kept.map(|c| if c == ' ' { '-' } else { c }).collect());
        }
        for part in line.split("id=\"").skip(1) {
            anchors.extend(part.split('"').next().map(str::to_owned));
        }
    }
    Some(anchors)
}

/// A row of the parity ledger that a comment names is there.
fn parity_references() -> anyhow::Result<Vec<String>> {
    let rows = anchors(&root().join("docs/parity.md")).unwrap_or_default();
    let mut breaches = Vec::new();
    for path in tracked()?.iter().filter(|path| path.extension().is_some_and(|e| e == "rs")) {
        let text = fs::read_to_string(root().join(path))?;
        for part in text.split(concat!("docs/parity.md", "#")).skip(1) {
            let row: String = part.chars().take_while(char::is_ascii_alphanumeric).collect();
            if !rows.contains(&row) {
                breaches.push(format!("{}: docs/parity.md has no row {row}", path.display()));
            }
        }
    }
    Ok(breaches)
}
