//! Watches: parse the objects of the API server into facts, and store them in the scheduler cache.
//!
//! Each kind has a watch of its own that never ends. A complete list replaces what was known. An
//! object that cannot be read is logged, counted and skipped; its watch continues. The order of
//! events of different kinds does not matter: the snapshot derives everything else from the facts.

mod failure;
mod follow;
mod handler;
mod kinds;

use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube_batch_api::{dialect, kind::WatchedKind as _};
use kube_batch_model::group_version::GroupVersion;

use self::kinds::{Visit, visit_all};
pub(crate) use self::{follow::WatchSource, handler::Handler, kinds::Watched};
use super::supervisor::Supervisor;

/// Which kinds are watched.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selection {
    /// Whether PriorityClasses rank jobs.
    pub(crate) priority_class: bool,
    /// The APIs of which no PodGroups and queues are read.
    pub(crate) without: Vec<GroupVersion>,
}

impl Selection {
    fn has(&self, kind: &str) -> bool {
        let is_of = |version: &GroupVersion| {
            let spec = dialect::spec(*version);
            spec.groups == kind || spec.queues == Some(kind)
        };
        (self.priority_class || kind != PriorityClass::RESOURCE) && !self.without.iter().any(is_of)
    }

    /// Names of the kinds.
    pub(crate) fn kinds(&self) -> Vec<&'static str> {
        kinds::kinds().filter(|kind| self.has(kind)).collect()
    }
}

/// Starts a watch for each kind that is selected.
pub(crate) fn start(
    source: &WatchSource,
    handler: &Handler,
    selection: &Selection,
    tasks: &mut Supervisor,
) {
    visit_all(&mut Start { source, handler, selection, tasks });
}

struct Start<'a> {
    source: &'a WatchSource,
    handler: &'a Handler,
    selection: &'a Selection,
    tasks: &'a mut Supervisor,
}

impl Visit for Start<'_> {
    fn visit<K: Watched>(&mut self) {
        if self.selection.has(K::RESOURCE) {
            follow::spawn::<K>(self.source, self.handler, self.tasks);
        }
    }
}

#[cfg(test)]
mod tests;
