//! Checks of the repository that run before a change is merged.

mod claims;
mod crates;
mod cycles;
mod features;
mod files;
mod ledger;
mod names;
mod plugin_docs;
mod tree;
mod workflows;

use std::{collections::BTreeSet, fs, path::Path};

use anyhow::bail;
use cargo_metadata::MetadataCommand;
use xtask_launcher::build::root;

use self::files::tracked;
use crate::{chart, codegen, monitoring};

/// Runs every check.
///
/// # Errors
///
/// One error that lists all violations, or the first input that could not be read.
pub(crate) fn run() -> anyhow::Result<()> {
    let metadata = MetadataCommand::new().manifest_path(root().join("Cargo.toml")).exec()?;
    let mut violations = Vec::new();
    violations.extend(crates::violations(&metadata)?);
    violations.extend(features::violations()?);
    violations.extend(cycles::violations(&metadata)?);
    violations.extend(names::violations()?);
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
    violations.extend(plugin_docs::violations()?);
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
