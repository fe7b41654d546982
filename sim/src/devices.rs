//! The controllers of claims for devices: they make claims from templates, free the devices of pods that are gone
//! or done, and evict pods from tainted devices.
//!
//! Source: Kubernetes 1.37, `pkg/controller/resourceclaim` and `pkg/controller/devicetainteviction`.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use kube_batch_api::kind::ApplyObject as _;
use kube_batch_model::{
    decision::{DeviceChoice, PodRef},
    facts::{
        device::claim::{ClaimEntry, ClaimSource, DeviceResult, ResourceClaimFacts},
        group::GroupFacts,
        pod::TaskFacts,
    },
    name::{JobKey, Name, ObjectKey},
    status::TaskStatus,
};

use crate::{
    claim_templates::{Owner, claim_of},
    world::World,
};

impl World {
    /// Lets the controllers of claims do their work.
    pub(crate) fn run_claim_controllers(&mut self) {
        if self.store.resource_claims.is_empty() && self.claim_templates.is_empty() {
            return;
        }
        self.evict_from_tainted_devices();
        self.release_claims();
        self.make_claims();
    }

    /// Makes the claims of pods that name a template.
    fn make_claims(&mut self) {
        let waits = |facts: &TaskFacts| {
            facts
                .device_claims
                .iter()
                .any(|entry| matches!(entry.source, ClaimSource::NotCreated(_)))
        };
        let waiting: Vec<Arc<TaskFacts>> =
            self.store.pods.values().filter(|facts| waits(facts)).cloned().collect();
        for pod in waiting {
            let entries = pod.device_claims.iter().map(|entry| self.made(&pod, entry));
            let entries: Vec<ClaimEntry> = entries.collect();
            self.change_pod(&pod.key, |facts| facts.device_claims = entries.into());
        }
    }

    /// The entry of a pod, once its claim is made.
    fn made(&mut self, pod: &TaskFacts, entry: &ClaimEntry) -> ClaimEntry {
        let ClaimSource::NotCreated(template) = &entry.source else { return entry.clone() };
        let namespace = pod.key.namespace.clone();
        let key = ObjectKey { namespace: namespace.clone(), name: template.clone() };
        let Some(found) = self.claim_templates.get(&key) else { return entry.clone() };
        let group = match pod.job_key(self.store.served()) {
            JobKey::Group(join, key) => self.store.group(join, &key),
            JobKey::Shadow { .. } | JobKey::Pod { .. } => None,
        };
        let shares = |group: &&Arc<GroupFacts>| group.claims.iter().any(|own| entry.is_same(own));
        let owner = match group.filter(shares) {
            Some(group) => Owner { kind: "PodGroup", name: &group.key.name, uid: &group.uid },
            None => Owner { kind: "Pod", name: &pod.key.name, uid: &pod.uid },
        };
        let claim = Name::from(format!("{}-{}", owner.name, entry.name));
        let key = ObjectKey { namespace, name: claim.clone() };
        let made = claim_of(found, &key, Some(owner));
        if self.store.resource_claims.get(&key).is_none() {
            // The template was read before.
            let _ = self.store.apply(&made);
        }
        let source = ClaimSource::Generated { claim, template: template.clone() };
        ClaimEntry { name: entry.name.clone(), source }
    }

    /// Frees the devices of claims that have lost their last user, and deletes the claims of deleted pods.
    fn release_claims(&mut self) {
        let claims: Vec<Arc<ResourceClaimFacts>> =
            self.store.resource_claims.values().cloned().collect();
        let pods: BTreeMap<&Name, &TaskFacts> =
            self.store.pods.values().map(|facts| (&facts.uid, &**facts)).collect();
        let groups: BTreeSet<&Name> = self.store.groups.values().map(|facts| &facts.uid).collect();
        let is_alive = |uid: &Name| {
            let pod = pods.get(uid);
            pod.is_some_and(|pod| !matches!(pod.status, TaskStatus::Succeeded | TaskStatus::Failed))
        };
        let mut deleted = Vec::new();
        let mut changed = Vec::new();
        for claim in claims {
            let is_made = claim.uid.as_str() == claim.key.to_string();
            let owner = claim.controller.as_ref().filter(|_| is_made);
            let exists = |owner: &Name| pods.contains_key(owner) || groups.contains(owner);
            if owner.is_some_and(|owner| !exists(owner)) {
                deleted.push(claim.key.clone());
                continue;
            }
            let mut next = ResourceClaimFacts::clone(&claim);
            next.reserved_for.retain(|consumer| match consumer.is_pod() {
                true => is_alive(&consumer.uid),
                false => groups.contains(&consumer.uid),
            });
            if next.reserved_for.len() == claim.reserved_for.len() {
                continue;
            }
            if next.reserved_for.is_empty() && next.is_protected {
                (next.allocation, next.is_protected) = (None, false);
                next.conditions.clear();
            }
            changed.push(next);
        }
        deleted.iter().for_each(|key| {
            self.store.resource_claims.delete(key);
        });
        for claim in changed {
            self.store.resource_claims.apply(claim.key.clone(), claim);
        }
    }

    /// Deletes the pods whose claims hold devices with a taint `NoExecute` that the claim does not tolerate.
    fn evict_from_tainted_devices(&mut self) {
        let evicted: Vec<ObjectKey> = self
            .store
            .resource_claims
            .values()
            .filter(|claim| {
                let results = claim.allocation.iter().flat_map(|allocation| &allocation.results);
                results.into_iter().any(|result| self.is_evicting(result))
            })
            .flat_map(|claim| {
                let pods = claim.reserved_for.iter().filter(|consumer| consumer.is_pod());
                let namespace = &claim.key.namespace;
                pods.map(|pod| ObjectKey { namespace: namespace.clone(), name: pod.name.clone() })
            })
            .collect();
        evicted.iter().for_each(|pod| self.terminate_pod(pod));
    }

    /// Whether a device has a taint `NoExecute` that is not tolerated.
    fn is_evicting(&self, result: &DeviceResult) -> bool {
        let id = &result.id;
        let slices = self.store.resource_slices.values();
        let mut slices = slices.filter(|slice| slice.driver == id.driver && slice.pool == id.pool);
        let of_device =
            slices.find_map(|slice| slice.devices.iter().find(|device| device.name == id.device));
        let own = of_device.into_iter().flat_map(|device| &device.taints);
        let rules = self.store.device_taint_rules.values();
        let of_rules = rules.filter(|rule| rule.taints(id)).map(|rule| &rule.taint);
        let mut taints = own.chain(of_rules).filter(|taint| *taint.effect == *"NoExecute");
        taints.any(|taint| !result.tolerations.iter().any(|toleration| toleration.tolerates(taint)))
    }

    /// Takes the devices from a claim. One for extended resources is deleted.
    pub(crate) fn deallocate(&mut self, key: &ObjectKey) {
        let Some(claim) = self.store.resource_claims.get(key) else { return };
        if claim.extended_for.is_some() {
            self.store.resource_claims.delete(key);
            return;
        }
        let mut claim = ResourceClaimFacts::clone(claim);
        (claim.allocation, claim.reserved_for) = (None, Vec::new());
        claim.conditions.clear();
        self.store.resource_claims.apply(key.clone(), claim);
    }

    /// Writes what a scheduler writes for the claims of a pod that is bound.
    pub(crate) fn reserve_devices(&mut self, choices: &[DeviceChoice], pod: &PodRef) {
        let PodRef { key, uid } = pod;
        for choice in choices {
            if let Some(new) = &choice.new {
                let mut claim =
                    ResourceClaimFacts::extended(&choice.claim, (&key.name, uid), &new.spec);
                claim.uid = Name::from(choice.claim.to_string());
                self.store.resource_claims.apply(choice.claim.clone(), claim);
                let name = choice.claim.name.clone();
                self.change_pod(key, |facts| facts.extended_claim = Some(name));
            }
            let Some(claim) = self.store.resource_claims.get(&choice.claim) else { continue };
            let mut claim = ResourceClaimFacts::clone(claim);
            if claim.allocation.is_none() {
                claim.allocation.clone_from(&choice.allocation);
                claim.is_protected = true;
                let results = claim.allocation.iter_mut().flat_map(|own| &mut own.results);
                for (at, share) in results.filter_map(|own| own.share.as_mut()).enumerate() {
                    *share = Name::from(format!("{}-{at}", claim.key));
                }
            }
            let consumer = choice.consumer(pod);
            if claim.reserved_for.iter().all(|known| known.uid != consumer.uid) {
                claim.reserved_for.push(consumer);
            }
            self.store.resource_claims.apply(claim.key.clone(), claim);
        }
    }
}
