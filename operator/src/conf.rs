//! The configuration file of the command line.

use std::{fs, path::Path};

use anyhow::Context;
use kube_batch_manifest::diagnostic::{Diagnostic, Severity};
use kube_batch_scheduler::{
    conf::{self, Conf},
    registry::Registry,
};

use crate::terminal;

/// A configuration and its text; the text of the default configuration is empty.
#[derive(Default)]
pub(crate) struct ReadConf {
    pub(crate) conf: Conf,
    pub(crate) text: String,
    /// Number of warnings printed.
    pub(crate) n_warnings: usize,
}

/// Reads the configuration; `None` if it is invalid, after every problem has been printed.
pub(crate) fn read_conf(
    path: Option<&Path>,
    registry: &Registry,
) -> anyhow::Result<Option<ReadConf>> {
    let Some(path) = path else { return Ok(Some(ReadConf::default())) };
    let name = path.display().to_string();
    let text =
        fs::read_to_string(path).with_context(|| format!("cannot read configuration {name}"))?;
    let show = |severity, problem| {
        let diagnostic = Diagnostic::from_problem(&name, &text, problem);
        terminal::diagnostic(&Diagnostic { severity, ..diagnostic });
    };
    match conf::parse(&text, registry) {
        Ok(read) => {
            let n_warnings = read.warnings.len();
            read.warnings.into_iter().for_each(|problem| show(Severity::Warning, problem));
            Ok(Some(ReadConf { conf: read.conf, text, n_warnings }))
        }
        Err(problems) => {
            let errors = match problems.len() {
                1 => "1 error".to_owned(),
                count => format!("{count} errors"),
            };
            problems.into_iter().for_each(|problem| show(Severity::Error, problem));
            terminal::error(&format!("{errors} in configuration {name}; nothing was run"));
            Ok(None)
        }
    }
}
