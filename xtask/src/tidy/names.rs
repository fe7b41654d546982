//! Names of types that more than one file sees.
//!
//! A reader who meets a name must not have to ask which of several types it is. So no two types that cross a file have
//! one name in a crate, and none has the name of a type that another crate shows to all.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use xtask_launcher::build::root;

use super::files::tracked;

/// Crates that know nothing of scheduling, and code that nothing else uses.
const APART: [&str; 5] = ["lib/", "tests/", "xtask/", "fuzz/", "examples/"];

/// A type that more than its file sees.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Declared {
    name: String,
    /// The directory of the crate.
    of: String,
    is_public: bool,
    at: String,
}

/// Names that have two meanings.
pub(super) fn violations() -> anyhow::Result<Vec<String>> {
    let mut declared = Vec::new();
    for path in tracked()?.iter().filter_map(|path| path.to_str()) {
        if let Some(of) = crate_of(path) {
            let text = fs::read_to_string(root().join(path))?;
            declared.extend(declarations(of, path, &text));
        }
    }
    Ok(ambiguous(declared))
}

/// The directory of the crate of a source file that is checked.
fn crate_of(path: &str) -> Option<&str> {
    let (of, file) = path.split_once("/src/")?;
    let is_rust = Path::new(file).extension().is_some_and(|extension| extension == "rs");
    let is_test = file.ends_with("tests.rs") || file.contains("tests/");
    (is_rust && !is_test && !APART.iter().any(|apart| path.starts_with(apart))).then_some(of)
}

/// The types that a file declares for others. Those of a module inside the file are indented, and do not count.
fn declarations<'a>(of: &'a str, path: &'a str, text: &'a str) -> impl Iterator<Item = Declared> {
    text.lines().zip(1..).filter_map(move |(line, number)| {
        let rest = line.strip_prefix("pub")?;
        let is_public = rest.starts_with(' ');
        let rest = if is_public { rest } else { rest.strip_prefix('(')?.split_once(')')?.1 };
        let (kind, rest) = rest.trim_start().split_once(' ')?;
        if !["struct", "enum", "trait", "type", "union"].contains(&kind) {
            return None;
        }
        let name = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()?.to_owned();
        Some(Declared { name, of: of.to_owned(), is_public, at: format!("{path}:{number}") })
    })
}

fn ambiguous(declared: Vec<Declared>) -> Vec<String> {
    let mut by_name: BTreeMap<String, Vec<Declared>> = BTreeMap::new();
    for one in declared {
        by_name.entry(one.name.clone()).or_default().push(one);
    }
    by_name.retain(|_, all| {
        let crates: BTreeSet<&String> = all.iter().map(|one| &one.of).collect();
        crates.len() < all.len() || (all.len() > 1 && all.iter().any(|one| one.is_public))
    });
    let places =
        |all: Vec<Declared>| all.into_iter().map(|one| one.at).collect::<Vec<_>>().join(", ");
    by_name
        .into_iter()
        .map(|(name, all)| format!("{name} is the name of several types: {}", places(all)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let of = |path| crate_of(path).expect("a path of a crate");
        ambiguous(
            files.iter().flat_map(|(path, text)| declarations(of(path), path, text)).collect(),
        )
    }

    #[test]
    fn a_name_that_crosses_a_file_has_one_meaning() {
        let (in_crate, public) = ("pub(crate) struct Plan {", "\npub enum Plan<'a> {");
        assert_eq!(found(&[("sim/src/a.rs", in_crate), ("cache/src/a.rs", in_crate)]), [""; 0]);
        assert_eq!(
            found(&[("sim/src/a.rs", in_crate), ("sim/src/b.rs", "pub(super) type Plan = u8;")]),
            ["Plan is the name of several types: sim/src/a.rs:1, sim/src/b.rs:1"]
        );
        assert_eq!(
            found(&[("sim/src/a.rs", in_crate), ("cache/src/a.rs", public)]),
            ["Plan is the name of several types: sim/src/a.rs:1, cache/src/a.rs:2"]
        );
    }

    #[test]
    fn what_a_file_keeps_to_itself_may_have_any_name() {
        let private =
            "struct Plan;\nmod inner {\n    pub(super) struct Plan;\n}\n/// pub struct Plan;";
        assert_eq!(
            found(&[("sim/src/a.rs", private), ("sim/src/b.rs", "pub struct Plan;")]),
            [""; 0]
        );
    }

    #[test]
    fn tests_and_libraries_are_apart() {
        let checked = [
            "sim/src/a.rs",
            "sim/src/tests.rs",
            "sim/src/a/tests/b.rs",
            "lib/yaml/src/a.rs",
            "sim/a.rs",
        ];
        assert_eq!(checked.map(crate_of), [Some("sim"), None, None, None, None]);
    }
}
