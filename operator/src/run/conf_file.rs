//! The configuration file: read at the start, and again whenever it changes.
//!
//! What does not parse is not used: at the start it ends the process, later the configuration that
//! was in force stays. A mounted ConfigMap changes by a swapped link, so the text is compared and
//! no file is watched.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use kube_batch_framework::conf::{self, Conf};
use kube_batch_plugins::CATALOG;
use tokio::sync::watch;
use tracing::{error, info, warn};

use super::metrics::{Ended, Metrics};

/// How often the file is looked at.
const PERIOD: Duration = Duration::from_secs(2);

/// The configuration file as it was read.
pub(crate) struct ConfFile {
    path: PathBuf,
    /// What was last read, be it good or not, an error as its message; none if that is not known.
    last: Option<Result<String, String>>,
}

/// Why a configuration is refused: every problem, one a line.
fn parse(path: &Path, text: &str) -> Result<Conf, Vec<String>> {
    let place = |problem: kube_batch_api::yaml::Problem| format!("{}: {problem}", path.display());
    match conf::parse(text, &CATALOG) {
        Ok(read) => {
            for problem in read.warnings.into_iter().map(place) {
                warn!(problem, "in the configuration");
            }
            Ok(read.conf)
        }
        Err(problems) => Err(problems.into_iter().map(place).collect()),
    }
}

impl ConfFile {
    /// A file whose text has been used; if that is not known, the text is used when it is read.
    pub(crate) fn new(path: PathBuf, text: Option<String>) -> Self {
        Self { path, last: text.map(Ok) }
    }

    /// Looks at the file again and again, and hands on each good configuration.
    pub(crate) async fn follow(mut self, confs: watch::Sender<Arc<Conf>>, metrics: Arc<Metrics>) {
        loop {
            tokio::time::sleep(PERIOD).await;
            self.look(&confs, &metrics).await;
        }
    }

    async fn look(&mut self, confs: &watch::Sender<Arc<Conf>>, metrics: &Metrics) {
        let read = tokio::fs::read_to_string(&self.path).await.map_err(|error| error.to_string());
        if self.last.as_ref() == Some(&read) {
            return;
        }
        let conf = match &read {
            Ok(text) => parse(&self.path, text),
            Err(error) => Err(vec![format!("cannot read {}: {error}", self.path.display())]),
        };
        self.last = Some(read);
        let result = match conf {
            Ok(conf) => {
                info!(path = %self.path.display(), "the configuration has changed and is in force");
                metrics.config_valid.set(1);
                confs.send_replace(Arc::new(conf));
                "done"
            }
            Err(problems) => {
                for problem in problems {
                    error!(problem, "the new configuration is refused, the old one stays in force");
                }
                metrics.config_valid.set(0);
                "refused"
            }
        };
        metrics.config_reloads.get_or_create(&Ended { result }).inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_bad_file_leaves_the_old_configuration_in_force() {
        let path = std::env::temp_dir().join(format!("kube-batch-conf-{}", std::process::id()));
        let metrics = Metrics::new();
        let (confs, in_force) = watch::channel(Arc::new(Conf::default()));
        let mut file = ConfFile::new(path.clone(), Some(String::new()));
        let mut given = Vec::new();
        for text in ["actions: allocate", "actions: alocate", "actions: reclaim"] {
            std::fs::write(&path, text).expect("a temporary file");
            file.look(&confs, &metrics).await;
            given.push((in_force.borrow().actions.join(","), metrics.config_valid.get()));
        }
        std::fs::remove_file(&path).expect("the file is there");
        file.look(&confs, &metrics).await;
        given.push((in_force.borrow().actions.join(","), metrics.config_valid.get()));
        let expected = [("allocate", 1), ("allocate", 0), ("reclaim", 1), ("reclaim", 0)];
        assert_eq!(given, expected.map(|(actions, valid)| (actions.to_owned(), valid)));
    }
}
