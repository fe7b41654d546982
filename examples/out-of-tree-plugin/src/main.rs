//! `kube-batch` with the plugin `nodeprice`: every subcommand knows it.

mod node_price;

use std::process::ExitCode;

use kube_batch::{App, Registry};

fn main() -> ExitCode {
    App::new(Registry::builtin().with_plugin(node_price::SPEC)).main()
}
