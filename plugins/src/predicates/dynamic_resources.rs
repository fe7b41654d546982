//! Pods with claims for devices (Dynamic Resource Allocation).
//!
//! kube-batch does not allocate devices. A pod whose claims are all allocated may go to the nodes that
//! the allocations name. Any other pod with claims fits on no node: bound without an allocation, it
//! would never start.
//!
//! Source: Kubernetes 1.37, `plugins/dynamicresources`, for claims that are allocated; the messages for
//! other claims are our own.
// Parity: new, see docs/parity.md#f6.

use kube_batch_api::{
    cluster::Cluster,
    column::Column,
    facts::device::claim::{ClaimEntry, ClaimSource},
    name::{Name, ObjectKey},
    reason::{Cause, Inadmissible, Unfit},
    selector::NodeTerm,
};
use kube_batch_framework::plugin::{Dependencies, Dependency};

use super::{
    arguments::PredicatesArguments,
    filter::{Filter, Query},
};
use crate::{compiled::Opening, constraint_classes::ConstraintClassIdx, node_tests::AnyOf};

#[derive(Debug)]
struct DynamicResources {
    rules: Column<ConstraintClassIdx, Rules>,
}

/// What the claims of a class require.
#[derive(Clone, Debug, Default)]
struct Rules {
    /// Why no node is eligible.
    refusal: Option<Name>,
    /// One test for each claim that not every node can use.
    tests: Vec<AnyOf>,
}

pub(super) fn build(opening: Opening<'_>, _: &PredicatesArguments) -> Box<dyn Filter> {
    let mut rules = opening.by_class(Rules::default());
    for class in opening.classes().to_place() {
        let template = opening.template(class);
        for entry in &template.resource_claims {
            let rules = &mut rules[class];
            let namespace = template.namespace.clone().unwrap_or_default();
            match allocated_nodes(opening.cluster, namespace, entry) {
                Ok(None) => {}
                Ok(Some(terms)) => rules.tests.push(opening.compiler().any_of(terms)),
                Err(refusal) => {
                    rules.refusal.get_or_insert(refusal);
                }
            }
        }
    }
    Box::new(DynamicResources { rules })
}

/// The nodes that can use the allocated claim of a pod in a namespace; `None` for all.
///
/// # Errors
///
/// Why the pod fits on no node.
fn allocated_nodes<'a>(
    cluster: &'a Cluster,
    namespace: Name,
    ClaimEntry { name: entry, source }: &ClaimEntry,
) -> Result<Option<&'a [NodeTerm]>, Name> {
    let name = match source {
        ClaimSource::Named(name) | ClaimSource::Generated(name) => name.clone(),
        ClaimSource::NotNeeded => return Ok(None),
        ClaimSource::NotCreated(_) | ClaimSource::Unknown => {
            let why = format!(
                "the resourceclaim of spec.resourceClaims entry \"{entry}\" does not exist yet"
            );
            return Err(why.into());
        }
    };
    let key = ObjectKey { namespace, name };
    let Some(facts) = cluster.resource_claims.get(&key) else {
        return Err(format!("resourceclaim \"{}\" not found", key.name).into());
    };
    let Some(allocation) = &facts.allocation else {
        let why = format!(
            "resourceclaim \"{}\" is not allocated, and kube-batch does not allocate devices",
            key.name
        );
        return Err(why.into());
    };
    Ok(allocation.nodes.as_deref())
}

impl Filter for DynamicResources {
    fn dependencies(&self, class: ConstraintClassIdx) -> Dependencies {
        let Rules { refusal, tests } = &self.rules[class];
        Dependencies::NONE.with_if(Dependency::Class, refusal.is_some() || !tests.is_empty())
    }

    fn admit(&self, class: ConstraintClassIdx) -> Result<(), Inadmissible> {
        let refusal = self.rules[class].refusal.clone();
        refusal.map_or(Ok(()), |message| Err(Inadmissible { cause: Cause::Rules, message }))
    }

    fn check(&self, query: Query) -> Result<(), Unfit> {
        let passes = self.rules[query.class].tests.iter().all(|test| test.passes(query.node));
        if passes { Ok(()) } else { Err(Unfit::ResourceClaim) }
    }
}
