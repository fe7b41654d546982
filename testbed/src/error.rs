//! What can go wrong with a test bed.

use std::{io, path::PathBuf, time::Duration};

/// Short for a result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why something about the test bed did not work.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The binaries must be built and Go cannot be run. Install it.
    #[error(
        "cannot build the servers of the test bed: `go` does not run; install Go 1.26 or newer \
         (https://go.dev/doc/install), or set KUBEBUILDER_ASSETS to a folder with \
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
        /// What Go had to say.
        output: String,
    },
    /// The folder that `KUBEBUILDER_ASSETS` names lacks something that was asked for.
    #[error(
        "{} lacks {missing}; unset KUBEBUILDER_ASSETS and it is built from source",
        folder.display()
    )]
    AssetsMissing {
        /// The folder.
        folder: PathBuf,
        /// Names of the binaries that are not there.
        missing: String,
    },
    /// A file, folder or process could not be dealt with.
    #[error("cannot {action}")]
    Io {
        /// What was tried, on what.
        action: String,
        /// Why it failed.
        source: io::Error,
    },
    /// A certificate or a key could not be made.
    #[error("cannot make the certificate of {subject}")]
    Certificate {
        /// Whose it was to be.
        subject: String,
        /// Why it failed.
        source: rcgen::Error,
    },
    /// A server ended, or was not ready in time. Read its log.
    #[error("{server} {problem}; the end of {}:\n{tail}", log.display())]
    Server {
        /// Its name.
        server: String,
        /// What it did.
        problem: String,
        /// Its log.
        log: PathBuf,
        /// The last lines of its log.
        tail: String,
    },
    /// `kubectl` ended with an error.
    #[error("kubectl {arguments} failed: {stderr}")]
    Kubectl {
        /// What it was asked.
        arguments: String,
        /// What it wrote.
        stderr: String,
    },
    /// Something was waited for and did not come.
    #[error("waited {} s in vain for {what}", timeout.as_secs())]
    Timeout {
        /// What was waited for.
        what: String,
        /// For how long.
        timeout: Duration,
    },
    /// A line of the audit log is no audit event.
    #[error("cannot read line {line} of the audit log")]
    Audit {
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        source: serde_json::Error,
    },
}

impl Error {
    /// Makes an I/O error say what was tried: `.map_err(Error::io("create the folder /x"))`.
    pub(crate) fn io(action: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let action = action.into();
        |source| Self::Io { action, source }
    }
}
