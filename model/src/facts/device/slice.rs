//! ResourceSlices: the devices that drivers publish.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::taint::DeviceTaint;
use crate::{facts::fact::Fact, name::Name, quantity::Quantity, selector::NodeTerm};

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

impl Fact for SliceFacts {}

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
    pub capacity: BTreeMap<Name, CapacityFacts>,
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
pub struct CapacityFacts {
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
