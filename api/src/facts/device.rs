//! Claims for devices of Dynamic Resource Allocation, as far as they decide where a pod may go.

use k8s_openapi::api::{
    core::v1::{NodeSelector, Pod, PodResourceClaim},
    resource::v1::ResourceClaim,
};
use serde::{Deserialize, Serialize};

use super::{FactError, object_key};
use crate::{
    name::{Name, ObjectKey},
    selector::NodeTerm,
};

/// The fields of a ResourceClaim that the scheduler uses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceClaimFacts {
    /// Namespace and name.
    pub key: ObjectKey,
    /// Where its devices are, if they are allocated.
    pub allocation: Option<ClaimAllocation>,
}

/// The allocation of a claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimAllocation {
    /// Alternatives of the nodes that can use the devices; `None` if all can.
    pub nodes: Option<Vec<NodeTerm>>,
}

/// A claim for devices of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ResourceClaimRef {
    /// A ResourceClaim.
    Claim(ObjectKey),
    /// The entry of this name in `spec.resourceClaims`, for which no ResourceClaim is made yet.
    NotCreated(Name),
}

impl ResourceClaimFacts {
    /// Reads a ResourceClaim.
    ///
    /// # Errors
    ///
    /// [`FactError`] if it has no name: skip it.
    pub fn from_resource_claim(claim: &ResourceClaim) -> Result<Self, FactError> {
        let key = object_key("ResourceClaim", &claim.metadata)?;
        let allocation = claim.status.as_ref().and_then(|status| status.allocation.as_ref());
        let nodes = |selector: &NodeSelector| {
            selector.node_selector_terms.iter().map(NodeTerm::from_api).collect()
        };
        let allocation = allocation.map(|allocation| ClaimAllocation {
            nodes: allocation.node_selector.as_ref().map(nodes),
        });
        Ok(Self { key, allocation })
    }
}

impl ResourceClaimRef {
    /// The claims of a pod. A claim made from a template is named in the status of the pod; an entry
    /// without a name there needs none.
    pub fn of(pod: &Pod, key: &ObjectKey) -> Vec<Self> {
        let entries = pod.spec.as_ref().and_then(|spec| spec.resource_claims.as_deref());
        let claim = |name: &str| {
            Self::Claim(ObjectKey { namespace: key.namespace.clone(), name: Name::from(name) })
        };
        let statuses =
            pod.status.as_ref().and_then(|status| status.resource_claim_statuses.as_deref());
        let resolve = |entry: &PodResourceClaim| {
            if let Some(name) = &entry.resource_claim_name {
                return Some(claim(name));
            }
            let mut statuses = statuses.into_iter().flatten();
            match statuses.find(|status| status.name == entry.name) {
                Some(status) => status.resource_claim_name.as_deref().map(claim),
                None => Some(Self::NotCreated(Name::from(entry.name.as_str()))),
            }
        };
        entries.into_iter().flatten().filter_map(resolve).collect()
    }
}
