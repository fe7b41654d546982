//! Devices in a snapshot: the objects that publish and claim them, and what a class of tasks needs of them.

use std::{
    any::Any,
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use serde::{Deserialize, Serialize};

use crate::{
    facts::{
        device::{
            claim::{Allocation, ClaimEntry, ResourceClaimFacts},
            class::DeviceClassFacts,
            request::{AllocationMode, Alternatives, ClaimSpec, Wanted},
            slice::SliceFacts,
            taint::DeviceTaintRuleFacts,
        },
        extended::ExtendedRequests,
    },
    name::{Name, ObjectKey},
    resource::{MAX_AMOUNT, ResourceList},
};

/// The most devices of a claim: what `allocationMode: All` counts for until it is allocated, as in quotas.
const MAX_DEVICES: u64 = 32;

/// The resource that counts the devices of a class which claims request, as quotas call it.
pub fn devices_of_class(class: &str) -> Name {
    Name::from(format!("{class}.deviceclass.resource.kubernetes.io/devices"))
}

/// The resource that counts the physical devices of a class, in which queues share them.
pub fn physical_devices_of_class(class: &str) -> Name {
    Name::from(format!("{class}.deviceclass.resource.kubernetes.io/physical-devices"))
}

/// The objects of Dynamic Resource Allocation, with the decisions in flight applied.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeviceObjects {
    /// ResourceClaims.
    pub claims: BTreeMap<ObjectKey, Arc<ResourceClaimFacts>>,
    /// The devices that there are.
    pub published: Arc<PublishedDevices>,
}

/// Devices and their classes, which seldom change.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PublishedDevices {
    /// ResourceSlices.
    pub slices: BTreeMap<Name, Arc<SliceFacts>>,
    /// DeviceClasses.
    pub classes: BTreeMap<Name, Arc<DeviceClassFacts>>,
    /// DeviceTaintRules.
    pub taint_rules: BTreeMap<Name, Arc<DeviceTaintRuleFacts>>,
    /// What was derived from them.
    pub derived: Derived,
}

/// A place for what a plugin derives from objects that seldom change, so that it is kept from cycle to cycle as
/// long as they stay the same. It is no part of their value.
#[derive(Default)]
pub struct Derived(Mutex<Option<Arc<dyn Any + Send + Sync>>>);

impl Derived {
    /// What was put here last, if it is a `T`.
    pub fn get<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        let value = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Arc::downcast(value?).ok()
    }

    /// Replaces what is here.
    pub fn put<T: Any + Send + Sync>(&self, value: Arc<T>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
    }
}

impl Clone for Derived {
    fn clone(&self) -> Self {
        Self(Mutex::new(self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()))
    }
}

impl PartialEq for Derived {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl fmt::Debug for Derived {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Derived")
    }
}

/// The claim that a scheduler makes for the extended resources of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExtendedClaim {
    /// What it requests.
    pub spec: Arc<ClaimSpec>,
    /// Which containers get the devices of which requests.
    pub mappings: Vec<DeviceMapping>,
}

/// A container and the request whose devices it gets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceMapping {
    /// The container.
    pub container: Name,
    /// The resource that it requests.
    pub resource: Name,
    /// The request of the claim.
    pub request: Name,
}

impl ExtendedClaim {
    /// The name of the claim of a pod. It is the same for each attempt to create it, so that an attempt whose answer
    /// was lost is not repeated under another name.
    pub fn key(pod: &ObjectKey, uid: &Name) -> ObjectKey {
        const SUFFIX: &str = "-extended-resources-";
        let id: String = uid.chars().filter(char::is_ascii_alphanumeric).take(8).collect();
        let id = id.to_ascii_lowercase();
        let pod_name: String = pod.name.chars().take(253 - SUFFIX.len() - id.len()).collect();
        let pod_name = pod_name.trim_end_matches(['-', '.']);
        let name = Name::from(format!("{pod_name}{SUFFIX}{id}"));
        ObjectKey { namespace: pod.namespace.clone(), name }
    }
}

/// What each task of a class needs of devices.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct DeviceDemand {
    /// Its claims, in the order of the pod.
    pub claims: Vec<ClaimDemand>,
    /// How many pods that have not ended share each of them; 1 for those that were made for the task.
    pub n_users: Vec<u32>,
    /// Its requests for extended resources, if a class of devices stands for one of them.
    pub extended: Vec<ExtendedRequests>,
    /// Whether its status names a claim for them. It stays so, and the kubelet does not start the pod without the claim.
    pub names_claim: bool,
    /// The claim for its extended resources that an earlier attempt left behind.
    pub leftover: Option<ObjectKey>,
    /// The claim that was made for its extended resources, once it is on a node: what tasks were given may differ.
    pub extended_claim: Option<ObjectKey>,
    /// How many devices of each class count for it, in thousandths.
    pub counted: ResourceList,
}

/// A claim of a task.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ClaimDemand {
    /// A claim that was made for the task and is not allocated. Tasks whose claims request the same are of one
    /// class.
    Own(Arc<ClaimSpec>),
    /// Any other: who names it, and in which namespace.
    Entry(Name, ClaimEntry),
}

impl ClaimDemand {
    /// Whether the claim was made for the task and is not allocated.
    pub const fn is_own(&self) -> bool {
        matches!(self, Self::Own(_))
    }
}

impl DeviceDemand {
    /// Whether it needs none.
    pub const fn is_empty(&self) -> bool {
        self.claims.is_empty() && self.extended.is_empty()
    }
}

/// How many devices of each class a claim counts for, in thousandths: those that it was given, or as many as it
/// requests. Of the alternatives of a request, the most of each class. Admin access counts for nothing.
// Parity: see docs/parity.md#v8.
pub fn counted(claim: &ResourceClaimFacts) -> ResourceList {
    let by_class = match &claim.allocation {
        Some(allocation) => given(&claim.spec, allocation),
        None => requested(&claim.spec),
    };
    let mut list = ResourceList::default();
    for (class, n_devices) in by_class {
        let n_devices = i64::try_from(n_devices).unwrap_or(MAX_AMOUNT).min(MAX_AMOUNT / 1000);
        list.set(&devices_of_class(class), n_devices * 1000);
    }
    list
}

fn given<'a>(spec: &'a ClaimSpec, allocation: &'a Allocation) -> BTreeMap<&'a Name, u64> {
    let mut by_class = BTreeMap::new();
    for class in given_classes(spec, allocation) {
        *by_class.entry(class).or_default() += 1;
    }
    by_class
}

/// The class of each device that a claim was given, admin access aside.
fn given_classes<'a>(
    spec: &'a ClaimSpec,
    allocation: &'a Allocation,
) -> impl Iterator<Item = &'a Name> {
    let results = allocation.results.iter().filter(|result| !result.admin_access);
    results.filter_map(|result| {
        let (request, alternative) = match result.request.split_once('/') {
            Some((request, alternative)) => (request, Some(alternative)),
            None => (&*result.request, None),
        };
        let request = spec.requests.iter().find(|own| *own.name == *request)?;
        match (&request.alternatives, alternative) {
            (Alternatives::Exactly(wanted), _) => Some(&wanted.class),
            (Alternatives::FirstAvailable(list), Some(alternative)) => {
                list.iter().find(|(own, _)| **own == *alternative).map(|(_, wanted)| &wanted.class)
            }
            (Alternatives::FirstAvailable(_) | Alternatives::Unknown, _) => None,
        }
    })
}

/// How many devices of a class a claim was given, admin access aside.
pub fn n_given(claim: &ResourceClaimFacts, class: &Name) -> usize {
    let Some(allocation) = &claim.allocation else { return 0 };
    given_classes(&claim.spec, allocation).filter(|given| *given == class).count()
}

fn requested(spec: &ClaimSpec) -> BTreeMap<&Name, u64> {
    let mut by_class = BTreeMap::<&Name, u64>::new();
    for request in &spec.requests {
        let alternatives: Vec<&Wanted> = match &request.alternatives {
            Alternatives::Exactly(wanted) => vec![wanted],
            Alternatives::FirstAvailable(list) => list.iter().map(|(_, wanted)| wanted).collect(),
            Alternatives::Unknown => Vec::new(),
        };
        let mut most = BTreeMap::<&Name, u64>::new();
        for wanted in alternatives.into_iter().filter(|wanted| !wanted.admin_access) {
            let n_devices = match wanted.mode {
                AllocationMode::ExactCount(n_devices) => n_devices,
                AllocationMode::All | AllocationMode::Unknown(_) => MAX_DEVICES,
            };
            let own = most.entry(&wanted.class).or_default();
            *own = (*own).max(n_devices);
        }
        for (class, n_devices) in most {
            let own = by_class.entry(class).or_default();
            *own = own.saturating_add(n_devices);
        }
    }
    by_class
}
