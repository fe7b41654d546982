//! Templates from which claims for devices are made.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::resource::v1::{ResourceClaim, ResourceClaimTemplate},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use kube_batch_api::read;
use kube_batch_model::{
    facts::FactError,
    name::{Name, ObjectKey},
};

/// Templates of claims.
#[derive(Debug, Default)]
pub(crate) struct ClaimTemplates(BTreeMap<ObjectKey, ResourceClaimTemplate>);

impl ClaimTemplates {
    /// Creates a template, or replaces the one with its name.
    ///
    /// # Errors
    ///
    /// [`FactError`] if the claims made from it would be invalid: it is not stored.
    pub(crate) fn apply(
        &mut self,
        key: ObjectKey,
        template: &ResourceClaimTemplate,
    ) -> Result<(), FactError> {
        read::resource_claim(&claim_of(template, &key, None))?;
        self.0.insert(key, template.clone());
        Ok(())
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The template with this name.
    pub(crate) fn get(&self, key: &ObjectKey) -> Option<&ResourceClaimTemplate> {
        self.0.get(key)
    }

    /// Deletes a template. Returns whether it existed.
    pub(crate) fn delete(&mut self, key: &ObjectKey) -> bool {
        self.0.remove(key).is_some()
    }
}

/// Whom a claim is made for.
#[derive(Clone, Copy)]
pub(crate) struct Owner<'a> {
    /// `Pod` or `PodGroup`.
    pub(crate) kind: &'a str,
    pub(crate) name: &'a Name,
    pub(crate) uid: &'a Name,
}

/// A claim made from a template.
pub(crate) fn claim_of(
    template: &ResourceClaimTemplate,
    key: &ObjectKey,
    owner: Option<Owner<'_>>,
) -> ResourceClaim {
    let owner = owner.map(|owner| OwnerReference {
        api_version: if owner.kind == "Pod" { "v1" } else { "scheduling.k8s.io/v1beta1" }
            .to_owned(),
        kind: owner.kind.to_owned(),
        name: owner.name.to_string(),
        uid: owner.uid.to_string(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    });
    ResourceClaim {
        metadata: ObjectMeta {
            namespace: Some(key.namespace.to_string()),
            name: Some(key.name.to_string()),
            uid: Some(key.to_string()),
            owner_references: owner.map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        spec: template.spec.as_ref().and_then(|spec| spec.spec.clone()),
        status: None,
    }
}
