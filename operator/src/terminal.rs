//! The terminal: colours only where there is one, a progress bar only where work takes long.

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

/// Work that takes less than this shows no progress bar.
const PATIENCE: Duration = Duration::from_secs(1);

/// Headings.
pub(crate) const HEADING: Style = Style::new().bold();
/// What is well.
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
/// What is not.
pub(crate) const BAD: Style = AnsiColor::Red.on_default();
/// What waits.
pub(crate) const WAITING: Style = AnsiColor::Yellow.on_default();
/// What matters less.
pub(crate) const FAINT: Style = Style::new().dimmed();

/// Text in a style; on its way out the escape codes are dropped where they would not be understood.
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

/// Says what is wrong.
pub(crate) fn error(message: &str) {
    say("error", BAD.bold(), message);
}

/// Says what is odd.
pub(crate) fn warning(message: &str) {
    say("warning", WAITING.bold(), message);
}

fn say(word: &str, style: Style, message: &str) {
    // Where even the standard error is closed there is nobody left to tell.
    let _ = writeln!(anstream::stderr(), "{}: {message}", styled(style, word));
}

/// Shows a problem with its line of the source.
pub(crate) fn diagnostic(diagnostic: &Diagnostic) {
    let paint = match anstream::AutoStream::choice(&stderr()) {
        ColorChoice::Never => Paint::Plain,
        ColorChoice::Auto | ColorChoice::AlwaysAnsi | ColorChoice::Always => Paint::Styled,
    };
    let _ = writeln!(anstream::stderr(), "{}\n", render(diagnostic, paint));
}

/// A progress bar of so many steps that appears when the work takes longer than a second.
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
        if self.bar.is_hidden() && stderr().is_terminal() && self.started.elapsed() > PATIENCE {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
