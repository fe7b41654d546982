//! Logs to standard error.

use std::io::{IsTerminal, stderr};

use tracing_subscriber::{EnvFilter, filter::LevelFilter, fmt, prelude::*};

use crate::args::{LogFormat, RunArgs};

/// Starts logging at the verbosity of the flags, or as `KUBE_BATCH_LOG` says by module.
pub(crate) fn start(args: &RunArgs) {
    // As glog in v0.5.0, whose deployments use 3.
    let level = match args.verbosity {
        0..=3 => LevelFilter::INFO,
        4..=5 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    // Of libraries only warnings. The client logs every failed request as an error; here the caller
    // decides what it means.
    let default = format!("warn,kube_batch={level},kube_client=off");
    let filter =
        EnvFilter::try_from_env("KUBE_BATCH_LOG").unwrap_or_else(|_| EnvFilter::new(default));
    let registry = tracing_subscriber::registry().with(filter);
    let layer = fmt::layer().with_writer(stderr).with_ansi(stderr().is_terminal());
    match args.log_format {
        LogFormat::Text => registry.with(layer.with_target(false)).init(),
        LogFormat::Json => registry.with(layer.json().flatten_event(true)).init(),
    }
}
