//! Checks of the whole input, after controllers have created their pods.
//!
//! Most are about what objects refer to, and the input lacks.

use std::collections::{BTreeMap, BTreeSet};

use kube_batch_cache::store::Store;
use kube_batch_manifest::object::Kind;
use kube_batch_model::{
    facts::{class::PodTemplate, pod::TaskFacts},
    name::Name,
    status::TaskStatus,
};
use kube_batch_sim::world::World;
use kube_batch_yaml::suggest;

use crate::table::plural;

/// The scheduler of pods that name none.
const DEFAULT_SCHEDULER: &str = "default-scheduler";

/// What may be wrong with the input.
pub(crate) enum InputRemark {
    /// Probably a mistake.
    Warning(String),
    /// Worth knowing.
    Note(String),
}

/// Everything that may be wrong with the input as a whole.
pub(crate) fn remarks(world: &World) -> Vec<InputRemark> {
    let warnings = missing_kinds(world).into_iter();
    let warnings = warnings.chain(unknown_classes(world)).chain(missing_default_queue(world));
    let warnings = warnings.chain(lost_pods(world)).chain(unknown_capabilities(world));
    warnings.map(InputRemark::Warning).chain(other_schedulers(world)).collect()
}

/// Waiting pods that other schedulers are to place.
///
/// It is a mistake if their scheduler is almost named like ours, or if no pod is for ours. In a
/// cluster where some are, waiting pods of the default scheduler are nothing special.
fn other_schedulers(world: &World) -> Option<InputRemark> {
    let names = &world.options().scheduler_names;
    let ours = names.first();
    let is_used = world.pods().any(|facts| names.contains(&facts.scheduler));
    let mut waiting: BTreeMap<&str, usize> = BTreeMap::new();
    for facts in world.pods().filter(|facts| facts.status == TaskStatus::Pending) {
        let is_usual = is_used && *facts.scheduler == *DEFAULT_SCHEDULER;
        if !names.contains(&facts.scheduler) && !is_usual {
            *waiting.entry(&facts.scheduler).or_default() += 1;
        }
    }
    let meant = |name: &str| suggest(name, names.iter().map(|own| &**own));
    let count: usize = waiting.values().sum();
    let verb = if count == 1 { "names" } else { "name" };
    let what = match waiting.len() {
        0 => return None,
        1 => "another scheduler",
        _ => "other schedulers",
    };
    let described = waiting.keys().map(|name| match *name {
        DEFAULT_SCHEDULER => {
            format!("{name} (pods for this scheduler need schedulerName: {ours})")
        }
        name => match meant(name) {
            Some(meant) => format!("{name} (did you mean {meant}?)"),
            None => name.to_owned(),
        },
    });
    let names = described.collect::<Vec<_>>().join(", ");
    let message = format!("{} {verb} {what}: {names}", plural(count, "waiting pod"));
    let is_mistake = !is_used || waiting.keys().any(|name| meant(name).is_some());
    Some(if is_mistake { InputRemark::Warning(message) } else { InputRemark::Note(message) })
}

/// Pods that an API server would reject because of their PriorityClass.
fn unknown_classes(world: &World) -> impl Iterator<Item = String> {
    world.unknown_classes.iter().map(|(class, count, pod)| {
        let (name, them) = if count == 1 { ("names", "it") } else { ("name", "them") };
        format!(
            "PriorityClass \"{class}\" does not exist, but {} {name} it, such as {pod}: an API \
             server would reject {them}, and here they have the priority of pods without a class",
            plural(count, "pod")
        )
    })
}

/// Jobs that name no queue, if the default queue does not exist.
fn missing_default_queue(world: &World) -> Option<String> {
    let (store, options) = (&world.store, world.options());
    let queue = &options.default_queue;
    if store.queue(queue).is_some() {
        return None;
    }
    let is_alone = |facts: &&std::sync::Arc<TaskFacts>| {
        facts.group(store.served()).is_none()
            && facts.status == TaskStatus::Pending
            && options.scheduler_names.contains(&facts.scheduler)
    };
    let n_groups = store.groups.values().filter(|group| group.queue.is_none()).count();
    let n_pods = world.pods().filter(is_alone).count();
    let waiting = [(n_groups, "PodGroup"), (n_pods, "pod without a PodGroup")];
    let waiting = waiting.into_iter().filter(|(count, _)| *count > 0);
    let described = waiting.map(|(count, noun)| match (count, noun) {
        (2.., "pod without a PodGroup") => format!("{count} pods without a PodGroup"),
        _ => plural(count, noun),
    });
    let described: Vec<String> = described.collect();
    if described.is_empty() {
        return None;
    }
    Some(format!(
        "queue \"{queue}\" does not exist, and is the queue of jobs that name none ({}): add it to \
         the input; kube-batch run creates it with --create-default-queue",
        described.join(", ")
    ))
}

/// Pods that run on nodes that are not there.
fn lost_pods(world: &World) -> Option<String> {
    let is_running = |facts: &TaskFacts| match facts.status {
        TaskStatus::Bound | TaskStatus::Running | TaskStatus::Releasing | TaskStatus::Unknown => {
            true
        }
        TaskStatus::Pending
        | TaskStatus::Allocated
        | TaskStatus::Pipelined
        | TaskStatus::Binding
        | TaskStatus::Stuck
        | TaskStatus::Succeeded
        | TaskStatus::Failed => false,
    };
    let nodes = &world.store.nodes;
    let mut lost = world.pods().filter(|facts| is_running(facts)).filter_map(|facts| {
        let node = facts.node.as_ref().filter(|node| nodes.get(node).is_none())?;
        Some((&facts.key, node))
    });
    let (pod, node) = lost.next().filter(|_| !nodes.is_empty())?;
    let count = 1 + lost.count();
    let pods = plural(count, "running pod");
    Some(format!(
        "the node of {pods} is not in the input, such as {node} of {pod}: what such pods use is \
         counted on no node"
    ))
}

/// Resources that limit a queue, and that no node has.
fn unknown_capabilities(world: &World) -> Vec<String> {
    let store = &world.store;
    if store.nodes.is_empty() {
        return Vec::new();
    }
    let known: BTreeSet<&str> = store
        .nodes
        .values()
        .flat_map(|node| node.allocatable.iter().map(|(name, _)| &**name))
        .collect();
    let hint = |name: &str| {
        let of_domain = known.iter().find(|known| known.rsplit('/').next() == Some(name));
        let meant = of_domain.copied().or_else(|| suggest(name, known.iter().copied()));
        meant.map(|meant| format!(" (did you mean {meant}?)")).unwrap_or_default()
    };
    let mut messages = Vec::new();
    for queue in store.queues.values() {
        let limits = queue.capability.iter().filter(|(_, limit)| *limit > 0);
        for (name, _) in limits.filter(|(name, _)| !known.contains(&***name)) {
            let hint = hint(name);
            messages.push(format!(
                "Queue {}: spec.capability[{name}]: no node has this resource{hint}",
                queue.name
            ));
        }
    }
    messages
}

/// Kinds that objects of the input refer to and that the input does not have at all.
fn missing_kinds(world: &World) -> Vec<String> {
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
                && store.pods.values().any(|pod| !pod.device_claims.is_empty()),
            "pods name resource claims",
        ),
        (
            Kind::Namespace,
            store.namespaces.is_empty() && templates.iter().any(selects_namespaces),
            "pods select namespaces",
        ),
    ] {
        if is_missing {
            let (resource, consequence) = (kind.plural(), kind.if_missing());
            messages.push(format!("the input has no {resource}, but {referrer}: {consequence}"));
        }
    }
    messages
}

/// PriorityClasses that PodGroups name, if there are none; else they are reported with the job.
fn missing_priority_classes(store: &Store) -> Vec<String> {
    let of_groups = store.groups.values().filter_map(|group| group.priority_class.as_ref());
    let mut missing: BTreeMap<&Name, usize> = BTreeMap::new();
    for name in of_groups.filter(|_| store.priority_classes.is_empty()) {
        // Kubernetes defines these itself.
        if store.priority_classes.get(name).is_none() && !name.starts_with("system-") {
            *missing.entry(name).or_default() += 1;
        }
    }
    let message = |(name, count): (&Name, usize)| {
        let objects = if count == 1 { "1 object names" } else { &format!("{count} objects name") };
        format!(
            "the input has no PriorityClass \"{name}\", but {objects} it: {}",
            Kind::PriorityClass.if_missing()
        )
    };
    missing.into_iter().map(message).collect()
}
