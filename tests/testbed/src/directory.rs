//! The directory of one control plane, and when its files are kept.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use tempfile::TempDir;

use crate::error::{Error, Result};

/// A temporary directory that is removed when dropped, except for its logs if something went wrong.
#[derive(Debug)]
pub(crate) struct Directory {
    /// `None` only while this is being dropped.
    root: Option<TempDir>,
    keeps_logs: AtomicBool,
}

impl Directory {
    /// A new directory among the system's temporary files.
    pub(crate) fn new() -> Result<Self> {
        let action = "create a temporary directory for a control plane";
        let root = tempfile::Builder::new().prefix("kube-batch-testbed-").tempdir();
        let root = root.map_err(Error::io(action))?;
        for part in [Part::Certificates, Part::Data, Part::Home, Part::Logs] {
            fs::create_dir(root.path().join(part.name())).map_err(Error::io(action))?;
        }
        Ok(Self { root: Some(root), keeps_logs: AtomicBool::new(false) })
    }

    /// Its path.
    pub(crate) fn root(&self) -> PathBuf {
        let root = self.root.as_ref().expect("the directory exists until it is dropped");
        root.path().to_owned()
    }

    /// One of its subdirectories.
    pub(crate) fn part(&self, part: Part) -> PathBuf {
        self.root().join(part.name())
    }

    /// Leaves the logs where they are, whatever happens.
    pub(crate) fn keep_logs(&self) {
        self.keeps_logs.store(true, Ordering::Relaxed);
    }

    /// Whether the logs stay.
    pub(crate) fn are_logs_kept(&self) -> bool {
        self.keeps_logs.load(Ordering::Relaxed)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let Some(root) = self.root.take() else { return };
        if !self.are_logs_kept() && !thread::panicking() {
            // Files that cannot be removed stay among the temporary files of the system.
            return drop(root);
        }
        let root = root.keep();
        for part in [Part::Certificates, Part::Data, Part::Home] {
            let _ = fs::remove_dir_all(root.join(part.name()));
        }
        eprintln!(
            "the logs of the control plane are in {}",
            root.join(Part::Logs.name()).display()
        );
    }
}

/// The subdirectories of a [`Directory`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum Part {
    /// Keys, certificates, kubeconfigs.
    Certificates,
    /// Data of etcd.
    Data,
    /// The home directory of `kubectl`: it caches there, and finds no settings of the user.
    Home,
    /// Logs and the audit log.
    Logs,
}

impl Part {
    fn name(self) -> &'static Path {
        Path::new(match self {
            Self::Certificates => "certificates",
            Self::Data => "data",
            Self::Home => "home",
            Self::Logs => "logs",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_files_are_removed_by_default() {
        let directory = Directory::new().unwrap();
        let logs = directory.part(Part::Logs);
        fs::write(logs.join("etcd.log"), "started").unwrap();
        drop(directory);
        assert!(!logs.parent().unwrap().exists());
    }

    #[test]
    fn panic_keeps_the_logs_and_nothing_else() {
        let directory = Directory::new().unwrap();
        let logs = directory.part(Part::Logs);
        let data = directory.part(Part::Data);
        fs::write(logs.join("etcd.log"), "failed").unwrap();
        thread::spawn(move || {
            let _directory = directory;
            panic!("like a failed test");
        })
        .join()
        .unwrap_err();
        assert_eq!(fs::read_to_string(logs.join("etcd.log")).unwrap(), "failed");
        assert!(!data.exists());
        fs::remove_dir_all(logs.parent().unwrap()).unwrap();
    }
}
