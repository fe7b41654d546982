//! A host port is used by one pod of a node only.
//!
//! Two ports conflict if protocol and number are equal and the addresses are equal, or one of them
//! is `0.0.0.0`.
//!
//! Source: Kubernetes 1.36, `plugins/nodeports`.

use kube_batch_framework::plugin::{Dependencies, Dependency};
use kube_batch_model::{facts::class::HostPort, name::Name, reason::Unfit};

use super::{
    arguments::PredicatesArguments,
    filter::{Filter, Query},
    node_conflicts::NodeConflicts,
};
use crate::{compiled::Opening, constraint_classes::ConstraintClassIdx, pod_count::Placed};

#[derive(Debug)]
struct NodePorts {
    ports: NodeConflicts,
}

pub(super) fn build(opening: Opening<'_>, _: &PredicatesArguments) -> Box<dyn Filter> {
    let ports = NodeConflicts::new(opening, |template| &template.host_ports, bucket, conflict);
    Box::new(NodePorts { ports })
}

fn bucket(port: &HostPort) -> (i32, &Name) {
    (port.port, &port.protocol)
}

fn conflict(left: &HostPort, right: &HostPort) -> bool {
    let is_every = |address: &Name| **address == *"0.0.0.0";
    left.port == right.port
        && left.protocol == right.protocol
        && (left.address == right.address || is_every(&left.address) || is_every(&right.address))
}

impl Filter for NodePorts {
    fn dependencies(&self, class: ConstraintClassIdx) -> Dependencies {
        Dependencies::NONE.with_if(Dependency::Node, self.ports.concern(class))
    }

    fn check(&self, query: Query) -> Result<(), Unfit> {
        let is_taken = self.ports.exist(query.class, query.node, query.capacity);
        if is_taken { Err(Unfit::HostPorts) } else { Ok(()) }
    }

    fn on_placement(&mut self, placed: &Placed) {
        self.ports.on_placement(placed);
    }
}
