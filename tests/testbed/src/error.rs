//! What can go wrong with a test bed.

use std::{io, path::PathBuf, time::Duration};

/// A result with the error of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation of the test bed failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The binaries must be built and Go cannot be run. Install it.
    #[error(
        "cannot build the servers of the test bed: `go` does not run; install Go 1.26 or newer \
         (https://go.dev/doc/install), or set KUBEBUILDER_ASSETS to a directory with \
         etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubectl and kwok"
    )]
    GoMissing {
        /// Why `go` does not run.
        source: io::Error,
    },
    /// `go build` failed.
    #[error("cannot build {binary} of the test bed:\n{output}")]
    Build {
        /// The binary.
        binary: &'static str,
        /// The output of Go.
        output: String,
    },
    /// The directory in `KUBEBUILDER_ASSETS` lacks a required binary.
    #[error(
        "{} lacks {missing}; unset KUBEBUILDER_ASSETS to build from source",
        directory.display()
    )]
    AssetsMissing {
        /// The directory.
        directory: PathBuf,
        /// Names of the missing binaries.
        missing: String,
    },
    /// An operation on a file, directory or process failed.
    #[error("cannot {action}")]
    Io {
        /// The operation and its object.
        action: String,
        /// Why it failed.
        source: io::Error,
    },
    /// A certificate or a key could not be created.
    #[error("cannot create the certificate of {subject}")]
    Certificate {
        /// The server or client that it is for.
        subject: String,
        /// Why it failed.
        source: rcgen::Error,
    },
    /// A server ended, or was not ready in time. Read its log.
    #[error("{server} {problem}; the end of {}:\n{tail}", log.display())]
    Server {
        /// Its name.
        server: String,
        /// The problem.
        problem: String,
        /// Its log.
        log: PathBuf,
        /// The last lines of its log.
        tail: String,
    },
    /// `kubectl` ended with an error.
    #[error("kubectl {arguments} failed: {stderr}")]
    Kubectl {
        /// Its arguments.
        arguments: String,
        /// Its standard error.
        stderr: String,
    },
    /// A condition was not met in time.
    #[error("timed out after {} s waiting for {what}", timeout.as_secs())]
    Timeout {
        /// What was waited for.
        what: String,
        /// The timeout.
        timeout: Duration,
    },
    /// The objects of a control plane cannot be put back as they were.
    #[error("cannot restore the objects of the control plane: {0}")]
    Restore(String),
    /// A line of the audit log is not an audit event.
    #[error("cannot read line {line} of the audit log")]
    Audit {
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        source: serde_json::Error,
    },
}

impl Error {
    /// Adds the failed action to an I/O error: `.map_err(Error::io("create the directory /x"))`.
    pub(crate) fn io(action: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let action = action.into();
        |source| Self::Io { action, source }
    }
}
