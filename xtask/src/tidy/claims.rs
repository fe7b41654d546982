//! The tests that SECURITY.md names as evidence: a claim whose test is gone is a claim without one.

use std::fs;

use anyhow::Context;
use xtask_launcher::build::root;

const DOCUMENT: &str = "SECURITY.md";

/// References in SECURITY.md to tests or cases that do not exist, and rows of tables of claims without
/// any.
pub(super) fn violations() -> anyhow::Result<Vec<String>> {
    let text = fs::read_to_string(root().join(DOCUMENT)).context("read SECURITY.md")?;
    let mut violations = Vec::new();
    for (file, function) in references(&text) {
        let source = fs::read_to_string(root().join(file)).unwrap_or_default();
        if !has_test(&source, function) {
            violations.push(format!("{DOCUMENT}: {file} has no test {function}"));
        }
    }
    let unproven = claims(&text).filter(|row| references(row).next().is_none() && !has_case(row));
    violations.extend(unproven.map(|row| format!("{DOCUMENT}: no test is named in `{row}`")));
    Ok(violations)
}

/// File and function of each code span such as `cache/src/history.rs::a_late_answer_is_ignored`.
fn references(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let spans = text.split('`').skip(1).step_by(2);
    spans.filter_map(|span| span.split_once("::")).filter(|(file, _)| file.ends_with(".rs"))
}

/// The rows of tables whose last column is `shown by`.
fn claims(text: &str) -> impl Iterator<Item = &str> {
    let mut is_claim = false;
    text.lines().filter(move |line| {
        let is_header = line.ends_with("| shown by |");
        is_claim = is_header || (is_claim && line.starts_with('|'));
        is_claim && !is_header && !line.starts_with("|---")
    })
}

/// Whether a row links to a test case; that the file exists is checked with all links.
fn has_case(row: &str) -> bool {
    row.contains("](tests/cases/")
}

/// Whether a source has a function of this name below an attribute that makes it a test.
fn has_test(source: &str, function: &str) -> bool {
    let head = format!("fn {function}(");
    let mut is_test = false;
    for line in source.lines().map(str::trim) {
        if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            is_test = true;
        } else if line.contains("fn ") && !line.starts_with("//") {
            if is_test && line.contains(&head) {
                return true;
            }
            is_test = false;
        }
    }
    // Property tests are declared in a macro.
    source.contains("proptest!") && source.contains(&head)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
| claim | bound | shown by |
|---|---|---|
| One. | 2 | `a/src/x.rs::holds`, `kube::Client` |
| Two. | 3 | [a case](tests/cases/two.yaml) |
| Three. | | |

| who | what |
|---|---|
| all | nothing |
";

    #[test]
    fn the_tests_and_the_rows_of_claims_are_found() {
        assert_eq!(references(TEXT).collect::<Vec<_>>(), [("a/src/x.rs", "holds")]);
        let rows: Vec<&str> = claims(TEXT).collect();
        assert_eq!(rows.len(), 3);
        assert!(has_case(rows[1]) && !has_case(rows[2]));
    }

    #[test]
    fn only_tests_are_evidence() {
        let source = "fn helper() {}\n#[test]\nfn holds() {}\nfn other() {}";
        assert!(has_test(source, "holds"));
        for function in ["helper", "other", "hold", "absent"] {
            assert!(!has_test(source, function), "{function}");
        }
    }
}
