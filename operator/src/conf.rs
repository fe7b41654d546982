//! The configuration file of the command line.

use std::{fs, path::Path};

use anyhow::Context;
use kube_batch_cache::manifest::{Diagnostic, Severity};
use kube_batch_framework::conf::{self, Conf};
use kube_batch_plugins::CATALOG;

use crate::terminal;

/// Reads the configuration; `None` if it was refused and every problem has been shown.
pub(crate) fn read_conf(path: Option<&Path>) -> anyhow::Result<Option<Conf>> {
    let Some(path) = path else { return Ok(Some(Conf::default())) };
    let name = path.display().to_string();
    let text =
        fs::read_to_string(path).with_context(|| format!("cannot read configuration {name}"))?;
    let show = |severity, problem| {
        let diagnostic = Diagnostic::from_problem(&name, &text, problem);
        terminal::diagnostic(&Diagnostic { severity, ..diagnostic });
    };
    match conf::parse(&text, &CATALOG) {
        Ok(read) => {
            read.warnings.into_iter().for_each(|problem| show(Severity::Warning, problem));
            Ok(Some(read.conf))
        }
        Err(problems) => {
            let count = problems.len();
            problems.into_iter().for_each(|problem| show(Severity::Error, problem));
            terminal::error(&format!("{count} errors in configuration {name}: nothing is run"));
            Ok(None)
        }
    }
}
