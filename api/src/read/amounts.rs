//! Maps of amounts, as the API has them.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube_batch_model::resource::{AmountError, ResourceList};

type Map = BTreeMap<String, Quantity>;

fn texts(map: &Map) -> BTreeMap<&str, &str> {
    map.iter().map(|(name, amount)| (&**name, &*amount.0)).collect()
}

/// See [`ResourceList::from_map`].
///
/// # Errors
///
/// [`AmountError`] for the first amount that cannot be used.
pub fn amounts(map: &Map) -> Result<ResourceList, AmountError> {
    ResourceList::from_map(&texts(map))
}

/// See [`ResourceList::of_limits`].
///
/// # Errors
///
/// [`AmountError`] for the first amount that cannot be used.
pub fn limits(map: &Map) -> Result<ResourceList, AmountError> {
    ResourceList::of_limits(&texts(map))
}

/// See [`ResourceList::of_node_resources`].
///
/// # Errors
///
/// [`AmountError`] for the first amount that cannot be used.
pub fn amounts_of_nodes(map: &Map) -> Result<ResourceList, AmountError> {
    ResourceList::of_node_resources(&texts(map))
}

/// See [`ResourceList::of_pod`].
///
/// # Errors
///
/// [`AmountError`] for the first amount that cannot be used.
pub fn amounts_of_pod(map: &Map) -> Result<ResourceList, AmountError> {
    ResourceList::of_pod(&texts(map))
}
