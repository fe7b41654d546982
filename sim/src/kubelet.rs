//! The kubelets of the simulated nodes: whether they admit a pod whose creator named its node.

use std::sync::Arc;

use kube_batch_cache::store::Store;
use kube_batch_model::{
    facts::pod::TaskFacts, name::Name, resource::ResourceList, status::TaskStatus,
};

/// The pods that no kubelet has admitted yet.
pub(crate) fn new_pods(store: &Store) -> Vec<Arc<TaskFacts>> {
    let pods = store.pods.values().filter(|facts| facts.not_admitted);
    pods.filter(|facts| facts.status == TaskStatus::Bound).map(Arc::clone).collect()
}

/// Whether the node of a pod has room for it besides the pods that were admitted; `None` if there is no such node.
pub(crate) fn has_room(store: &Store, facts: &TaskFacts) -> Option<bool> {
    let node = facts.node.as_ref()?;
    let allocatable = &store.nodes.get(node)?.allocatable;
    let mut used = used_on(store, node);
    used.add(&facts.template.request);
    Some(facts.template.request.iter().all(|(name, amount)| {
        amount == 0 || !allocatable.names(name) || used.get(name) <= allocatable.get(name)
    }))
}

/// What the pods use that a kubelet has admitted.
fn used_on(store: &Store, node: &Name) -> ResourceList {
    let mut used = ResourceList::default();
    let has_ended =
        |facts: &TaskFacts| matches!(facts.status, TaskStatus::Succeeded | TaskStatus::Failed);
    let on_node = store.pods.values().filter(|facts| facts.node.as_ref() == Some(node));
    for facts in on_node.filter(|facts| !facts.not_admitted && !has_ended(facts)) {
        used.add(&facts.template.request);
    }
    used
}
