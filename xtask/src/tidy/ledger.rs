//! How many cases the rows of docs/parity.md say that they have.

use std::{collections::BTreeMap, fs};

use serde_json::Value;
use xtask_launcher::build::root;

/// Rows that say `(16 in all)` where another number of cases names them.
pub(super) fn violations() -> anyhow::Result<Vec<String>> {
    let mut n_cases: BTreeMap<String, usize> = BTreeMap::new();
    for entry in fs::read_dir(root().join("tests/cases"))? {
        for row in rows_of(&fs::read_to_string(entry?.path())?) {
            *n_cases.entry(row).or_default() += 1;
        }
    }
    Ok(wrong_counts(&fs::read_to_string(root().join("docs/parity.md"))?, &n_cases))
}

fn wrong_counts(ledger: &str, n_cases: &BTreeMap<String, usize>) -> Vec<String> {
    let wrong = ledger.lines().filter_map(|line| {
        let row =
            line.strip_prefix("| <a id=\"")?.split_once("</a>")?.1.split_whitespace().next()?;
        let stated = line.split_once(" in all)")?.0.rsplit('(').next()?;
        let counted = n_cases.get(row).copied().unwrap_or(0);
        let is_right = stated.parse() == Ok(counted);
        (!is_right)
            .then(|| format!("docs/parity.md: {row} has {counted} cases, and says {stated} in all"))
    });
    wrong.collect()
}

/// The rows that a case names.
fn rows_of(case: &str) -> Vec<String> {
    let Some(at) = case.find("\nrows:") else { return Vec::new() };
    let is_next_key = |line: &&str| line.starts_with(|first: char| first.is_ascii_lowercase());
    let mut lines = case[at + 1..].lines();
    let first = lines.next().into_iter();
    let own: Vec<&str> = first.chain(lines.take_while(|line| !is_next_key(line))).collect();
    let rows: Option<Value> = serde_saphyr::from_str(&own.join("\n")).ok();
    let rows = rows.as_ref().and_then(|value| value["rows"].as_array());
    rows.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rows_of_a_case_are_read_in_both_styles() {
        assert_eq!(rows_of("name: a\nrows: [A1,\n  B2]\nconfig: {}\n"), ["A1", "B2"]);
        assert_eq!(rows_of("name: a\nrows:\n- A1\nconfig: {}\n"), ["A1"]);
        assert!(rows_of("name: a\n").is_empty());
    }

    #[test]
    fn a_wrong_count_is_named() {
        let ledger = "| <a id=\"a1\"></a>A1 | F | x | y | z (2 in all) |\n";
        let cases = |n| BTreeMap::from([("A1".to_owned(), n)]);
        assert!(wrong_counts(ledger, &cases(2)).is_empty());
        assert_eq!(
            wrong_counts(ledger, &cases(3)),
            ["docs/parity.md: A1 has 3 cases, and says 2 in all"]
        );
    }
}
