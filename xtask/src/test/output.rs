//! What the output of `cargo test` reports: which tests failed, and how many passed.
//!
//! The output is that of Cargo and of the test binaries, one after the other. A binary that ends early prints no list
//! of failures, so Cargo's own lines say which binaries failed. The machine-readable format of test
//! binaries is not stable.

use std::{mem, process::ExitStatus};

/// What a run of `cargo test` reports.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Results {
    pub(super) n_passed: u32,
    pub(super) failures: Vec<Failure>,
    /// Whether a target does not compile: then Cargo has run no tests.
    pub(super) has_compile_errors: bool,
}

impl Results {
    /// Adds the results of another run.
    pub(super) fn append(&mut self, other: Self) {
        self.n_passed += other.n_passed;
        self.failures.extend(other.failures);
        self.has_compile_errors |= other.has_compile_errors;
    }
}

/// A command that failed, such as a test binary.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Failure {
    /// The command that runs it again.
    pub(super) command: String,
    /// The tests that failed, as far as they are known.
    pub(super) tests: Vec<String>,
    /// How it ended, if it did not end with a list of tests.
    pub(super) cause: Option<String>,
}

impl Failure {
    pub(super) fn of_process(command: &str, status: ExitStatus) -> Self {
        Self { command: command.to_owned(), cause: Some(status.to_string()), ..Self::default() }
    }
}

/// Reads the output.
#[derive(Debug, Default)]
pub(super) struct Parser {
    results: Results,
    /// The beginning of a line.
    partial: Vec<u8>,
    section: Section,
    /// The tests on the last list of failures of this binary.
    listed: Vec<String>,
    /// The tests that this binary has reported as failed, one by one.
    reported: Vec<String>,
}

/// What the next line may continue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Section {
    #[default]
    None,
    /// A list of tests that failed.
    Tests,
    /// Cargo's report of a binary that failed.
    Failure,
    /// Cargo's list of all binaries that failed.
    Targets,
}

impl Parser {
    /// Reads more of the output.
    pub(super) fn read(&mut self, bytes: &[u8]) {
        self.partial.extend_from_slice(bytes);
        while let Some(end) = self.partial.iter().position(|&byte| byte == b'\n') {
            let rest = self.partial.split_off(end + 1);
            let line = mem::replace(&mut self.partial, rest);
            self.line(&plain(&line));
        }
    }

    /// What the output reports, which ends here.
    pub(super) fn finish(mut self) -> Results {
        let line = plain(&self.partial);
        self.line(&line);
        self.results
    }

    fn line(&mut self, line: &str) {
        let item = line.strip_prefix("    ").filter(|item| !item.starts_with(' '));
        if let Some(item) = item {
            match self.section {
                Section::Tests => self.listed.push(item.to_owned()),
                Section::Targets => self.target(item.trim_matches('`')),
                Section::None | Section::Failure => {}
            }
        } else if line == "failures:" {
            // The output of a failed test may contain this line too; the last list is that of the binary.
            self.listed.clear();
            self.section = Section::Tests;
        } else if let Some(target) = between(line, "failed, to rerun pass `", "`") {
            self.failed(target);
            self.section = Section::Failure;
        } else if line.starts_with("error: ") && line.ends_with(" failed:") {
            self.section = Section::Targets;
        } else if let Some(target) = line.strip_prefix("error: could not compile `") {
            let target = target.split_once(" due to ").map_or(target, |(target, _)| target);
            self.not_compiled(&target.replacen('`', "", 1));
        } else if self.section == Section::Failure {
            self.cause(line);
        } else {
            self.section = Section::None;
            self.report(line);
        }
    }

    /// A line of a test binary, or of Cargo before it runs one.
    fn report(&mut self, line: &str) {
        let begins =
            ["Running ", "Doc-tests "].iter().any(|head| line.trim_start().starts_with(head));
        if begins && line.starts_with("   ") {
            self.listed.clear();
            self.reported.clear();
        } else if let Some(test) = line.strip_suffix(" ... FAILED") {
            self.reported.extend(test.strip_prefix("test ").map(str::to_owned));
        } else if let Some(n) = line
            .strip_prefix("test result: ")
            .and_then(|rest| between(rest, ". ", " passed; ").and_then(|n| n.parse::<u32>().ok()))
        {
            self.results.n_passed += n;
        }
    }

    fn failed(&mut self, target: &str) {
        let (listed, reported) = (mem::take(&mut self.listed), mem::take(&mut self.reported));
        let tests = if listed.is_empty() { reported } else { listed };
        self.results.failures.push(Failure { command: test_command(target), tests, cause: None });
    }

    /// The lines below Cargo's report of a binary that did not end as test binaries do.
    fn cause(&mut self, line: &str) {
        match between(line, "process didn't exit successfully: `", ")") {
            Some(process) => {
                let cause = process.rsplit_once("` (").map_or(process, |(_, cause)| cause);
                if let Some(failure) = self.results.failures.last_mut() {
                    failure.cause = Some(cause.to_owned());
                }
                self.section = Section::None;
            }
            None if line.is_empty() || line == "Caused by:" => {}
            None => {
                self.section = Section::None;
                self.report(line);
            }
        }
    }

    /// A binary on Cargo's final list, which is usually known.
    fn target(&mut self, target: &str) {
        let command = test_command(target);
        if self.results.failures.iter().all(|failure| failure.command != command) {
            self.results.failures.push(Failure { command, ..Failure::default() });
        }
    }

    fn not_compiled(&mut self, target: &str) {
        self.results.has_compile_errors = true;
        let cause = Some("does not compile".to_owned());
        self.results.failures.push(Failure {
            command: target.to_owned(),
            cause,
            ..Failure::default()
        });
    }
}

fn test_command(target: &str) -> String {
    format!("cargo test {target}")
}

/// The text after the first `head` of a line and before the next `tail`.
fn between<'l>(line: &'l str, head: &str, tail: &str) -> Option<&'l str> {
    let (_, rest) = line.split_once(head)?;
    rest.split_once(tail).map(|(text, _)| text)
}

/// A line without colours, and without the end of the line.
fn plain(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    let mut parts = text.trim_end_matches(['\r', '\n']).split('\x1b');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        // A sequence ends with its first letter: that of a colour is `m`, `(B` selects the character set.
        let end = part.find(|c: char| c.is_ascii_alphabetic()).map_or(part.len(), |end| end + 1);
        plain.push_str(&part[end..]);
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A library with failing tests, of which one prints a list itself, a binary that aborts, and one that passes.
    const RUN: &str = include_str!("samples/run.txt");
    /// A failing example in documentation.
    const DOCUMENTATION: &str = include_str!("samples/documentation.txt");
    const COMPILE_ERROR: &str = include_str!("samples/compile-error.txt");
    const COLOURED: &str = include_str!("samples/coloured.txt");

    fn results(output: &str) -> Results {
        let mut parser = Parser::default();
        // In pieces that end anywhere.
        output.as_bytes().chunks(7).for_each(|bytes| parser.read(bytes));
        parser.finish()
    }

    fn failure(command: &str, tests: &[&str], cause: Option<&str>) -> Failure {
        Failure {
            command: command.to_owned(),
            tests: tests.iter().map(|&test| test.to_owned()).collect(),
            cause: cause.map(str::to_owned),
        }
    }

    const FAILING: [&str; 2] = ["tests::fails", "tests::fails_too"];

    #[test]
    fn failed_tests_and_a_binary_that_aborts_are_found() {
        let aborted = "signal: 6, SIGABRT: process abort signal";
        let failures = vec![
            failure("cargo test -p alpha --lib", &FAILING, None),
            failure("cargo test -p beta --lib", &["tests::fails_before"], Some(aborted)),
        ];
        assert_eq!(results(RUN), Results { n_passed: 3, failures, has_compile_errors: false });
    }

    #[test]
    fn a_failed_example_in_documentation_is_found() {
        let example = "alpha/src/lib.rs - one (line 1)";
        let failures = vec![failure("cargo test -p alpha --doc", &[example], None)];
        assert_eq!(results(DOCUMENTATION), Results { failures, ..Results::default() });
    }

    #[test]
    fn a_target_that_does_not_compile_is_found() {
        let failures = vec![failure("beta (test \"last\")", &[], Some("does not compile"))];
        let expected = Results { n_passed: 0, failures, has_compile_errors: true };
        assert_eq!(results(COMPILE_ERROR), expected);
    }

    #[test]
    fn colours_change_nothing() {
        assert!(COLOURED.contains("\x1b[31mFAILED\x1b(B"));
        let failures = vec![failure("cargo test -p alpha --lib", &FAILING, None)];
        assert_eq!(results(COLOURED), Results { n_passed: 1, failures, ..Results::default() });
    }

    #[test]
    fn a_target_that_only_the_final_list_names_failed() {
        let output = "error: 1 target failed:\n    `-p alpha --test own_harness`\n";
        let failures = vec![failure("cargo test -p alpha --test own_harness", &[], None)];
        assert_eq!(results(output), Results { failures, ..Results::default() });
    }
}
