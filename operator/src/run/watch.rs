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

use self::kinds::{Visit, visit_all};
pub(crate) use self::{follow::Source, handler::Handler, kinds::Watched};
use super::supervisor::Supervisor;

/// Whether a kind is watched; PriorityClasses only where they rank jobs.
fn is_watched(kind: &str, priority_class: bool) -> bool {
    priority_class || kind != PriorityClass::KIND
}

/// Names of the kinds to watch.
pub(crate) fn kinds(priority_class: bool) -> Vec<&'static str> {
    kinds::kinds().filter(|kind| is_watched(kind, priority_class)).collect()
}

/// Starts a watch for each kind.
pub(crate) fn start(
    source: &Source,
    handler: &Handler,
    priority_class: bool,
    tasks: &mut Supervisor,
) {
    visit_all(&mut Start { source, handler, priority_class, tasks });
}

struct Start<'a> {
    source: &'a Source,
    handler: &'a Handler,
    priority_class: bool,
    tasks: &'a mut Supervisor,
}

impl Visit for Start<'_> {
    fn visit<K: Watched>(&mut self) {
        if is_watched(K::KIND, self.priority_class) {
            follow::spawn::<K>(self.source, self.handler, self.tasks);
        }
    }
}

#[cfg(test)]
mod tests;
