//! `kube-batch test`: runs policy test cases and reports which pass.

use std::io::{self, Write};

use kube_batch_framework::candidates::Search;
use kube_batch_manifest::{
    diagnostic::Diagnostic,
    source::{Source, collect_sources},
};
use kube_batch_scheduler::registry::Registry;
use kube_batch_sim::{
    check::Mismatch,
    suite::{CaseOutcome, run_all},
};

use crate::{
    args::TestArgs,
    exit::Exit,
    terminal::{self, BAD, FAINT, GOOD, Progress, styled},
};

#[derive(Default)]
struct Counts {
    passed: usize,
    failed: usize,
    invalid: usize,
}

/// Runs the command.
pub(crate) fn run(args: &TestArgs, registry: &Registry) -> anyhow::Result<Exit> {
    let (sources, problems) = collect_sources(&args.paths);
    let mut counts = Counts { invalid: problems.len(), ..Counts::default() };
    problems.iter().for_each(terminal::diagnostic);
    let progress = Progress::new(Some(sources.len() as u64), "cases");
    let mut out = anstream::stdout().lock();
    for source in sources {
        match source.load() {
            Ok(bytes) => run_file(&mut out, &source, &bytes, registry, &mut counts)?,
            Err(error) => {
                terminal::error(&format!("cannot read {source}: {error}"));
                counts.invalid += 1;
            }
        }
        progress.step();
    }
    let Counts { passed, failed, invalid } = counts;
    let not_run = if invalid > 0 { format!(", {invalid} invalid") } else { String::new() };
    writeln!(out, "\n{passed} passed, {failed} failed{not_run}")?;
    out.flush()?;
    if passed + failed + invalid == 0 {
        terminal::error("these files contain no test cases");
        return Ok(Exit::Usage);
    }
    Ok(match (failed, invalid) {
        (0, 0) => Exit::Ok,
        (_, 0) => Exit::Failed,
        (_, _) => Exit::Usage,
    })
}

fn run_file(
    out: &mut dyn Write,
    source: &Source,
    bytes: &[u8],
    registry: &Registry,
    counts: &mut Counts,
) -> io::Result<()> {
    for result in run_all(bytes, registry, Search::Index) {
        match result.outcome {
            CaseOutcome::Pass => {
                counts.passed += 1;
                writeln!(out, "{} {}", styled(GOOD, "PASS"), result.name)?;
            }
            CaseOutcome::Fail(mismatches) => {
                counts.failed += 1;
                writeln!(out, "{} {}", styled(BAD, "FAIL"), result.name)?;
                print_difference(out, &mismatches)?;
            }
            CaseOutcome::Invalid(problems) => {
                counts.invalid += 1;
                terminal::error(&format!("{source}: {} is not a valid test case", result.name));
                let text = String::from_utf8_lossy(bytes);
                for problem in problems {
                    let shown = Diagnostic::from_problem(source.to_string(), &text, problem);
                    terminal::diagnostic(&shown);
                }
            }
        }
    }
    Ok(())
}

/// Prints expected and actual values.
fn print_difference(out: &mut dyn Write, mismatches: &[Mismatch]) -> io::Result<()> {
    for Mismatch { key, wanted, got } in mismatches {
        writeln!(out, "     {key}")?;
        writeln!(out, "       {} {wanted}", styled(FAINT, "wanted"))?;
        writeln!(out, "       {}    {got}", styled(FAINT, "got"))?;
    }
    Ok(())
}
