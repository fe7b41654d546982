//! Prints the files that are made from types and tables of the other crates, as one JSON object of paths below the
//! root of the repository and contents. `cargo xtask codegen` writes them.

mod policy;
mod queues_picture;
mod simulated;
mod usage_picture;

use std::collections::BTreeMap;

use anyhow::Context;
use kube_batch_api::crd;
use kube_batch_sim::outcome::Outcome;
use kube_batch_tests::performance;
use xtask_launcher::build::root;

/// The first line of every generated manifest.
const HEADER: &str = "# Generated from the Rust types by `cargo xtask codegen`; do not edit.\n";

fn main() -> anyhow::Result<()> {
    let mut files =
        BTreeMap::from([policy::file(), queues_picture::file()?, usage_picture::file()?]);
    for (name, definition) in crd::definitions() {
        let yaml = serde_saphyr::to_string(&definition).context("write a CRD as YAML")?;
        files.insert(format!("crds/{name}"), format!("{HEADER}{yaml}"));
    }
    let schema = serde_json::to_string_pretty(&schemars::schema_for!(Outcome))?;
    files.insert("docs/simulate.schema.json".to_owned(), format!("{schema}\n"));
    files.insert(performance::DOCUMENT.to_owned(), performance::document(root())?);
    println!("{}", serde_json::to_string(&files)?);
    Ok(())
}
