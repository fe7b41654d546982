//! Extended resources that classes of devices stand for.
//!
//! On a node whose kubelet advertises the resource, it is counted like any other. On another node, the
//! scheduler makes a claim for the pod.
//!
//! Source: Kubernetes 1.37, `plugins/dynamicresources/extendeddynamicresources.go`.

use std::{collections::BTreeMap, sync::Arc};

use kube_batch_model::{
    devices::{DeviceMapping, ExtendedClaim},
    facts::{
        device::{
            class::{DeviceClassFacts, class_of_implicit_resource},
            request::{Alternatives, ClaimSpec, DeviceRequest, Wanted},
        },
        extended::ExtendedRequests,
    },
    name::Name,
};

use crate::claims::DeviceClasses;

/// A resource that neither the node nor a class provides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot fit resource")]
pub struct Unprovided;

/// The class that stands for a resource: of several the one created last, then the first by name.
pub fn class_for<'a>(classes: &'a DeviceClasses, resource: &str) -> Option<&'a DeviceClassFacts> {
    let named =
        classes.values().filter(|class| class.extended_resource.as_deref() == Some(resource));
    let last = named.rev().max_by_key(|class| class.created);
    let implicit = || classes.get(class_of_implicit_resource(resource)?);
    last.or_else(implicit).map(|class| &**class)
}

/// The claim for the extended resources of a pod on a node that advertises some of them.
///
/// # Errors
///
/// [`Unprovided`] if a claim is needed, and the pod requests another resource that neither the node nor a class
/// provides.
pub fn claim_for(
    containers: &[ExtendedRequests],
    classes: &DeviceClasses,
    is_advertised: impl Fn(&Name) -> bool,
) -> Result<Option<ExtendedClaim>, Unprovided> {
    let mut by_resource = BTreeMap::<&Name, Vec<(&ExtendedRequests, Need)>>::new();
    for container in containers {
        for request in &container.requests {
            let need = Need { rank: request.rank, count: request.count };
            by_resource.entry(&request.resource).or_default().push((container, need));
        }
    }
    let mut claim = Maker::default();
    let mut is_unprovided = false;
    for (resource, needs) in by_resource {
        if is_advertised(resource) {
            continue;
        }
        match class_for(classes, resource) {
            Some(class) => claim.add(resource, &class.name, &needs),
            None => is_unprovided = true,
        }
    }
    match claim.spec.requests.is_empty() {
        true => Ok(None),
        false if is_unprovided => Err(Unprovided),
        false => {
            let Maker { spec, mappings } = claim;
            Ok(Some(ExtendedClaim { spec: Arc::new(spec), mappings }))
        }
    }
}

/// What a container needs of a resource.
#[derive(Clone, Copy)]
struct Need {
    rank: usize,
    count: u64,
}

/// A claim that is being made.
#[derive(Default)]
struct Maker {
    spec: ClaimSpec,
    mappings: Vec<DeviceMapping>,
}

impl Maker {
    /// Adds the requests for one resource, and who gets their devices.
    fn add(&mut self, resource: &Name, class: &Name, needs: &[(&ExtendedRequests, Need)]) {
        let (init, lasting): (Vec<_>, Vec<_>) =
            needs.iter().partition(|(container, _)| container.is_init);
        let later = |at: usize| lasting.iter().filter(move |(container, _)| container.at > at);
        // An init container uses what later containers get; what the largest one lacks is requested.
        let lacking = init.iter().map(|(container, need)| {
            let reused: u64 = later(container.at).map(|(_, need)| need.count).sum();
            (*container, *need, need.count.saturating_sub(reused))
        });
        let lacking: Vec<(&ExtendedRequests, Need, u64)> = lacking.collect();
        let most = lacking.iter().rev().max_by_key(|(_, _, lacks)| *lacks);
        let most = most.filter(|(_, _, lacks)| *lacks > 0);
        let extra = most.map(|(container, need, lacks)| (container.at, need.rank, *lacks));
        let own = lasting.iter().map(|(container, need)| (container.at, need.rank, need.count));
        let mut requests: Vec<(usize, usize, u64)> = own.chain(extra).collect();
        requests.sort_unstable();
        self.spec.requests.extend(requests.into_iter().map(|(at, rank, count)| DeviceRequest {
            name: request_name(at, rank),
            alternatives: Alternatives::Exactly(Wanted::of_class(class, count)),
        }));
        let mut map = |container: &ExtendedRequests, (at, rank): (usize, usize)| {
            self.mappings.push(DeviceMapping {
                container: container.container.clone(),
                resource: resource.clone(),
                request: request_name(at, rank),
            });
        };
        for (container, need) in &lasting {
            map(container, (container.at, need.rank));
        }
        for (container, need, lacks) in &lacking {
            let mut left = need.count;
            for (later, of_later) in later(container.at) {
                if left > 0 {
                    map(container, (later.at, of_later.rank));
                    left = left.saturating_sub(of_later.count);
                }
            }
            if let Some((at, rank, _)) = extra.filter(|_| *lacks > 0) {
                map(container, (at, rank));
            }
        }
    }
}

fn request_name(container: usize, rank: usize) -> Name {
    Name::from(format!("container-{container}-request-{rank}"))
}
