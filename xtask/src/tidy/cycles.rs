//! Circular `use` between the files of one crate.
//!
//! Two files that use each other cannot be read, tested or moved one without the other. A child
//! module that uses items of its parent while the parent uses items of the child counts too. Only
//! paths that start with `crate`, `self`, `super` or the name of a child module are followed, and
//! `#[cfg(test)]` items are skipped. Macros are not expanded.

mod source;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    path::{Path, PathBuf},
};

use anyhow::Context;
use cargo_metadata::Metadata;

/// Lists each group of files that use each other.
pub(super) fn violations(metadata: &Metadata) -> anyhow::Result<Vec<String>> {
    let root = metadata.workspace_root.as_std_path();
    let mut groups = BTreeSet::new();
    let mut violations = Vec::new();
    for target in metadata.workspace_packages().iter().flat_map(|package| &package.targets) {
        if target.src_path.file_name() == Some("build.rs") {
            continue;
        }
        let uses = read_crate(target.src_path.as_std_path())?;
        for group in cyclic_groups(&uses) {
            let is_new = groups.insert(names(&group, root));
            if is_new {
                let cycle = names(&shortest_cycle(&uses, &group), root).join(" -> ");
                let files = names(&group, root).join(", ");
                violations.push(format!("circular use: {cycle} (among {files})"));
            }
        }
    }
    Ok(violations)
}

/// Which file uses which other files of its crate.
type Uses = BTreeMap<PathBuf, BTreeSet<PathBuf>>;

fn names(files: &[&Path], root: &Path) -> Vec<String> {
    files.iter().map(|file| file.strip_prefix(root).unwrap_or(file).display().to_string()).collect()
}

/// Reads the module tree of the crate whose root is `root_file`.
fn read_crate(root_file: &Path) -> anyhow::Result<Uses> {
    let mut modules = BTreeMap::from([(Vec::new(), root_file.to_owned())]);
    let mut paths = Vec::new();
    let mut unread = VecDeque::from([(Vec::new(), root_file.to_owned())]);
    while let Some((module, file)) = unread.pop_front() {
        let text = std::fs::read_to_string(&file)
            .with_context(|| format!("cannot read {}", file.display()))?;
        let found = source::read(&text, &module);
        for inline in found.inline_modules {
            modules.insert(inline, file.clone());
        }
        for (child, path) in found.file_modules {
            let below = &child[module.len()..];
            let child_file = match path {
                Some(path) => file.with_file_name(path),
                None => module_file(&file, file == root_file, below),
            };
            modules.insert(child.clone(), child_file.clone());
            unread.push_back((child, child_file));
        }
        paths.extend(found.paths.into_iter().map(|path| (file.clone(), path)));
    }
    let mut uses: Uses = modules.values().map(|file| (file.clone(), BTreeSet::new())).collect();
    for (file, path) in paths {
        let used = (0..=path.len()).rev().find_map(|length| modules.get(&path[..length]));
        if let Some(used) = used.filter(|used| **used != file) {
            uses.entry(file).or_default().insert(used.clone());
        }
    }
    Ok(uses)
}

/// The file of a module declared in `parent`, at the path `below` it.
fn module_file(parent: &Path, is_root: bool, below: &[String]) -> PathBuf {
    let directory = if is_root || parent.ends_with("mod.rs") {
        parent.parent().unwrap_or(Path::new("")).to_owned()
    } else {
        parent.with_extension("")
    };
    let path = directory.join(below.iter().collect::<PathBuf>());
    let nested = path.join("mod.rs");
    if nested.exists() { nested } else { path.with_extension("rs") }
}

/// The groups of two and more files of which each reaches every other.
fn cyclic_groups(uses: &Uses) -> Vec<Vec<&Path>> {
    let reachable: BTreeMap<&Path, BTreeSet<&Path>> =
        uses.keys().map(|file| (file.as_path(), reachable(uses, file))).collect();
    let mut groups = BTreeSet::new();
    for (file, reached) in &reachable {
        if reached.contains(file) {
            let is_mutual =
                |other: &&&Path| reachable.get(*other).is_some_and(|back| back.contains(file));
            groups.insert(reached.iter().filter(is_mutual).copied().collect::<Vec<_>>());
        }
    }
    groups.into_iter().collect()
}

/// The files that `start` uses, directly or not.
fn reachable<'u>(uses: &'u Uses, start: &Path) -> BTreeSet<&'u Path> {
    let mut reached = BTreeSet::new();
    let mut open = vec![start];
    while let Some(file) = open.pop() {
        for used in uses.get(file).into_iter().flatten() {
            if reached.insert(used.as_path()) {
                open.push(used);
            }
        }
    }
    reached
}

/// A shortest cycle from the first file of a group back to it.
fn shortest_cycle<'u>(uses: &'u Uses, group: &[&'u Path]) -> Vec<&'u Path> {
    let start = group[0];
    let mut open = VecDeque::from([vec![start]]);
    let mut visited = BTreeSet::new();
    while let Some(path) = open.pop_front() {
        let last = path[path.len() - 1];
        for used in uses.get(last).into_iter().flatten() {
            let longer = [path.as_slice(), &[used.as_path()]].concat();
            if used == start {
                return longer;
            }
            if visited.insert(used) {
                open.push_back(longer);
            }
        }
    }
    group.to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uses(edges: &[(&str, &str)]) -> Uses {
        let mut uses = Uses::new();
        for (from, to) in edges {
            uses.entry(PathBuf::from(from)).or_default().insert(PathBuf::from(to));
        }
        uses
    }

    fn groups(edges: &[(&str, &str)]) -> Vec<Vec<String>> {
        let uses = uses(edges);
        cyclic_groups(&uses).iter().map(|group| names(group, Path::new("/"))).collect()
    }

    #[test]
    fn files_that_use_each_other_are_one_group() {
        assert!(groups(&[("a", "b"), ("a", "c"), ("b", "c")]).is_empty());
        assert_eq!(
            groups(&[("a", "b"), ("b", "c"), ("c", "b"), ("c", "d"), ("e", "f"), ("f", "e")]),
            [["b", "c"], ["e", "f"]]
        );
    }

    #[test]
    fn a_shortest_cycle_is_named() {
        let uses = uses(&[("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("d", "a")]);
        let group = cyclic_groups(&uses).remove(0);
        assert_eq!(names(&shortest_cycle(&uses, &group), Path::new("/")), ["a", "b", "c", "a"]);
    }

    #[test]
    fn a_child_module_that_uses_its_parent_is_found() {
        let directory = tempfile::tempdir().expect("a directory");
        let write = |name: &str, text: &str| {
            let path = directory.path().join(name);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
            std::fs::write(path, text).expect("a file");
        };
        write("lib.rs", "pub mod a;\nmod c;\npub use self::a::A;");
        write("a.rs", "mod b;\npub struct A;\nfn f() { b::g() }");
        write("a/b.rs", "use super::A;\npub fn g() {}");
        write("c.rs", "use crate::a::A;\n#[cfg(test)]\nmod tests { use crate::A; }");
        let uses = read_crate(&directory.path().join("lib.rs")).expect("a crate");
        let groups: Vec<_> =
            cyclic_groups(&uses).iter().map(|group| names(group, directory.path())).collect();
        assert_eq!(groups, [["a/b.rs", "a.rs"]]);
    }
}
