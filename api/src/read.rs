//! Reads objects of Kubernetes as facts.
//!
//! Each reader returns a [`FactError`](kube_batch_model::facts::FactError) for an object that cannot be used: the caller
//! skips that object only.

pub mod affinity;
pub mod amounts;
mod batch_job;
mod composite;
pub mod device;
mod extended;
pub mod failure_policy;
mod gang_annotations;
pub(crate) mod group;
mod group_refs;
mod limits;
pub mod metadata;
mod node;
mod pod;
mod pod_hints;
mod policy;
mod queue;
mod request;
mod run_time;
pub mod selector;
mod storage;
mod template;

pub use self::{
    batch_job::batch_job,
    composite::composite,
    device::{claim::resource_claim, class::device_class, slice::slice, taint::taint_rule},
    limits::MAX_POD_AMOUNT,
    node::{namespace, node},
    pod::pod,
    policy::{budget, priority_class},
    queue::queue,
    storage::{claim, csi_driver, csi_node, storage_class, volume},
    template::template,
};
