//! `kube-batch test`: runs policy test cases and reports which pass.

mod report;

use std::{
    collections::BTreeSet,
    io::Write,
    ops::ControlFlow,
    time::{Duration, Instant},
};

use kube_batch_manifest::{
    diagnostic::{Diagnostic, Severity},
    source::{Source, collect_sources},
};
use kube_batch_scheduler::registry::Registry;
use kube_batch_sim::suite::{CaseOutcome, CaseResult, RunOptions, run_each};
use kube_batch_yaml::Problem;

use self::report::{Report, Run};
use crate::{
    commands::{TestArgs, TestFormat},
    conf::{ReadConf, read_conf},
    exit::Exit,
    terminal::{self, Progress},
};

/// Runs the command.
pub(crate) fn run(args: &TestArgs, registry: &Registry) -> anyhow::Result<Exit> {
    let Some(ReadConf { conf, .. }) = read_conf(args.config.as_deref(), registry)? else {
        return Ok(Exit::Usage);
    };
    let options = RunOptions {
        conf: args.config.is_some().then_some(conf),
        traces: args.verbose,
        ..RunOptions::default()
    };
    let (mut sources, problems) = collect_sources(&args.paths);
    // A file that is named, and is in a directory that is named, is run once.
    let mut known = BTreeSet::new();
    sources.retain(|source| known.insert(source.to_string()));
    problems.iter().for_each(terminal::diagnostic);
    let mut report = Report { n_unreadable: problems.len(), ..Report::default() };
    let progress = Progress::new(Some(sources.len() as u64), "cases");
    let mut out = anstream::stdout().lock();
    for source in sources {
        let first = report.runs.len();
        let flow = run_file(&source, registry, &options, args, &mut report);
        if args.output == TestFormat::Text {
            for run in &report.runs[first..] {
                run.print(&mut out, args.verbose)?;
            }
        }
        progress.step();
        if flow.is_break() {
            break;
        }
    }
    match args.output {
        TestFormat::Text => report.print_summary(&mut out)?,
        TestFormat::Json => report.print_json(&mut out)?,
        TestFormat::Junit => report.print_junit(&mut out)?,
    }
    out.flush()?;
    let counts = report.counts();
    if counts.passed + counts.failed + counts.invalid == 0 {
        terminal::error("these files contain no test cases");
        return Ok(Exit::Usage);
    }
    Ok(match (counts.failed, counts.invalid) {
        (0, 0) => Exit::Ok,
        (_, 0) => Exit::Failed,
        (_, _) => Exit::Usage,
    })
}

/// Runs the cases of a file; breaks if no further file is to be run.
fn run_file(
    source: &Source,
    registry: &Registry,
    options: &RunOptions,
    args: &TestArgs,
    report: &mut Report,
) -> ControlFlow<()> {
    let bytes = match source.load() {
        Ok(bytes) => bytes,
        Err(error) => {
            terminal::error(&format!("cannot read {source}: {error}"));
            report.n_unreadable += 1;
            return if args.fail_fast { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
        }
    };
    let mut started = Instant::now();
    let mut has_manifests = false;
    run_each(&bytes, registry, options, &mut |mut result| {
        let duration = started.elapsed();
        started = Instant::now();
        // Once for each file.
        if result.outcome == CaseOutcome::Manifest && std::mem::replace(&mut has_manifests, true) {
            return ControlFlow::Continue(());
        }
        report.reject_used_name(source, &mut result);
        let passed = result.outcome == CaseOutcome::Pass;
        report_invalid(source, &bytes, &result);
        report.runs.push(run_of(source, duration, result));
        if args.fail_fast && !passed { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })
}

fn run_of(source: &Source, duration: Duration, result: CaseResult) -> Run {
    Run { file: source.to_string(), duration, result }
}

/// Prints why a document is not a test case, and what has no effect in its configuration.
fn report_invalid(source: &Source, bytes: &[u8], result: &CaseResult) {
    for warning in &result.warnings {
        let text = String::from_utf8_lossy(bytes);
        let shown = Diagnostic::from_problem(source.to_string(), &text, warning.clone());
        terminal::diagnostic(&Diagnostic { severity: Severity::Warning, ..shown });
    }
    match &result.outcome {
        CaseOutcome::Pass | CaseOutcome::Fail(_) => {}
        CaseOutcome::Manifest => terminal::error(&format!("{source}: {}", report::MANIFEST)),
        CaseOutcome::Invalid(problems) => {
            terminal::error(&format!("{source}: {} is not a valid test case", result.name));
            let text = String::from_utf8_lossy(bytes);
            for problem in problems {
                let shown = Diagnostic::from_problem(source.to_string(), &text, problem.clone());
                terminal::diagnostic(&shown);
            }
        }
    }
}

impl Report {
    /// Makes a case invalid that has the name of an earlier one: results are identified by name.
    fn reject_used_name(&mut self, source: &Source, result: &mut CaseResult) {
        match result.outcome {
            CaseOutcome::Pass | CaseOutcome::Fail(_) => {}
            CaseOutcome::Invalid(_) | CaseOutcome::Manifest => return,
        }
        let Some(file) = self.names.get(&result.name) else {
            self.names.insert(result.name.clone(), source.to_string());
            return;
        };
        let message = format!("a case in {file} has this name too");
        let path = "name".to_owned();
        let (line, column) = result.name_at;
        let problem = Problem { line, column, path, message };
        result.outcome = CaseOutcome::Invalid(vec![problem]);
    }
}
