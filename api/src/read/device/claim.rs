//! ResourceClaims, and what is written to them.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::{
    api::{
        core::v1::{NodeSelector, Pod, PodResourceClaim},
        resource::v1::{
            AllocatedDeviceStatus, AllocationResult, DeviceAllocationConfiguration,
            DeviceAllocationResult, DeviceRequestAllocationResult, ResourceClaim,
            ResourceClaimConsumerReference,
        },
        scheduling::v1beta1::PodGroupResourceClaim,
    },
    apimachinery::pkg::{api::resource::Quantity as ApiQuantity, apis::meta::v1::Time},
};
use kube_batch_model::{
    facts::{
        FactError,
        device::{
            DeviceId,
            claim::{
                Allocation, AllocationConfig, ClaimEntry, ClaimSource, Consumer, DELETE_PROTECTION,
                DeviceResult, EXTENDED_RESOURCE_CLAIM, ResourceClaimFacts,
            },
        },
    },
    name::Name,
};

use super::{
    api_config as api_opaque, opaque_config, quantity,
    request::claim_spec,
    taint::{api_toleration, toleration},
};
use crate::read::{
    metadata::{controller, object_key},
    selector::{api_node_term, node_terms},
};

/// Reads a ResourceClaim.
///
/// # Errors
///
/// [`FactError`] if it has no name or an amount cannot be read: skip it.
pub fn resource_claim(claim: &ResourceClaim) -> Result<ResourceClaimFacts, FactError> {
    let meta = &claim.metadata;
    let key = object_key("ResourceClaim", meta)?;
    let object = format!("ResourceClaim {key}");
    let status = claim.status.as_ref();
    let allocation = status.and_then(|status| status.allocation.as_ref());
    let reserved_for = status.and_then(|status| status.reserved_for.as_deref());
    let devices = status.and_then(|status| status.devices.as_deref());
    let annotations = meta.annotations.as_ref();
    let is_for_extended_resources = annotations
        .and_then(|annotations| annotations.get(EXTENDED_RESOURCE_CLAIM))
        .is_some_and(|value| value == "true");
    let owner = controller(meta);
    Ok(ResourceClaimFacts {
        uid: Name::from(meta.uid.as_deref().unwrap_or_default()),
        controller: owner.map(|owner| Name::from(owner.uid.as_str())),
        deleting: meta.deletion_timestamp.is_some(),
        is_protected: meta.finalizers.iter().flatten().any(|name| name == DELETE_PROTECTION),
        extended_for: owner
            .filter(|_| is_for_extended_resources)
            .map(|owner| Name::from(owner.name.as_str())),
        spec: Arc::new(claim_spec(
            &object,
            claim.spec.as_ref().and_then(|spec| spec.devices.as_ref()),
        )?),
        allocation: allocation
            .map(|allocation| read_allocation(&object, allocation))
            .transpose()?,
        reserved_for: reserved_for.into_iter().flatten().map(consumer).collect(),
        conditions: conditions(devices.unwrap_or_default()),
        key,
    })
}

fn consumer(consumer: &ResourceClaimConsumerReference) -> Consumer {
    Consumer {
        group: Name::from(consumer.api_group.as_deref().unwrap_or_default()),
        resource: Name::from(consumer.resource.as_str()),
        name: Name::from(consumer.name.as_str()),
        uid: Name::from(consumer.uid.as_str()),
    }
}

/// The consumer as the API has it.
pub fn api_consumer(consumer: &Consumer) -> ResourceClaimConsumerReference {
    ResourceClaimConsumerReference {
        api_group: (!consumer.group.is_empty()).then(|| consumer.group.to_string()),
        resource: consumer.resource.to_string(),
        name: consumer.name.to_string(),
        uid: consumer.uid.to_string(),
    }
}

fn read_allocation(object: &str, allocation: &AllocationResult) -> Result<Allocation, FactError> {
    let results = allocation.devices.as_ref().and_then(|devices| devices.results.as_deref());
    let results = results.into_iter().flatten().enumerate().map(|(at, result)| {
        let field = format!("status.allocation.devices.results[{at}]");
        device_result((object, &field), result)
    });
    let config = allocation.devices.as_ref().and_then(|devices| devices.config.as_deref());
    Ok(Allocation {
        results: results.collect::<Result<_, _>>()?,
        config: config.into_iter().flatten().map(read_config).collect(),
        nodes: allocation.node_selector.as_ref().map(node_terms),
        timestamp: allocation.allocation_timestamp.as_ref().map(|time| time.0),
    })
}

/// The allocation as the API writes it.
pub fn api_allocation(allocation: &Allocation) -> AllocationResult {
    let results = allocation.results.iter().map(api_device_result).collect();
    let config = allocation.config.iter().map(api_config).collect();
    AllocationResult {
        allocation_timestamp: allocation.timestamp.map(Time),
        devices: Some(DeviceAllocationResult { results: some(results), config: some(config) }),
        node_selector: allocation.nodes.as_ref().map(|terms| NodeSelector {
            node_selector_terms: terms.iter().map(api_node_term).collect(),
        }),
    }
}

fn read_config(config: &DeviceAllocationConfiguration) -> AllocationConfig {
    let requests = config.requests.iter().flatten();
    AllocationConfig {
        source: Name::from(config.source.as_str()),
        requests: requests.map(|name| Name::from(name.as_str())).collect(),
        opaque: config
            .opaque
            .as_ref()
            .map(|opaque| opaque_config(&opaque.driver, &opaque.parameters)),
    }
}

fn api_config(config: &AllocationConfig) -> DeviceAllocationConfiguration {
    DeviceAllocationConfiguration {
        source: config.source.to_string(),
        requests: texts(&config.requests),
        opaque: config.opaque.as_ref().map(api_opaque),
    }
}

fn device_result(
    (object, field): (&str, &str),
    result: &DeviceRequestAllocationResult,
) -> Result<DeviceResult, FactError> {
    let consumed = result.consumed_capacity.iter().flatten().map(|(name, amount)| {
        let field = format!("{field}.consumedCapacity[{name}]");
        Ok((Name::from(name.as_str()), quantity(object, &field, amount)?))
    });
    let names = |list: &Option<Vec<String>>| {
        list.iter().flatten().map(|name| Name::from(name.as_str())).collect()
    };
    Ok(DeviceResult {
        request: Name::from(result.request.as_str()),
        id: DeviceId {
            driver: Name::from(result.driver.as_str()),
            pool: Name::from(result.pool.as_str()),
            device: Name::from(result.device.as_str()),
        },
        admin_access: result.admin_access == Some(true),
        share: result.share_id.as_deref().map(Name::from),
        consumed: consumed.collect::<Result<_, FactError>>()?,
        tolerations: result.tolerations.iter().flatten().map(toleration).collect(),
        binding_conditions: names(&result.binding_conditions),
        binding_failure_conditions: names(&result.binding_failure_conditions),
    })
}

fn api_device_result(result: &DeviceResult) -> DeviceRequestAllocationResult {
    let consumed = result.consumed.iter();
    let consumed: BTreeMap<String, ApiQuantity> = consumed
        .map(|(name, amount)| (name.to_string(), ApiQuantity(amount.to_binary_string())))
        .collect();
    DeviceRequestAllocationResult {
        request: result.request.to_string(),
        driver: result.id.driver.to_string(),
        pool: result.id.pool.to_string(),
        device: result.id.device.to_string(),
        admin_access: result.admin_access.then_some(true),
        share_id: result.share.as_ref().map(ToString::to_string),
        consumed_capacity: (!consumed.is_empty()).then_some(consumed),
        tolerations: some(result.tolerations.iter().map(api_toleration).collect()),
        binding_conditions: texts(&result.binding_conditions),
        binding_failure_conditions: texts(&result.binding_failure_conditions),
        skip_node_operations: None,
    }
}

/// The entries of a pod. Claims made from templates are named in the status of the pod.
pub fn entries(pod: &Pod) -> Vec<ClaimEntry> {
    let entries = pod.spec.as_ref().and_then(|spec| spec.resource_claims.as_deref());
    let statuses = pod.status.as_ref().and_then(|status| status.resource_claim_statuses.as_deref());
    let source = |entry: &PodResourceClaim| {
        if let Some(name) = &entry.resource_claim_name {
            return ClaimSource::Named(Name::from(name.as_str()));
        }
        let Some(template) = &entry.resource_claim_template_name else {
            return ClaimSource::Unknown;
        };
        let mut statuses = statuses.into_iter().flatten();
        match statuses.find(|status| status.name == entry.name) {
            Some(status) => match &status.resource_claim_name {
                Some(name) => ClaimSource::Generated {
                    claim: Name::from(name.as_str()),
                    template: Name::from(template.as_str()),
                },
                None => ClaimSource::NotNeeded,
            },
            None => ClaimSource::NotCreated(Name::from(template.as_str())),
        }
    };
    let entry = |entry: &PodResourceClaim| ClaimEntry {
        name: Name::from(entry.name.as_str()),
        source: source(entry),
    };
    entries.into_iter().flatten().map(entry).collect()
}

/// The entries of a PodGroup, as they are before claims are made from templates.
pub fn entries_of_group(entries: Option<&[PodGroupResourceClaim]>) -> Vec<ClaimEntry> {
    let entry = |entry: &PodGroupResourceClaim| {
        let claim = entry.resource_claim_name.as_deref();
        let template = entry.resource_claim_template_name.as_deref();
        let source = match (claim, template) {
            (Some(claim), _) => ClaimSource::Named(Name::from(claim)),
            (None, Some(template)) => ClaimSource::NotCreated(Name::from(template)),
            (None, None) => ClaimSource::Unknown,
        };
        ClaimEntry { name: Name::from(entry.name.as_str()), source }
    };
    entries.into_iter().flatten().map(entry).collect()
}

/// The conditions of each device that are true.
fn conditions(devices: &[AllocatedDeviceStatus]) -> BTreeMap<DeviceId, Vec<Name>> {
    let of_device = devices.iter().filter_map(|device| {
        let conditions = device.conditions.iter().flatten();
        let is_true: Vec<Name> = conditions
            .filter(|condition| condition.status == "True")
            .map(|condition| Name::from(condition.type_.as_str()))
            .collect();
        let id = DeviceId {
            driver: Name::from(device.driver.as_str()),
            pool: Name::from(device.pool.as_str()),
            device: Name::from(device.device.as_str()),
        };
        (!is_true.is_empty()).then_some((id, is_true))
    });
    of_device.collect()
}

/// A list, or nothing if it is empty.
fn some<T>(list: Vec<T>) -> Option<Vec<T>> {
    (!list.is_empty()).then_some(list)
}

fn texts(names: &[Name]) -> Option<Vec<String>> {
    some(names.iter().map(ToString::to_string).collect())
}

#[cfg(test)]
mod tests {
    use kube_batch_model::devices::counted;

    use super::*;
    use serde_json::json;

    fn counted_of(spec: serde_json::Value, results: serde_json::Value) -> BTreeMap<String, i64> {
        let mut claim = json!({"metadata": {"name": "c", "namespace": "ns"}, "spec": spec});
        if !results.is_null() {
            claim["status"] = json!({"allocation": {"devices": {"results": results}}});
        }
        let claim: ResourceClaim = serde_json::from_value(claim).expect("a claim");
        let facts = resource_claim(&claim).expect("facts");
        let short = |name: &Name| {
            name.trim_end_matches(".deviceclass.resource.kubernetes.io/devices").to_owned()
        };
        counted(&facts).iter().map(|(name, amount)| (short(name), amount)).collect()
    }

    #[test]
    fn a_claim_counts_for_what_it_requests_until_it_is_allocated() {
        let spec = json!({"devices": {"requests": [
            {"name": "a", "exactly": {"deviceClassName": "gpu", "count": 2}},
            {"name": "b", "exactly": {"deviceClassName": "nic", "allocationMode": "All"}},
            {"name": "c", "firstAvailable": [
                {"name": "x", "deviceClassName": "gpu", "count": 1},
                {"name": "y", "deviceClassName": "gpu", "count": 4},
                {"name": "z", "deviceClassName": "mig", "count": 3},
            ]},
            {"name": "d", "exactly": {"deviceClassName": "gpu", "adminAccess": true}},
        ]}});
        let expected = [("gpu", 6_000), ("mig", 3_000), ("nic", 32_000)];
        let expected = expected.map(|(name, amount)| (name.to_owned(), amount));
        assert_eq!(counted_of(spec.clone(), serde_json::Value::Null), expected.clone().into());

        let result = |request: &str, device: &str| json!({"request": request, "driver": "d", "pool": "p", "device": device});
        let admin =
            json!({"request": "d", "driver": "d", "pool": "p", "device": "0", "adminAccess": true});
        let results = json!([
            result("a", "0"),
            result("a", "1"),
            result("b", "2"),
            result("c/z", "3"),
            admin
        ]);
        let expected = [("gpu", 2_000), ("mig", 1_000), ("nic", 1_000)];
        let expected = expected.map(|(name, amount)| (name.to_owned(), amount));
        assert_eq!(counted_of(spec, results), expected.into());
    }
}
