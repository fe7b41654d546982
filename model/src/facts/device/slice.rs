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
use serde::{Deserialize, Serialize};

use super::{quantity, taint::DeviceTaint};
use crate::{
    facts::{FactError, object_key},
    name::Name,
    quantity::Quantity,
    selector::NodeTerm,
};

/// The fields of a ResourceSlice that the scheduler uses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SliceFacts {
    /// Its name.
    pub name: Name,
    /// The driver that publishes it.
    pub driver: Name,
    /// Its pool.
    pub pool: Name,
    /// The generation of the pool: slices of an older one are outdated.
    pub generation: i64,
    /// The number of slices of this generation.
    pub n_slices: i64,
    /// The nodes that can use its devices.
    pub nodes: SliceNodes,
    /// Its devices, in order.
    pub devices: Vec<DeviceFacts>,
    /// Counters that devices of the pool consume.
    pub counters: Vec<CounterSet>,
    /// Whether it has compatibility groups, which need a gate that is off: the slice is ignored, so that its
    /// pool is incomplete.
    pub has_compatibility_groups: bool,
}

/// The nodes that can use the devices of a slice.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum SliceNodes {
    /// These.
    All(DeviceNodes),
    /// Each device says.
    PerDevice,
}

/// The nodes that can use a device.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum DeviceNodes {
    /// None: it does not say, in a way that is known.
    None,
    /// One.
    Node(Name),
    /// All.
    All,
    /// Those that match one of these terms.
    Selector(Vec<NodeTerm>),
}

/// A device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceFacts {
    /// Unique in the pool.
    pub name: Name,
    /// The nodes that can use it, if its slice leaves that to the devices.
    pub nodes: DeviceNodes,
    /// Attributes by name, with or without a domain.
    pub attributes: BTreeMap<Name, AttributeValue>,
    /// Capacities by name.
    pub capacity: BTreeMap<Name, Capacity>,
    /// What it consumes of the counters of its pool, by set and counter.
    pub consumes: Vec<Consumption>,
    /// Its own taints.
    pub taints: Vec<DeviceTaint>,
    /// Whether several claims can have a share of it.
    pub allow_multiple_allocations: bool,
    /// Whether its allocation is limited to the node that it is allocated for.
    pub binds_to_node: bool,
    /// Conditions that must be true before a pod is bound.
    pub binding_conditions: Vec<Name>,
    /// Conditions of which none may be true.
    pub binding_failure_conditions: Vec<Name>,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum AttributeValue {
    /// A number.
    Int(i64),
    /// A truth value.
    Bool(bool),
    /// A text.
    String(Name),
    /// A version, as it is written.
    Version(Name),
    /// Several values of one type; a feature gate that is off lets drivers publish them.
    List(Vec<Self>),
}

/// A capacity of a device.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Capacity {
    /// The amount.
    pub value: Quantity,
    /// Whether amounts are written with binary suffixes.
    pub is_binary: bool,
    /// How requests are rounded; `None` if they are taken as they are.
    pub policy: Option<RequestPolicy>,
}

/// How requests for a capacity are rounded.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RequestPolicy {
    /// What a share without a request consumes; `None` for all.
    pub default: Option<Quantity>,
    /// The amounts that there are.
    pub valid: ValidAmounts,
}

/// The amounts of which a share can consume one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ValidAmounts {
    /// Any.
    Any,
    /// These, ascending.
    Values(Vec<Quantity>),
    /// At least `min`, more only by `step`, and no more than `max`.
    Range {
        /// The least.
        min: Quantity,
        /// The most.
        max: Option<Quantity>,
        /// The step.
        step: Option<Quantity>,
    },
}

/// Named counters of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CounterSet {
    /// Unique in the pool.
    pub name: Name,
    /// The amounts, by name.
    pub counters: BTreeMap<Name, Quantity>,
}

/// What a device consumes of a set of counters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Consumption {
    /// The set.
    pub set: Name,
    /// The amounts, by name.
    pub counters: BTreeMap<Name, Quantity>,
}

impl SliceFacts {
    /// Reads a ResourceSlice.
    ///
    /// # Errors
    ///
    /// [`FactError`] if it has no name or an amount cannot be read: skip the slice, so that its pool is
    /// incomplete.
    pub fn from_slice(slice: &ResourceSlice) -> Result<Self, FactError> {
        let key = object_key("ResourceSlice", &slice.metadata)?;
        let object = format!("ResourceSlice {}", key.name);
        let spec = &slice.spec;
        let nodes = if spec.per_device_node_selection == Some(true) {
            SliceNodes::PerDevice
        } else {
            let nodes = (spec.node_name.as_deref(), spec.all_nodes, spec.node_selector.as_ref());
            SliceNodes::All(DeviceNodes::from_api(nodes))
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
            CounterSet::from_api((&object, &field), set)
        });
        let devices = spec.devices.iter().flatten().enumerate().map(|(at, device)| {
            let field = format!("spec.devices[{at}]");
            DeviceFacts::from_api((&object, &field), device)
        });
        Ok(Self {
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
}

impl DeviceNodes {
    fn from_api(nodes: (Option<&str>, Option<bool>, Option<&NodeSelector>)) -> Self {
        match nodes {
            (Some(name), _, _) if !name.is_empty() => Self::Node(Name::from(name)),
            (_, Some(true), _) => Self::All,
            (_, _, Some(selector)) => Self::Selector(
                selector.node_selector_terms.iter().map(NodeTerm::from_api).collect(),
            ),
            _ => Self::None,
        }
    }
}

impl DeviceFacts {
    fn from_api((object, field): (&str, &str), device: &Device) -> Result<Self, FactError> {
        let attributes = device.attributes.iter().flatten().filter_map(|(name, attribute)| {
            Some((Name::from(name.as_str()), AttributeValue::from_api(attribute)?))
        });
        let capacity = device.capacity.iter().flatten().map(|(name, capacity)| {
            let field = format!("{field}.capacity[{name}]");
            Ok((Name::from(name.as_str()), Capacity::from_api((object, &field), capacity)?))
        });
        let consumes =
            device.consumes_counters.iter().flatten().enumerate().map(|(at, consumed)| {
                let field = format!("{field}.consumesCounters[{at}]");
                Consumption::from_api((object, &field), consumed)
            });
        let names = |list: &Option<Vec<String>>| {
            list.iter().flatten().map(|name| Name::from(name.as_str())).collect()
        };
        let nodes = (device.node_name.as_deref(), device.all_nodes, device.node_selector.as_ref());
        Ok(Self {
            name: Name::from(device.name.as_str()),
            nodes: DeviceNodes::from_api(nodes),
            attributes: attributes.collect(),
            capacity: capacity.collect::<Result<_, FactError>>()?,
            consumes: consumes.collect::<Result<_, FactError>>()?,
            taints: device.taints.iter().flatten().map(DeviceTaint::from_api).collect(),
            allow_multiple_allocations: device.allow_multiple_allocations == Some(true),
            binds_to_node: device.binds_to_node == Some(true),
            binding_conditions: names(&device.binding_conditions),
            binding_failure_conditions: names(&device.binding_failure_conditions),
        })
    }
}

impl AttributeValue {
    /// `None` if it has no value of a type that is known.
    fn from_api(attribute: &DeviceAttribute) -> Option<Self> {
        let text = |text: &String| Name::from(text.as_str());
        let one = attribute
            .int
            .map(Self::Int)
            .or(attribute.bool.map(Self::Bool))
            .or(attribute.string.as_ref().map(|value| Self::String(text(value))))
            .or(attribute.version.as_ref().map(|value| Self::Version(text(value))));
        let list = || {
            let ints = attribute.ints.as_ref();
            let bools = attribute.bools.as_ref();
            let strings = attribute.strings.as_ref();
            let versions = attribute.versions.as_ref();
            ints.map(|list| list.iter().map(|value| Self::Int(*value)).collect())
                .or(bools.map(|list| list.iter().map(|value| Self::Bool(*value)).collect()))
                .or(strings
                    .map(|list| list.iter().map(|value| Self::String(text(value))).collect()))
                .or(versions
                    .map(|list| list.iter().map(|value| Self::Version(text(value))).collect()))
        };
        one.or_else(|| list().map(Self::List))
    }
}

impl Capacity {
    fn from_api(at: (&str, &str), capacity: &DeviceCapacity) -> Result<Self, FactError> {
        let (object, field) = at;
        let policy = capacity.request_policy.as_ref();
        Ok(Self {
            value: quantity(object, &format!("{field}.value"), &capacity.value)?,
            is_binary: capacity.value.0.ends_with('i'),
            policy: policy.map(|policy| RequestPolicy::from_api(at, policy)).transpose()?,
        })
    }
}

impl RequestPolicy {
    fn from_api(
        (object, field): (&str, &str),
        policy: &CapacityRequestPolicy,
    ) -> Result<Self, FactError> {
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
        Ok(Self { default: default.transpose()?, valid })
    }
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

impl CounterSet {
    fn from_api(at: (&str, &str), set: &ApiCounterSet) -> Result<Self, FactError> {
        let counters = set.counters.iter().map(|(name, counter)| (name, &counter.value));
        Ok(Self { name: Name::from(set.name.as_str()), counters: amounts(at, counters)? })
    }
}

impl Consumption {
    fn from_api(at: (&str, &str), consumed: &DeviceCounterConsumption) -> Result<Self, FactError> {
        let counters = consumed.counters.iter().map(|(name, counter)| (name, &counter.value));
        Ok(Self {
            set: Name::from(consumed.counter_set.as_str()),
            counters: amounts(at, counters)?,
        })
    }
}
