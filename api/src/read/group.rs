//! PodGroups.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::ObjectMeta};
use kube_batch_model::{
    facts::{FactError, group::GroupFacts, metadata::MetadataPrefixes},
    group_version::GroupVersion,
    name::{Name, ObjectKey},
    object_status::PodGroupStatus,
    resource::ResourceList,
};
use serde_json::Value;

use super::{
    amounts::amounts_of_nodes,
    metadata::{created, object_key, selected},
};
use crate::naming::Naming;

/// Reads the metadata of a PodGroup, its queue and its PriorityClass. The other fields have their defaults, and
/// its minimum is 0.
///
/// # Errors
///
/// [`FactError`] if it has no name: skip it.
pub(crate) fn group(
    (version, naming): (GroupVersion, Naming),
    (meta, spec): (&ObjectMeta, &Value),
    prefixes: &MetadataPrefixes,
) -> Result<GroupFacts, FactError> {
    let spec = Some(spec);
    Ok(GroupFacts {
        key: object_key("PodGroup", meta)?,
        uid: Name::from(meta.uid.as_deref().unwrap_or_default()),
        version,
        created: created(meta),
        min_member: 0,
        queue: naming.queue.read(meta, spec).map(Name::from),
        priority_class: naming.class.read(meta, spec).map(Name::from),
        priority: None,
        never_preempts: None,
        leaves_whole: false,
        roles: Vec::new(),
        topology: None,
        min_resources: ResourceList::default(),
        claims: Vec::new(),
        parent: None,
        metadata: Arc::new(selected(prefixes, meta)),
        resource_version: meta.resource_version.as_deref().map(Name::from),
        status: PodGroupStatus::default(),
    })
}

/// What the pods of a PodGroup request at least. Names that no node can have do not count: the controller of Volcano
/// writes what a quota would count, such as `count/pods` and `requests.cpu`, beside the resources.
///
/// # Errors
///
/// [`FactError`] if an amount cannot be read.
pub(crate) fn min_resources(
    group: &ObjectKey,
    amounts: Option<&BTreeMap<String, Quantity>>,
) -> Result<ResourceList, FactError> {
    amounts.map_or(Ok(ResourceList::default()), |amounts| {
        amounts_of_nodes(amounts).map_err(|error| {
            FactError::amount(format!("PodGroup {group}"), "spec.minResources", &error)
        })
    })
}

/// Reads a minimum.
///
/// # Errors
///
/// [`FactError`] if it is negative.
pub(crate) fn min_member(group: &ObjectKey, number: i32) -> Result<u32, FactError> {
    u32::try_from(number).map_err(|_| {
        let problem = format!("{number} is negative");
        FactError::new(format!("PodGroup {group}"), "spec.minMember", problem)
    })
}

/// Reads a minimum that must be positive.
///
/// # Errors
///
/// What is wrong with it.
pub(crate) fn positive(number: i32) -> Result<u32, String> {
    let positive = u32::try_from(number).ok().filter(|number| *number > 0);
    positive.ok_or_else(|| format!("{number} is not positive"))
}
