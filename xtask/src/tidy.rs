//! Checks of the repository that run before a change is merged.

mod claims;
mod cycles;
mod ledger;
mod workflows;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, bail};
use cargo_metadata::{
    DependencyKind, Metadata, MetadataCommand, Node, NodeDep, Package, PackageId,
};
use xtask_launcher::build::root;

use crate::{chart, codegen, monitoring};

/// The workspace crates that each crate may depend on; see ARCHITECTURE.md.
const EDGES: [(&str, &[&str]); 19] = [
    ("kube-batch-yaml", &[]),
    ("kube-batch-model", &[]),
    ("kube-batch-api", &["kube-batch-cache", "kube-batch-model"]),
    ("kube-batch-cache", &["kube-batch-model"]),
    ("kube-batch-cel", &["kube-batch-model"]),
    ("kube-batch-devices", &["kube-batch-cel", "kube-batch-model"]),
    (
        "kube-batch-manifest",
        &[
            "kube-batch-api",
            "kube-batch-cache",
            "kube-batch-cel",
            "kube-batch-model",
            "kube-batch-yaml",
        ],
    ),
    ("kube-batch-framework", &["kube-batch-model"]),
    ("kube-batch-plugins", &["kube-batch-devices", "kube-batch-framework", "kube-batch-model"]),
    ("kube-batch-actions", &["kube-batch-framework", "kube-batch-model"]),
    (
        "kube-batch-scheduler",
        &[
            "kube-batch-actions",
            "kube-batch-model",
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
            "kube-batch-devices",
            "kube-batch-framework",
            "kube-batch-model",
            "kube-batch-manifest",
            "kube-batch-scheduler",
            "kube-batch-yaml",
        ],
    ),
    (
        "kube-batch-cli",
        &[
            "kube-batch-api",
            "kube-batch-cache",
            "kube-batch-framework",
            "kube-batch-model",
            "kube-batch-manifest",
            "kube-batch-scheduler",
            "kube-batch-sim",
            "kube-batch-yaml",
        ],
    ),
    (
        "kube-batch",
        &[
            "kube-batch-api",
            "kube-batch-cache",
            "kube-batch-cli",
            "kube-batch-devices",
            "kube-batch-framework",
            "kube-batch-model",
            "kube-batch-manifest",
            "kube-batch-scheduler",
            "kube-batch-yaml",
        ],
    ),
    (
        "kube-batch-operator-sim",
        &[
            "kube-batch",
            "kube-batch-api",
            "kube-batch-cache",
            "kube-batch-framework",
            "kube-batch-model",
            "kube-batch-scheduler",
        ],
    ),
    ("kube-batch-testbed", &[]),
    ("xtask", &["kube-batch-testbed", "xtask-launcher"]),
    ("xtask-launcher", &[]),
    (
        "kube-batch-tests",
        &[
            "kube-batch",
            "kube-batch-actions",
            "kube-batch-api",
            "kube-batch-cache",
            "kube-batch-framework",
            "kube-batch-model",
            "kube-batch-manifest",
            "kube-batch-plugins",
            "kube-batch-scheduler",
            "kube-batch-sim",
            "kube-batch-yaml",
            "kube-batch-testbed",
            "xtask-launcher",
        ],
    ),
];

/// Crates whose code must not use the network, the clock or random numbers.
const PURE: [&str; 7] = ["model", "cel", "devices", "framework", "plugins", "actions", "scheduler"];

/// Crates that know no type of Kubernetes, whatever they depend on.
const WITHOUT_KUBERNETES: [&str; 8] = [
    "kube-batch-model",
    "kube-batch-cache",
    "kube-batch-cel",
    "kube-batch-devices",
    "kube-batch-framework",
    "kube-batch-plugins",
    "kube-batch-actions",
    "kube-batch-scheduler",
];

/// The types of Kubernetes, and what brings them in.
const KUBERNETES: [&str; 4] = ["k8s-openapi", "kube", "kube-core", "schemars"];

/// Crates of the runtime and the network, which only the binary may use.
const IMPURE_DEPENDENCIES: [&str; 6] =
    ["tokio", "rand", "hyper", "reqwest", "kube-client", "kube-runtime"];

/// Runs every check.
///
/// # Errors
///
/// One error that lists all violations, or the first input that could not be read.
pub(crate) fn run() -> anyhow::Result<()> {
    let metadata = MetadataCommand::new().manifest_path(root().join("Cargo.toml")).exec()?;
    let mut violations = Vec::new();
    violations.extend(edges(&metadata));
    violations.extend(manifests(&metadata)?);
    violations.extend(pure_crates());
    violations.extend(without_kubernetes(&metadata));
    violations.extend(cycles::violations(&metadata)?);
    violations.extend(sources()?);
    violations.extend(links()?);
    violations.extend(chart::violations()?);
    violations.extend(monitoring::violations()?);
    violations.extend(workflows::violations()?);
    violations.extend(claims::violations()?);
    violations.extend(codegen::check().err().map(|error| format!("{error:#}")));
    if violations.is_empty() {
        return Ok(());
    }
    let n = violations.len();
    let noun = if n == 1 { "violation" } else { "violations" };
    bail!("{n} {noun}:\n  {}", violations.join("\n  "))
}

/// The crates of the project. Examples are crates as users write them.
fn workspace(metadata: &Metadata) -> Vec<&Package> {
    let is_example = |package: &&Package| {
        let path = package.manifest_path.as_std_path();
        path.starts_with(metadata.workspace_root.as_std_path().join("examples"))
    };
    let mut packages = metadata.workspace_packages();
    packages.retain(|package| !is_example(package));
    packages
}

fn edges(metadata: &Metadata) -> Vec<String> {
    let allowed: BTreeMap<&str, &[&str]> = EDGES.into_iter().collect();
    let members: BTreeSet<&str> = workspace(metadata).iter().map(|p| p.name.as_str()).collect();
    let mut violations = Vec::new();
    for package in workspace(metadata) {
        let Some(allowed) = allowed.get(package.name.as_str()) else {
            violations.push(format!("{}: crate is missing from EDGES", package.name));
            continue;
        };
        for dependency in &package.dependencies {
            let name = dependency.name.as_str();
            let inside = members.contains(name) && dependency.kind == DependencyKind::Normal;
            if inside && !allowed.contains(&name) {
                violations.push(format!("{}: may not depend on {name}", package.name));
            }
        }
    }
    violations
}

fn manifests(metadata: &Metadata) -> anyhow::Result<Vec<String>> {
    let mut violations = Vec::new();
    for package in workspace(metadata) {
        let directory = package.manifest_path.parent().context("a manifest has a directory")?;
        let text = fs::read_to_string(&package.manifest_path)?;
        let mut require = |is_met: bool, what: &str| {
            if !is_met {
                violations.push(format!("{}: {what}", package.name));
            }
        };
        require(text.contains("[lints]\nworkspace = true"), "must use the workspace lints");
        let own_versions = text
            .lines()
            .filter(|line| line.contains("version = \"") || line.contains("path = \"../"));
        require(own_versions.count() == 0, "must declare dependencies in the workspace only");
        require(package.description.is_some(), "must have a description");
        if package.publish.as_ref().is_none_or(|registries| !registries.is_empty()) {
            require(directory.join("README.md").exists(), "must have a README");
            require(package.license.is_some(), "must have a license");
        }
    }
    Ok(violations)
}

fn pure_crates() -> Vec<String> {
    let mut violations = Vec::new();
    for name in PURE {
        let directory = root().join(name);
        let manifest = fs::read_to_string(directory.join("Cargo.toml")).unwrap_or_default();
        for dependency in IMPURE_DEPENDENCIES {
            let declares = |line: &str| {
                line.split(['.', ' ', '=']).next().is_some_and(|name| name == dependency)
            };
            if manifest.lines().any(declares) {
                violations.push(format!("{name}: is pure and may not use {dependency}"));
            }
        }
        if !directory.join("clippy.toml").exists() {
            violations.push(format!("{name}: is pure and needs a clippy.toml with its bans"));
        }
    }
    violations
}

/// Crates that are compiled with types of Kubernetes although they must know none.
fn without_kubernetes(metadata: &Metadata) -> Vec<String> {
    let resolve = metadata.resolve.as_ref().expect("dependencies are resolved");
    let nodes: BTreeMap<&PackageId, &Node> =
        resolve.nodes.iter().map(|node| (&node.id, node)).collect();
    let mut violations = Vec::new();
    for package in metadata.workspace_packages() {
        if !WITHOUT_KUBERNETES.contains(&package.name.as_str()) {
            continue;
        }
        let (mut found, mut left) = (BTreeSet::new(), vec![&package.id]);
        while let Some(id) = left.pop() {
            let is_normal = |dep: &&NodeDep| {
                dep.dep_kinds.iter().any(|kind| kind.kind == DependencyKind::Normal)
            };
            let deps = nodes[id].deps.iter().filter(is_normal).map(|dep| &dep.pkg);
            left.extend(deps.filter(|id| found.insert(*id)));
        }
        let names = found.into_iter().map(|id| metadata[id].name.as_str());
        for name in names.filter(|name| KUBERNETES.contains(name)) {
            violations
                .push(format!("{}: knows no Kubernetes and may not use {name}", package.name));
        }
    }
    violations
}

/// Files under version control.
fn tracked() -> anyhow::Result<Vec<PathBuf>> {
    let output = Command::new("git").args(["ls-files"]).current_dir(root()).output()?;
    let listing = String::from_utf8(output.stdout)?;
    Ok(listing.lines().map(PathBuf::from).filter(|path| root().join(path).exists()).collect())
}

fn sources() -> anyhow::Result<Vec<String>> {
    // In two parts each, so that this file does not match.
    let unwanted = [concat!("FIX", "ME"), concat!("TO", "DO:"), concat!("#[", "ignore")];
    let mut violations = Vec::new();
    for path in tracked()?.iter().filter(|path| path.extension().is_some_and(|e| e == "rs")) {
        let text = fs::read_to_string(root().join(path))?;
        for word in unwanted.iter().filter(|word| text.contains(**word)) {
            violations.push(format!("{}: contains {word}", path.display()));
        }
        if text.lines().any(|line| line.ends_with([' ', '\t'])) {
            violations.push(format!("{}: has trailing white space", path.display()));
        }
    }
    Ok(violations)
}

/// Checks that relative links in Markdown files exist, anchors included, and that no two anchors have one id.
fn links() -> anyhow::Result<Vec<String>> {
    let mut violations = Vec::new();
    for path in tracked()?.iter().filter(|path| path.extension().is_some_and(|e| e == "md")) {
        let text = fs::read_to_string(root().join(path))?;
        let mut ids = BTreeSet::new();
        for id in ids_of(&text).filter(|id| !ids.insert(*id)) {
            violations.push(format!("{}: two anchors have the id {id}", path.display()));
        }
        for target in link_targets(&text) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let directory = path.parent().unwrap_or(Path::new(""));
            let file = if file.is_empty() { path.clone() } else { directory.join(file) };
            let file = root().join(file);
            let exists = file.exists()
                && (anchor.is_empty() || anchors(&file).is_some_and(|all| all.contains(anchor)));
            if !exists {
                violations.push(format!("{}: dead link {target}", path.display()));
            }
        }
    }
    violations.extend(parity_references()?);
    violations.extend(ledger::violations()?);
    Ok(violations)
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
    }
    anchors.extend(ids_of(&text).map(str::to_owned));
    Some(anchors)
}

/// The explicit ids of a Markdown file.
fn ids_of(text: &str) -> impl Iterator<Item = &str> {
    let parts = text.split("<a id=\"").skip(1);
    parts.filter_map(|part| part.split('"').next())
}

/// Checks that every row of docs/parity.md that a comment names exists.
fn parity_references() -> anyhow::Result<Vec<String>> {
    let rows = anchors(&root().join("docs/parity.md")).unwrap_or_default();
    let mut violations = Vec::new();
    for path in tracked()?.iter().filter(|path| path.extension().is_some_and(|e| e == "rs")) {
        let text = fs::read_to_string(root().join(path))?;
        for part in text.split(concat!("docs/parity.md", "#")).skip(1) {
            let row: String = part.chars().take_while(char::is_ascii_alphanumeric).collect();
            if !rows.contains(&row) {
                violations.push(format!("{}: docs/parity.md has no row {row}", path.display()));
            }
        }
    }
    Ok(violations)
}
