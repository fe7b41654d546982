//! The results of test cases as text, JSON and JUnit XML.

use std::{
    collections::BTreeMap,
    io::{self, Write},
    time::Duration,
};

use kube_batch_sim::{
    check::Mismatch,
    suite::{CaseOutcome, CaseResult, CycleTrace},
};
use serde::Serialize;

use crate::terminal::{BAD, FAINT, GOOD, WAITING, styled};

/// Why a file of manifests is not run.
pub(super) const MANIFEST: &str = "contains manifests, not test cases: a test case has the keys \
                                   name, objects and expect (docs/cases.md)";
/// Durations from here on are shown without being asked for. Guessed: a case takes milliseconds.
const SLOW: Duration = Duration::from_secs(1);

/// A case that was run.
pub(super) struct Run {
    pub(super) file: String,
    pub(super) duration: Duration,
    pub(super) result: CaseResult,
}

/// All results.
#[derive(Default)]
pub(super) struct Report {
    pub(super) runs: Vec<Run>,
    /// Files that cannot be read.
    pub(super) n_unreadable: usize,
    /// The files of the cases, by name.
    pub(super) names: BTreeMap<String, String>,
}

/// Number of cases by outcome.
#[derive(Clone, Copy, Default)]
pub(super) struct Counts {
    pub(super) passed: usize,
    pub(super) failed: usize,
    pub(super) invalid: usize,
}

impl Counts {
    fn of<'a>(runs: impl Iterator<Item = &'a Run>) -> Self {
        let mut counts = Self::default();
        for run in runs {
            *match run.result.outcome {
                CaseOutcome::Pass => &mut counts.passed,
                CaseOutcome::Fail(_) => &mut counts.failed,
                CaseOutcome::Invalid(_) | CaseOutcome::Manifest => &mut counts.invalid,
            } += 1;
        }
        counts
    }
}

impl Report {
    /// Number of cases by outcome; a file that cannot be read is invalid.
    pub(super) fn counts(&self) -> Counts {
        let counts = Counts::of(self.runs.iter());
        Counts { invalid: counts.invalid + self.n_unreadable, ..counts }
    }

    fn duration(&self) -> Duration {
        self.runs.iter().map(|run| run.duration).sum()
    }

    /// Prints the last line.
    pub(super) fn print_summary(&self, out: &mut dyn Write) -> io::Result<()> {
        let Counts { passed, failed, invalid } = self.counts();
        let not_run = if invalid > 0 { format!(", {invalid} invalid") } else { String::new() };
        let duration = self.duration();
        let time = if duration < SLOW { String::new() } else { format!(" in {}", shown(duration)) };
        writeln!(out, "\n{passed} passed, {failed} failed{not_run}{time}")
    }

    /// Prints everything as JSON.
    pub(super) fn print_json(&self, out: &mut dyn Write) -> io::Result<()> {
        let Counts { passed, failed, invalid } = self.counts();
        let cases = self.runs.iter().map(JsonCase::of).collect();
        let seconds = self.duration().as_secs_f64();
        let report = JsonReport { passed, failed, invalid, seconds, cases };
        serde_json::to_writer_pretty(&mut *out, &report).map_err(io::Error::from)?;
        writeln!(out)
    }

    /// Prints everything as JUnit XML: a suite for each file.
    pub(super) fn print_junit(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut files: BTreeMap<&str, Vec<&Run>> = BTreeMap::new();
        for run in &self.runs {
            files.entry(&run.file).or_default().push(run);
        }
        writeln!(out, r#"<?xml version="1.0" encoding="UTF-8"?>"#)?;
        let totals = attributes(self.counts(), self.duration());
        writeln!(out, r#"<testsuites name="kube-batch test" {totals}>"#)?;
        for (file, runs) in files {
            let counts = Counts::of(runs.iter().copied());
            let totals = attributes(counts, runs.iter().map(|run| run.duration).sum());
            writeln!(out, r#"  <testsuite name="{}" {totals}>"#, escaped(file))?;
            for run in runs {
                run.print_junit(out)?;
            }
            writeln!(out, "  </testsuite>")?;
        }
        writeln!(out, "</testsuites>")
    }
}

impl Run {
    /// Prints the outcome, and what is wrong.
    pub(super) fn print(&self, out: &mut dyn Write, verbose: bool) -> io::Result<()> {
        let time = if verbose || self.duration >= SLOW {
            styled(FAINT, &format!(" ({})", shown(self.duration)))
        } else {
            String::new()
        };
        let name = &self.result.name;
        match &self.result.outcome {
            CaseOutcome::Pass => writeln!(out, "{} {name}{time}", styled(GOOD, "PASS")),
            CaseOutcome::Fail(mismatches) => {
                writeln!(out, "{} {name}{time}", styled(BAD, "FAIL"))?;
                for Mismatch { key, wanted, got } in mismatches {
                    writeln!(out, "     {key}")?;
                    writeln!(out, "       {} {wanted}", styled(FAINT, "wanted"))?;
                    writeln!(out, "       {}    {got}", styled(FAINT, "got"))?;
                }
                self.result.trace.iter().try_for_each(|cycle| print_cycle(out, cycle))
            }
            // Printed as an error.
            CaseOutcome::Invalid(_) | CaseOutcome::Manifest => Ok(()),
        }
    }

    fn print_junit(&self, out: &mut dyn Write) -> io::Result<()> {
        let (name, class) = (escaped(&self.result.name), escaped(&self.file));
        let time = self.duration.as_secs_f64();
        write!(out, r#"    <testcase name="{name}" classname="{class}" time="{time:.6}""#)?;
        let (element, message, lines) = match &self.result.outcome {
            CaseOutcome::Pass => return writeln!(out, "/>"),
            CaseOutcome::Fail(mismatches) => {
                let mut lines: Vec<String> = mismatches
                    .iter()
                    .map(|Mismatch { key, wanted, got }| {
                        format!("{key}: wanted {wanted}, got {got}")
                    })
                    .collect();
                let message = lines.first().cloned().unwrap_or_default();
                let mut cycles = Vec::new();
                for cycle in &self.result.trace {
                    print_cycle(&mut cycles, cycle)?;
                }
                let cycles = String::from_utf8_lossy(&cycles);
                lines.push(anstream::adapter::strip_str(&cycles).to_string());
                ("failure", message, lines)
            }
            CaseOutcome::Invalid(problems) => {
                let lines = problems.iter().map(ToString::to_string).collect();
                ("error", "not a valid test case".to_owned(), lines)
            }
            CaseOutcome::Manifest => ("error", MANIFEST.to_owned(), Vec::new()),
        };
        let text = lines.join("\n");
        let (message, text) = (escaped(&message), escaped(text.trim_end()));
        writeln!(
            out,
            ">\n      <{element} message=\"{message}\">{text}</{element}>\n    </testcase>"
        )
    }
}

fn print_cycle(out: &mut dyn Write, cycle: &CycleTrace) -> io::Result<()> {
    let CycleTrace { decisions, waiting } = cycle;
    writeln!(out, "     {}", styled(FAINT, &format!("cycle {}", decisions.cycle)))?;
    for bind in &decisions.binds {
        writeln!(out, "       {} {} to {}", styled(GOOD, "bind"), bind.pod, bind.node)?;
    }
    for eviction in &decisions.evictions {
        let (pod, node, reason) = (&eviction.pod, &eviction.node, &eviction.reason);
        let for_ = &eviction.for_;
        writeln!(out, "       {} {pod} from {node}: {reason} for {for_}", styled(BAD, "evict"))?;
    }
    for nominated in &decisions.pipelined {
        let (pod, node) = (&nominated.pod, &nominated.node);
        writeln!(out, "       {} {pod} for {node}", styled(WAITING, "nominate"))?;
    }
    for waiting in waiting {
        let (job, message) = (&waiting.job, &waiting.message);
        writeln!(out, "       {} {job}: {message}", styled(WAITING, "waits"))?;
    }
    if decisions.is_idle() && waiting.is_empty() {
        writeln!(out, "       nothing to do")?;
    }
    Ok(())
}

fn attributes(counts: Counts, duration: Duration) -> String {
    let Counts { passed, failed, invalid } = counts;
    let (all, time) = (passed + failed + invalid, duration.as_secs_f64());
    format!(r#"tests="{all}" failures="{failed}" errors="{invalid}" time="{time:.6}""#)
}

/// Text in XML; control characters, which XML cannot contain, are left out.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' | '\t' => escaped.push(letter),
            letter if letter.is_control() => {}
            letter => escaped.push(letter),
        }
    }
    escaped
}

fn shown(duration: Duration) -> String {
    match duration.as_secs_f64() {
        seconds if seconds < 1.0 => format!("{:.1} ms", seconds * 1000.0),
        seconds => format!("{seconds:.1} s"),
    }
}

#[derive(Serialize)]
struct JsonReport<'a> {
    passed: usize,
    failed: usize,
    invalid: usize,
    seconds: f64,
    cases: Vec<JsonCase<'a>>,
}

#[derive(Serialize)]
struct JsonCase<'a> {
    file: &'a str,
    name: &'a str,
    outcome: &'static str,
    seconds: f64,
    mismatches: Vec<JsonMismatch<'a>>,
    problems: Vec<String>,
    warnings: Vec<String>,
    cycles: &'a [CycleTrace],
}

#[derive(Serialize)]
struct JsonMismatch<'a> {
    key: &'a str,
    wanted: &'a str,
    got: &'a str,
}

impl<'a> JsonCase<'a> {
    fn of(run: &'a Run) -> Self {
        let CaseResult { name, outcome, warnings, trace, name_at: _ } = &run.result;
        let mut case = Self {
            file: &run.file,
            name,
            outcome: "invalid",
            seconds: run.duration.as_secs_f64(),
            mismatches: Vec::new(),
            problems: Vec::new(),
            warnings: warnings.iter().map(ToString::to_string).collect(),
            cycles: trace,
        };
        match outcome {
            CaseOutcome::Pass => case.outcome = "passed",
            CaseOutcome::Fail(mismatches) => {
                case.outcome = "failed";
                let mismatch =
                    |Mismatch { key, wanted, got }: &'a Mismatch| JsonMismatch { key, wanted, got };
                case.mismatches = mismatches.iter().map(mismatch).collect();
            }
            CaseOutcome::Invalid(problems) => {
                case.problems = problems.iter().map(ToString::to_string).collect();
            }
            CaseOutcome::Manifest => case.problems = vec![MANIFEST.to_owned()],
        }
        case
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped_for_xml() {
        assert_eq!(escaped("a<b> \"c\" & \u{1b}d\n"), "a&lt;b&gt; &quot;c&quot; &amp; d\n");
    }

    #[test]
    fn durations_are_short() {
        assert_eq!(shown(Duration::from_micros(12_340)), "12.3 ms");
        assert_eq!(shown(Duration::from_millis(1_234)), "1.2 s");
    }
}
