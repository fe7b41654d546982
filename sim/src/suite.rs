//! Reads and runs files of test cases.

use std::ops::ControlFlow;

use kube_batch_framework::candidates::Search;
use kube_batch_scheduler::{conf::Conf, registry::Registry};
use kube_batch_yaml::{Document, Limits, Located, Problem, Stream, documents};
use serde::Serialize;

use crate::{
    case::Case,
    check::Mismatch,
    outcome::CycleOutcome,
    runner::{run_case, run_case_observed},
    simulation::Simulation,
};

/// How test cases are run.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// How nodes are searched.
    pub search: Search,
    /// The configuration to use instead of the cases' own.
    pub conf: Option<Conf>,
    /// Whether cases that fail are run again to record their cycles.
    pub traces: bool,
}

/// The result of one test case.
#[derive(Clone, Debug)]
pub struct CaseResult {
    /// Its name; `document N` for a document that is not a valid test case.
    pub name: String,
    /// The line and the column of its name, or of the document, from 1.
    pub name_at: (u32, u32),
    /// The outcome.
    pub outcome: CaseOutcome,
    /// Keys and values without effect in its configuration.
    pub warnings: Vec<Problem>,
    /// The cycles of a case that failed, if they are recorded.
    pub trace: Vec<CycleTrace>,
}

/// What happened in a cycle of a test case.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CycleTrace {
    /// The decisions.
    #[serde(flatten)]
    pub decisions: CycleOutcome,
    /// Jobs that wait, and why.
    pub waiting: Vec<WaitingJob>,
}

/// A job that waits.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WaitingJob {
    /// Its name.
    pub job: String,
    /// Why it waits.
    pub message: String,
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
    /// It is a manifest.
    Manifest,
}

/// Runs every test case of a file; each document is one.
pub fn run_all(bytes: &[u8], registry: &Registry, search: Search) -> Vec<CaseResult> {
    let mut results = Vec::new();
    let options = RunOptions { search, ..RunOptions::default() };
    let _ = run_each(bytes, registry, &options, &mut |result| {
        results.push(result);
        ControlFlow::Continue(())
    });
    results
}

/// Runs every test case of a file, and passes on each result before it runs the next case.
pub fn run_each(
    bytes: &[u8],
    registry: &Registry,
    options: &RunOptions,
    finished: &mut dyn FnMut(CaseResult) -> ControlFlow<()>,
) -> ControlFlow<()> {
    for (number, document) in documents(bytes).enumerate() {
        let name_at = (document.line, 1);
        let result = |name, outcome| {
            let (warnings, trace) = (Vec::new(), Vec::new());
            CaseResult { name, name_at, outcome, warnings, trace }
        };
        let unnamed = || format!("document {}", number + 1);
        finished(match read(document, registry) {
            Ok(Content::Nothing) => continue,
            Ok(Content::Manifest) => result(unnamed(), CaseOutcome::Manifest),
            Ok(Content::Case(case)) => run_one(*case, options),
            Err(problems) => result(unnamed(), CaseOutcome::Invalid(problems)),
        })?;
    }
    ControlFlow::Continue(())
}

/// What a document contains.
enum Content {
    Nothing,
    Manifest,
    Case(Box<Case>),
}

fn read(document: Document<'_>, registry: &Registry) -> Result<Content, Vec<Problem>> {
    let text = document.text().map_err(|problem| vec![problem])?;
    let mut stream = Stream::yaml(text, document.line, &Limits::default());
    let value = stream.value().map_err(|problem| vec![problem])?;
    stream.finish().map_err(|problem| vec![problem])?;
    if value.is_null() {
        return Ok(Content::Nothing);
    }
    if is_manifest(&value) {
        return Ok(Content::Manifest);
    }
    let case = Case::read(&value, registry)?;
    if case.tests_nothing() {
        let (line, column) = case.name_at;
        let message = "has no expectations, so it tests nothing".to_owned();
        return Err(vec![Problem { line, column, path: "name".to_owned(), message }]);
    }
    Ok(Content::Case(Box::new(case)))
}

fn is_manifest(value: &Located<'_>) -> bool {
    value.get("apiVersion").is_some() && value.get("kind").is_some()
}

fn run_one(mut case: Case, options: &RunOptions) -> CaseResult {
    if let Some(conf) = &options.conf {
        case.conf = conf.clone();
    }
    let outcome = match run_case(&case, options.search) {
        Ok(mismatches) if mismatches.is_empty() => CaseOutcome::Pass,
        Ok(mismatches) => CaseOutcome::Fail(mismatches),
        Err(problems) => CaseOutcome::Invalid(problems),
    };
    let is_traced = options.traces && matches!(outcome, CaseOutcome::Fail(_));
    let trace = if is_traced { trace(&case, options.search) } else { Vec::new() };
    let Case { name, name_at, warnings, .. } = case;
    CaseResult { name, name_at, outcome, warnings, trace }
}

/// Runs a case once more, and records its cycles.
fn trace(case: &Case, search: Search) -> Vec<CycleTrace> {
    let mut cycles = Vec::new();
    // The first run reported what is wrong.
    let _ = run_case_observed(case, search, &mut |simulation| cycles.extend(cycle(simulation)));
    cycles
}

fn cycle(simulation: &Simulation) -> Option<CycleTrace> {
    let cycle = &simulation.last()?.cycle;
    let waiting = cycle.jobs.iter().filter_map(|job| {
        let why = job.unschedulable.as_ref().or(job.unplaced_because.as_ref())?;
        Some(WaitingJob { job: job.key.to_string(), message: why.words().to_owned() })
    });
    let decisions = CycleOutcome::of(simulation.world.n_cycles(), cycle);
    Some(CycleTrace { decisions, waiting: waiting.collect() })
}
