//! ResourceSlices: the devices that drivers publish.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::{
        core::v1::NodeSelector,
        resource::v1::{
            CapacityRequestPolicy, CounterSet as ApiCounterSet, Device, DeviceAttribute,
            DeviceCapacity, DeviceCounterConsumption, ResourceSlice,
        },
    },
    apimachinery::pkg::api::resource::Quantity as ApiQuantity,
};
use kube_batch_model::{
    facts::{
        FactError,
        device::slice::{
            AttributeValue, CapacityFacts, Consumption, CounterSet, DeviceFacts, DeviceNodes,
            RequestPolicy, SliceFacts, SliceNodes, ValidAmounts,
        },
    },
    name::Name,
    quantity::Quantity,
};

use super::{quantity, taint::taint};
use crate::read::{metadata::object_key, selector::node_terms};

/// Reads a ResourceSlice.
///
/// # Errors
///
/// [`FactError`] if it has no name or an amount cannot be read: skip the slice, so that its pool is
/// incomplete.
pub fn slice(slice: &ResourceSlice) -> Result<SliceFacts, FactError> {
    let key = object_key("ResourceSlice", &slice.metadata)?;
    let object = format!("ResourceSlice {}", key.name);
    let spec = &slice.spec;
    let nodes = if spec.per_device_node_selection == Some(true) {
        SliceNodes::PerDevice
    } else {
        let nodes = (spec.node_name.as_deref(), spec.all_nodes, spec.node_selector.as_ref());
        SliceNodes::All(device_nodes(nodes))
    };
    let has_groups = |device: &Device| {
        device
            .consumes_counters
            .iter()
            .flatten()
            .any(|consumed| consumed.compatibility_groups.iter().flatten().next().is_some())
    };
    let counters = spec.shared_counters.iter().flatten().enumerate().map(|(at, set)| {
        let field = format!("spec.sharedCounters[{at}]");
        counter_set((&object, &field), set)
    });
    let devices = spec.devices.iter().flatten().enumerate().map(|(at, device)| {
        let field = format!("spec.devices[{at}]");
        read_device((&object, &field), device)
    });
    Ok(SliceFacts {
        nodes,
        driver: Name::from(spec.driver.as_str()),
        pool: Name::from(spec.pool.name.as_str()),
        generation: spec.pool.generation,
        n_slices: spec.pool.resource_slice_count,
        counters: counters.collect::<Result<_, _>>()?,
        devices: devices.collect::<Result<_, _>>()?,
        has_compatibility_groups: spec.devices.iter().flatten().any(has_groups),
        name: key.name,
    })
}

fn device_nodes(nodes: (Option<&str>, Option<bool>, Option<&NodeSelector>)) -> DeviceNodes {
    match nodes {
        (Some(name), _, _) if !name.is_empty() => DeviceNodes::Node(Name::from(name)),
        (_, Some(true), _) => DeviceNodes::All,
        (_, _, Some(selector)) => DeviceNodes::Selector(node_terms(selector)),
        _ => DeviceNodes::None,
    }
}

fn read_device((object, field): (&str, &str), device: &Device) -> Result<DeviceFacts, FactError> {
    let attributes = device.attributes.iter().flatten().filter_map(|(name, attribute)| {
        Some((Name::from(name.as_str()), attribute_value(attribute)?))
    });
    let capacity = device.capacity.iter().flatten().map(|(name, capacity)| {
        let field = format!("{field}.capacity[{name}]");
        Ok((Name::from(name.as_str()), read_capacity((object, &field), capacity)?))
    });
    let consumes = device.consumes_counters.iter().flatten().enumerate().map(|(at, consumed)| {
        let field = format!("{field}.consumesCounters[{at}]");
        consumption((object, &field), consumed)
    });
    let names = |list: &Option<Vec<String>>| {
        list.iter().flatten().map(|name| Name::from(name.as_str())).collect()
    };
    let nodes = (device.node_name.as_deref(), device.all_nodes, device.node_selector.as_ref());
    Ok(DeviceFacts {
        name: Name::from(device.name.as_str()),
        nodes: device_nodes(nodes),
        attributes: attributes.collect(),
        capacity: capacity.collect::<Result<_, FactError>>()?,
        consumes: consumes.collect::<Result<_, FactError>>()?,
        taints: device.taints.iter().flatten().map(taint).collect(),
        allow_multiple_allocations: device.allow_multiple_allocations == Some(true),
        binds_to_node: device.binds_to_node == Some(true),
        binding_conditions: names(&device.binding_conditions),
        binding_failure_conditions: names(&device.binding_failure_conditions),
    })
}

/// `None` if it has no value of a type that is known.
fn attribute_value(attribute: &DeviceAttribute) -> Option<AttributeValue> {
    let text = |text: &String| Name::from(text.as_str());
    let one = attribute
        .int
        .map(AttributeValue::Int)
        .or(attribute.bool.map(AttributeValue::Bool))
        .or(attribute.string.as_ref().map(|value| AttributeValue::String(text(value))))
        .or(attribute.version.as_ref().map(|value| AttributeValue::Version(text(value))));
    let list = || {
        let ints = attribute.ints.as_ref();
        let bools = attribute.bools.as_ref();
        let strings = attribute.strings.as_ref();
        let versions = attribute.versions.as_ref();
        ints.map(|list| list.iter().map(|value| AttributeValue::Int(*value)).collect())
            .or(bools.map(|list| list.iter().map(|value| AttributeValue::Bool(*value)).collect()))
            .or(strings
                .map(|list| list.iter().map(|value| AttributeValue::String(text(value))).collect()))
            .or(versions.map(|list| {
                list.iter().map(|value| AttributeValue::Version(text(value))).collect()
            }))
    };
    one.or_else(|| list().map(AttributeValue::List))
}

fn read_capacity(at: (&str, &str), capacity: &DeviceCapacity) -> Result<CapacityFacts, FactError> {
    let (object, field) = at;
    let policy = capacity.request_policy.as_ref();
    Ok(CapacityFacts {
        value: quantity(object, &format!("{field}.value"), &capacity.value)?,
        is_binary: capacity.value.0.ends_with('i'),
        policy: policy.map(|policy| request_policy(at, policy)).transpose()?,
    })
}

fn request_policy(
    (object, field): (&str, &str),
    policy: &CapacityRequestPolicy,
) -> Result<RequestPolicy, FactError> {
    let read = |name: &str, text: &ApiQuantity| {
        quantity(object, &format!("{field}.requestPolicy.{name}"), text)
    };
    let valid = match (&policy.valid_values, &policy.valid_range) {
        (Some(values), _) if !values.is_empty() => {
            let values = values.iter().map(|value| read("validValues", value));
            let mut values: Vec<Quantity> = values.collect::<Result<_, _>>()?;
            values.sort_unstable();
            ValidAmounts::Values(values)
        }
        (_, Some(range)) => ValidAmounts::Range {
            min: read("validRange.min", &range.min)?,
            max: range.max.as_ref().map(|max| read("validRange.max", max)).transpose()?,
            step: range.step.as_ref().map(|step| read("validRange.step", step)).transpose()?,
        },
        _ => ValidAmounts::Any,
    };
    let default = policy.default.as_ref().map(|default| read("default", default));
    Ok(RequestPolicy { default: default.transpose()?, valid })
}

fn counter_set(at: (&str, &str), set: &ApiCounterSet) -> Result<CounterSet, FactError> {
    let counters = set.counters.iter().map(|(name, counter)| (name, &counter.value));
    Ok(CounterSet { name: Name::from(set.name.as_str()), counters: amounts(at, counters)? })
}

fn consumption(
    at: (&str, &str),
    consumed: &DeviceCounterConsumption,
) -> Result<Consumption, FactError> {
    let counters = consumed.counters.iter().map(|(name, counter)| (name, &counter.value));
    Ok(Consumption {
        set: Name::from(consumed.counter_set.as_str()),
        counters: amounts(at, counters)?,
    })
}

/// Amounts by name.
fn amounts<'a>(
    (object, field): (&str, &str),
    counters: impl Iterator<Item = (&'a String, &'a ApiQuantity)>,
) -> Result<BTreeMap<Name, Quantity>, FactError> {
    let amount = |(name, text): (&String, &ApiQuantity)| {
        let field = format!("{field}.counters[{name}].value");
        Ok((Name::from(name.as_str()), quantity(object, &field, text)?))
    };
    counters.map(amount).collect()
}
