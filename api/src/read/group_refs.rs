//! The PodGroups that a pod names.

use k8s_openapi::api::core::v1::Pod;
use kube_batch_model::{
    facts::{
        group_refs::{GroupRef, GroupRefs},
        pod::Interner,
    },
    name::is_dns_subdomain,
};

use crate::membership::{MemberField, named_groups};

/// Reads them from a pod.
///
/// # Errors
///
/// The field that has no valid name.
pub(super) fn group_refs(pod: &Pod, interner: &mut Interner) -> Result<GroupRefs, &'static str> {
    let group_ref = |(field, name): (&MemberField, &String)| {
        if !is_dns_subdomain(name) {
            return Err(field.name);
        }
        let only_with = field.only_if_served.then_some(field.version);
        Ok(GroupRef { join: field.version.join(), name: interner.name(name), only_with })
    };
    named_groups(&pod.metadata, pod.spec.as_ref()).map(group_ref).collect()
}
