//! The configuration file: read when the process starts, and again whenever it changes.
//!
//! A file with errors ends the process at the start; later the scheduler keeps the previous
//! configuration. A mounted ConfigMap changes by a swapped symbolic link, so the file is polled and
//! its text compared.

use std::{path::PathBuf, rc::Rc, sync::Arc, time::Duration};

use kube_batch_scheduler::{
    conf::{self, Conf},
    registry::Registry,
};
use tokio::sync::watch;
use tracing::{error, info, warn};

use super::{
    metrics::{Ended, Metrics},
    supervisor::Supervisor,
};

/// How often the file is read.
const PERIOD: Duration = Duration::from_secs(2);

/// Where the text of the configuration comes from.
#[derive(Clone)]
pub(crate) enum ConfSource {
    File(PathBuf),
    /// What this returns: the text, or why it cannot be read. For simulations.
    Simulated(Rc<dyn Fn() -> Result<String, String>>),
}

impl ConfSource {
    async fn read(&self) -> Result<String, String> {
        match self {
            Self::File(path) => {
                let text = tokio::fs::read_to_string(path).await;
                text.map_err(|error| format!("cannot read {}: {error}", path.display()))
            }
            Self::Simulated(read) => read(),
        }
    }

    /// Its name in messages.
    fn name(&self) -> String {
        match self {
            Self::File(path) => path.display().to_string(),
            Self::Simulated(_) => "the simulated file".to_owned(),
        }
    }
}

/// The configuration file as it was read.
struct ConfFile {
    source: ConfSource,
    registry: Registry,
    /// What was read last, valid or not, an error as its message; `None` if that is not known.
    last: Option<Result<String, String>>,
}

/// The configuration, or every problem of the text.
fn parse(name: &str, text: &str, registry: &Registry) -> Result<Conf, Vec<String>> {
    let place = |problem: kube_batch_yaml::Problem| format!("{name}: {problem}");
    match conf::parse(text, registry) {
        Ok(read) => {
            for problem in read.warnings.into_iter().map(place) {
                warn!(problem, "problem in the configuration");
            }
            Ok(read.conf)
        }
        Err(problems) => Err(problems.into_iter().map(place).collect()),
    }
}

/// Logs the actions and the plugins, `|` between tiers.
pub(crate) fn log_conf(path: &str, conf: &Conf, what: &str) {
    let tiers = conf.tiers.iter().map(|tier| {
        let names: Vec<&str> = tier.iter().map(|plugin| plugin.spec.name).collect();
        names.join(", ")
    });
    let plugins = tiers.collect::<Vec<String>>().join(" | ");
    info!(configuration = path, actions = conf.action_names().join(", "), plugins, "{what}");
}

/// The configuration in force, and whatever its source holds later. `text` is that of `conf`.
pub(crate) fn follow(
    source: ConfSource,
    conf: Conf,
    text: String,
    registry: &Registry,
    (metrics, tasks): (&Arc<Metrics>, &mut Supervisor),
) -> watch::Receiver<Arc<Conf>> {
    let (confs, in_force) = watch::channel(Arc::new(conf));
    metrics.config_valid.set(1);
    let (metrics, mut text, registry) = (Arc::clone(metrics), Some(text), registry.clone());
    // Restarted: a file that breaks its reader leaves the configuration in force, as any faulty
    // one does. The text is that of the start only once; later it is not known which is used.
    tasks.spawn_restarted("config", move || {
        let file = ConfFile::new(source.clone(), text.take(), registry.clone());
        file.follow(confs.clone(), Arc::clone(&metrics))
    });
    in_force
}

impl ConfFile {
    /// A file whose text is in use. Without it, whatever is read first counts as new.
    fn new(source: ConfSource, text: Option<String>, registry: Registry) -> Self {
        Self { source, registry, last: text.map(Ok) }
    }

    /// Reads the file periodically and sends each new valid configuration to `confs`.
    async fn follow(mut self, confs: watch::Sender<Arc<Conf>>, metrics: Arc<Metrics>) {
        loop {
            tokio::time::sleep(PERIOD).await;
            self.check(&confs, &metrics).await;
        }
    }

    async fn check(&mut self, confs: &watch::Sender<Arc<Conf>>, metrics: &Metrics) {
        let read = self.source.read().await;
        if self.last.as_ref() == Some(&read) {
            return;
        }
        let conf = match &read {
            Ok(text) => parse(&self.source.name(), text, &self.registry),
            Err(error) => Err(vec![error.clone()]),
        };
        self.last = Some(read);
        let result = match conf {
            Ok(conf) => {
                log_conf(&self.source.name(), &conf, "loaded the changed configuration");
                metrics.config_valid.set(1);
                confs.send_replace(Arc::new(conf));
                "done"
            }
            Err(problems) => {
                for problem in problems {
                    error!(problem, "new configuration rejected; keeping the previous one");
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

    #[tokio::test(flavor = "local")]
    async fn an_invalid_file_keeps_the_previous_configuration() {
        let path = std::env::temp_dir().join(format!("kube-batch-conf-{}", std::process::id()));
        let metrics = Metrics::new();
        let (confs, in_force) = watch::channel(Arc::new(Conf::default()));
        let mut file =
            ConfFile::new(ConfSource::File(path.clone()), Some(String::new()), Registry::builtin());
        let mut given = Vec::new();
        for text in ["actions: allocate", "actions: alocate", "actions: reclaim"] {
            std::fs::write(&path, text).expect("a temporary file");
            file.check(&confs, &metrics).await;
            given.push((in_force.borrow().action_names().join(","), metrics.config_valid.get()));
        }
        std::fs::remove_file(&path).expect("the file is there");
        file.check(&confs, &metrics).await;
        given.push((in_force.borrow().action_names().join(","), metrics.config_valid.get()));
        let expected = [("allocate", 1), ("allocate", 0), ("reclaim", 1), ("reclaim", 0)];
        assert_eq!(given, expected.map(|(actions, valid)| (actions.to_owned(), valid)));
    }
}
