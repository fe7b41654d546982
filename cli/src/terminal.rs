//! Terminal output: colours only in a terminal, a progress bar only for long work.

use std::{
    io::{IsTerminal, Write, stderr, stdout},
    time::Duration,
};

use anstream::ColorChoice;
use anstyle::{AnsiColor, Style};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use kube_batch_manifest::{
    diagnostic::Diagnostic,
    render::{Paint, render},
};

/// Duration after which a progress bar is shown.
const PROGRESS_DELAY: Duration = Duration::from_secs(1);

/// Headings.
pub(crate) const HEADING: Style = Style::new().bold();
/// Success.
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
/// Failure.
pub(crate) const BAD: Style = AnsiColor::Red.on_default();
/// Pending.
pub(crate) const WAITING: Style = AnsiColor::Yellow.on_default();
/// Less important text.
pub(crate) const FAINT: Style = Style::new().dimmed();

/// Text in a style; anstream removes the escape codes if the output is not a terminal.
pub(crate) fn styled(style: Style, text: &str) -> String {
    format!("{style}{text}{style:#}")
}

/// Whether the standard output is a terminal; its width, if so.
pub(crate) fn width() -> Option<usize> {
    if !stdout().is_terminal() {
        return None;
    }
    terminal_size::terminal_size().map(|(width, _)| usize::from(width.0))
}

/// Prints an error.
pub fn error(message: &str) {
    print("error", BAD.bold(), message);
}

/// Prints a warning.
pub(crate) fn warning(message: &str) {
    print("warning", WAITING.bold(), message);
}

/// Prints something worth knowing that is not a problem.
pub(crate) fn note(message: &str) {
    print("note", HEADING, message);
}

fn print(word: &str, style: Style, message: &str) {
    // A closed standard error cannot be reported anywhere.
    let _ = writeln!(anstream::stderr(), "{}: {message}", styled(style, word));
}

/// Prints a problem with its line of the file.
pub(crate) fn diagnostic(diagnostic: &Diagnostic) {
    let paint = match anstream::AutoStream::choice(&stderr()) {
        ColorChoice::Never => Paint::Plain,
        ColorChoice::Auto | ColorChoice::AlwaysAnsi | ColorChoice::Always => Paint::Styled,
    };
    let _ = writeln!(anstream::stderr(), "{}\n", render(diagnostic, paint));
}

/// A progress bar that appears when the work takes longer than a second.
pub(crate) struct Progress {
    bar: ProgressBar,
    started: std::time::Instant,
}

impl Progress {
    pub(crate) fn new(n_steps: Option<u64>, what: &'static str) -> Self {
        let bar = ProgressBar::with_draw_target(n_steps, ProgressDrawTarget::hidden());
        let template = match n_steps {
            Some(_) => "{msg} {wide_bar} {pos}/{len}",
            None => "{msg} {spinner} {pos}",
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_message(what);
        Self { bar, started: std::time::Instant::now() }
    }

    pub(crate) fn step(&self) {
        self.bar.inc(1);
        if self.bar.is_hidden() && stderr().is_terminal() && self.started.elapsed() > PROGRESS_DELAY
        {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
