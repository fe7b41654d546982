//! What the objects of the input refer to, and the input lacks.

use std::collections::BTreeMap;

use kube_batch_api::{facts::class::PodTemplate, name::Name};
use kube_batch_cache::store::Store;
use kube_batch_manifest::object::Kind;
use kube_batch_sim::world::World;

use crate::cluster::consequence;

/// Kinds that objects of the input refer to and that the input does not have at all.
pub(crate) fn missing_kinds(world: &World) -> Vec<String> {
    let store = &world.store;
    let templates: Vec<&PodTemplate> =
        store.pods.values().filter(|pod| pod.node.is_none()).map(|pod| &*pod.template).collect();
    let claims = || store.claims.values();
    let selects_namespaces = |template: &&PodTemplate| {
        template.pod_terms.iter().any(|term| term.matcher.namespace_selector.is_some())
    };
    let mut messages = missing_priority_classes(store);
    for (kind, is_missing, referrer) in [
        (Kind::Node, store.nodes.is_empty() && !store.pods.is_empty(), "there are pods"),
        (
            Kind::PersistentVolumeClaim,
            store.claims.is_empty() && templates.iter().any(|template| !template.claims.is_empty()),
            "pods name claims",
        ),
        (
            Kind::PersistentVolume,
            store.volumes.is_empty() && claims().any(|claim| claim.volume.is_some()),
            "claims name volumes",
        ),
        (
            Kind::StorageClass,
            store.storage_classes.is_empty()
                && claims().any(|claim| claim.volume.is_none() && claim.class.is_some()),
            "claims name classes",
        ),
        (
            Kind::CsiNode,
            store.csi_nodes.is_empty() && store.volumes.values().any(|volume| volume.csi.is_some()),
            "there are CSI volumes",
        ),
        (
            Kind::ResourceClaim,
            store.resource_claims.is_empty()
                && templates.iter().any(|template| !template.resource_claims.is_empty()),
            "pods name resource claims",
        ),
        (
            Kind::Namespace,
            store.namespaces.is_empty() && templates.iter().any(selects_namespaces),
            "pods select namespaces",
        ),
    ] {
        if is_missing {
            let (resource, consequence) = (kind.plural(), consequence(kind));
            messages.push(format!("the input has no {resource}, but {referrer}: {consequence}"));
        }
    }
    messages
}

/// PriorityClasses that are named and missing; a group's is reported with its job if there are some.
fn missing_priority_classes(store: &Store) -> Vec<String> {
    let of_pods = store.pods.values().filter(|pod| pod.node.is_none());
    let of_pods = of_pods.filter_map(|pod| pod.priority_class.as_ref());
    let of_groups = store.groups.values().filter_map(|group| group.priority_class.as_ref());
    let mut missing: BTreeMap<&Name, usize> = BTreeMap::new();
    for name in of_pods.chain(of_groups.filter(|_| store.priority_classes.is_empty())) {
        // Kubernetes defines these itself.
        if store.priority_classes.get(name).is_none() && !name.starts_with("system-") {
            *missing.entry(name).or_default() += 1;
        }
    }
    let message = |(name, count): (&Name, usize)| {
        let objects = if count == 1 { "1 object names" } else { &format!("{count} objects name") };
        format!(
            "the input has no PriorityClass \"{name}\", but {objects} it: {}",
            consequence(Kind::PriorityClass)
        )
    };
    missing.into_iter().map(message).collect()
}
