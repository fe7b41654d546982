//! Case files: read, played, and judged.

use kube_batch_framework::candidates::Search;
use kube_batch_scheduler::registry::Registry;
use kube_batch_yaml::{Document, Limits, Problem, Stream, documents};

use crate::{case::Case, check::Mismatch, runner::play};

/// What became of one scenario.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// Its name; for a document that is no case, `document N`.
    pub name: String,
    /// The outcome.
    pub outcome: Outcome,
}

/// How a scenario ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// Everything held.
    Pass,
    /// Something did not.
    Fail(Vec<Mismatch>),
    /// It could not be read or played.
    Broken(Vec<Problem>),
}

/// Plays every scenario of a file; each document is one.
pub fn play_all(bytes: &[u8], registry: &Registry, search: Search) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    for (number, document) in documents(bytes).enumerate() {
        let verdict = match read(document, registry) {
            Ok(None) => continue,
            Ok(Some(case)) => Verdict { outcome: judge(&case, search), name: case.name },
            Err(problems) => Verdict {
                name: format!("document {}", number + 1),
                outcome: Outcome::Broken(problems),
            },
        };
        verdicts.push(verdict);
    }
    verdicts
}

/// Reads one document; an empty one is no case.
fn read(document: Document<'_>, registry: &Registry) -> Result<Option<Case>, Vec<Problem>> {
    let text = document.text().map_err(|problem| vec![problem])?;
    let mut stream = Stream::yaml(text, document.line, &Limits::default());
    let value = stream.value().map_err(|problem| vec![problem])?;
    stream.finish().map_err(|problem| vec![problem])?;
    if value.is_null() { Ok(None) } else { Case::read(&value, registry).map(Some) }
}

fn judge(case: &Case, search: Search) -> Outcome {
    match play(case, search) {
        Ok(mismatches) if mismatches.is_empty() => Outcome::Pass,
        Ok(mismatches) => Outcome::Fail(mismatches),
        Err(problem) => Outcome::Broken(vec![problem]),
    }
}
