//! Values of flags that several commands have.

use clap::ValueEnum;
use kube_batch_cache::snapshot::SchedulerNames;
use kube_batch_model::name::Name;

/// Output format of what is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Tables.
    #[default]
    Table,
    /// JSON; that of `simulate` is described in docs/simulate.md.
    Json,
    /// The data of `json` as YAML.
    Yaml,
}

/// Parses a scheduler name.
pub fn scheduler_name(text: &str) -> Result<Name, String> {
    if text.is_empty() { Err("expected a name".to_owned()) } else { Ok(Name::from(text)) }
}

/// The names of these flags.
pub fn scheduler_names(names: &[Name]) -> SchedulerNames {
    SchedulerNames::new(names.iter().cloned()).expect("the flag has a default value")
}
