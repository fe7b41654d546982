//! Reads and runs files of test cases.

use kube_batch_framework::candidates::Search;
use kube_batch_scheduler::registry::Registry;
use kube_batch_yaml::{Document, Limits, Problem, Stream, documents};

use crate::{case::Case, check::Mismatch, runner::run_case};

/// The result of one test case.
#[derive(Clone, Debug)]
pub struct CaseResult {
    /// Its name; `document N` for a document that is not a valid test case.
    pub name: String,
    /// The outcome.
    pub outcome: CaseOutcome,
}

/// The outcome of a test case.
#[derive(Clone, Debug, PartialEq)]
pub enum CaseOutcome {
    /// Every expectation is met.
    Pass,
    /// Some expectations are not met.
    Fail(Vec<Mismatch>),
    /// It is not a valid test case.
    Invalid(Vec<Problem>),
}

/// Runs every test case of a file; each document is one.
pub fn run_all(bytes: &[u8], registry: &Registry, search: Search) -> Vec<CaseResult> {
    let mut results = Vec::new();
    for (number, document) in documents(bytes).enumerate() {
        let result = match read(document, registry) {
            Ok(None) => continue,
            Ok(Some(case)) => CaseResult { outcome: outcome_of(&case, search), name: case.name },
            Err(problems) => CaseResult {
                name: format!("document {}", number + 1),
                outcome: CaseOutcome::Invalid(problems),
            },
        };
        results.push(result);
    }
    results
}

/// Reads one document; `None` if it is empty.
fn read(document: Document<'_>, registry: &Registry) -> Result<Option<Case>, Vec<Problem>> {
    let text = document.text().map_err(|problem| vec![problem])?;
    let mut stream = Stream::yaml(text, document.line, &Limits::default());
    let value = stream.value().map_err(|problem| vec![problem])?;
    stream.finish().map_err(|problem| vec![problem])?;
    if value.is_null() { Ok(None) } else { Case::read(&value, registry).map(Some) }
}

fn outcome_of(case: &Case, search: Search) -> CaseOutcome {
    match run_case(case, search) {
        Ok(mismatches) if mismatches.is_empty() => CaseOutcome::Pass,
        Ok(mismatches) => CaseOutcome::Fail(mismatches),
        Err(problem) => CaseOutcome::Invalid(vec![problem]),
    }
}
