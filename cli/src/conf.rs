//! The configuration file of the command line.

use std::{fs, io::Read, path::Path};

use anyhow::Context;
use kube_batch_manifest::diagnostic::{Diagnostic, Severity};
use kube_batch_scheduler::{
    conf::{self, Conf},
    registry::Registry,
};
use kube_batch_yaml::Problem;

use crate::terminal;

/// A configuration and its text; the text of the default configuration is empty.
#[derive(Default)]
pub struct ReadConf {
    pub conf: Conf,
    pub text: String,
    /// Number of warnings printed.
    pub n_warnings: usize,
}

/// A configuration file.
pub(crate) struct ConfText {
    pub(crate) name: String,
    pub(crate) text: String,
}

impl ConfText {
    /// Reads the file.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let name = path.display().to_string();
        let text = fs::read_to_string(path);
        let text = text.with_context(|| format!("cannot read configuration {name}"))?;
        Ok(Self { name, text })
    }

    /// Reads standard input.
    pub(crate) fn from_stdin() -> anyhow::Result<Self> {
        let (name, mut text) = ("standard input".to_owned(), String::new());
        std::io::stdin().lock().read_to_string(&mut text).context("cannot read standard input")?;
        Ok(Self { name, text })
    }

    /// The configuration, after every warning has been printed.
    pub(crate) fn parse(&self, registry: &Registry) -> Result<ReadConf, Vec<Problem>> {
        let conf::Read { conf, warnings } = conf::parse(&self.text, registry)?;
        let n_warnings = warnings.len();
        self.print(Severity::Warning, warnings);
        Ok(ReadConf { conf, text: self.text.clone(), n_warnings })
    }

    /// Prints the errors, and returns how many there are: `2 errors in configuration scheduler.yaml`.
    pub(crate) fn print_errors(&self, errors: Vec<Problem>) -> String {
        let count = match errors.len() {
            1 => "1 error".to_owned(),
            count => format!("{count} errors"),
        };
        self.print(Severity::Error, errors);
        format!("{count} in configuration {}", self.name)
    }

    fn print(&self, severity: Severity, problems: Vec<Problem>) {
        for problem in problems {
            let diagnostic = Diagnostic::from_problem(&self.name, &self.text, problem);
            terminal::diagnostic(&Diagnostic { severity, ..diagnostic });
        }
    }
}

/// Reads the configuration; `None` if it is invalid, after every problem has been printed.
pub fn read_conf(path: Option<&Path>, registry: &Registry) -> anyhow::Result<Option<ReadConf>> {
    let Some(path) = path else { return Ok(Some(ReadConf::default())) };
    let file = ConfText::read(path)?;
    match file.parse(registry) {
        Ok(read) => Ok(Some(read)),
        Err(errors) => {
            terminal::error(&format!("{}; nothing was run", file.print_errors(errors)));
            Ok(None)
        }
    }
}
