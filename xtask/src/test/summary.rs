//! The last lines of a run of all tests.

use super::output::Failure;

/// Lines at most.
const N_LINES: usize = 10;

/// Names of tests on a line at most.
const N_NAMES: usize = 4;

/// What a run of all tests found.
#[derive(Debug, Default)]
pub(super) struct Summary {
    pub(super) n_passed: u32,
    pub(super) failures: Vec<Failure>,
    /// What was left out, and why.
    pub(super) left_out: Vec<String>,
}

impl Summary {
    /// What failed and what was left out, in few lines.
    pub(super) fn lines(&self) -> Vec<String> {
        let n = self.n_passed;
        let head = match (self.failures.is_empty(), self.left_out.is_empty()) {
            (true, true) => format!("all {n} tests passed"),
            (true, false) => format!("{n} tests passed, none failed"),
            (false, _) => format!("FAILED; {n} tests passed"),
        };
        let mut lines = vec![head];
        let room = N_LINES - lines.len() - self.left_out.len();
        let failures: Vec<String> = self.failures.iter().map(describe).collect();
        lines.extend(shortened(&failures, room).map(|failure| format!("  {failure}")));
        lines.extend(self.left_out.iter().map(|reason| format!("left out: {reason}")));
        lines
    }
}

fn describe(failure: &Failure) -> String {
    let mut parts = Vec::new();
    if !failure.tests.is_empty() {
        parts.push(shortened(&failure.tests, N_NAMES).collect::<Vec<_>>().join(", "));
    }
    parts.extend(failure.cause.clone());
    if parts.is_empty() {
        return failure.command.clone();
    }
    format!("{}: {}", failure.command, parts.join("; "))
}

/// At most `n` items. If there are more, the last one says how many.
fn shortened(items: &[String], n: usize) -> impl Iterator<Item = String> {
    let n_shown = if items.len() > n { n - 1 } else { items.len() };
    let n_rest = items.len() - n_shown;
    let rest = (n_rest > 0).then(|| format!("… and {n_rest} more"));
    items[..n_shown].iter().cloned().chain(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(command: &str, n_tests: usize, cause: Option<&str>) -> Failure {
        Failure {
            command: command.to_owned(),
            tests: (0..n_tests).map(|n| format!("t{n}")).collect(),
            cause: cause.map(str::to_owned),
        }
    }

    #[test]
    fn what_failed_and_what_was_left_out_is_named() {
        let failures = vec![
            failure("cargo test -p a --lib", 2, None),
            failure("cargo test -p b --test c", 7, None),
            failure("cargo test -p d --lib", 1, Some("signal: 6")),
            failure("cargo test -p e --lib", 0, None),
        ];
        let left_out = vec!["t9: zsh is missing".to_owned()];
        let expected = [
            "FAILED; 5 tests passed",
            "  cargo test -p a --lib: t0, t1",
            "  cargo test -p b --test c: t0, t1, t2, … and 4 more",
            "  cargo test -p d --lib: t0; signal: 6",
            "  cargo test -p e --lib",
            "left out: t9: zsh is missing",
        ];
        assert_eq!(Summary { n_passed: 5, failures, left_out }.lines(), expected);
    }

    #[test]
    fn there_are_at_most_ten_lines() {
        let failures = (0..20).map(|_| failure("x", 1, None)).collect();
        let left_out = vec![String::new(); 4];
        let lines = Summary { n_passed: 0, failures, left_out }.lines();
        assert_eq!(lines.len(), N_LINES);
        assert_eq!(lines[5], "  … and 16 more");
    }

    #[test]
    fn a_run_without_failures_says_whether_it_was_complete() {
        let complete = Summary { n_passed: 5, ..Summary::default() };
        assert_eq!(complete.lines(), ["all 5 tests passed"]);
        let partial = Summary { left_out: vec!["t: zsh is missing".to_owned()], ..complete };
        assert_eq!(partial.lines(), ["5 tests passed, none failed", "left out: t: zsh is missing"]);
    }
}
