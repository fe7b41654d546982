//! Simulated controllers that create pods, as far as they matter to a scheduler.
//!
//! They know the controllers of Job, ReplicaSet, Deployment, StatefulSet and JobSet. A pod of the
//! input belongs to the controller that its owner reference names; a new pod never gets the name of
//! an existing one.

mod controller;
mod job;
mod job_set;
mod plan;
mod pods;
mod template;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube_batch_api::jobset::JobSet;
use kube_batch_api::kind::ApplyObject as _;
use kube_batch_cache::store::Store;
use kube_batch_model::{
    facts::FactError,
    name::{Name, ObjectKey},
};

pub(crate) use self::job::JobFailure;
pub use self::{
    controller::{Controller, ControllerKind},
    template::DURATION_ANNOTATION,
};
use self::{
    job::pod_index,
    job_set::{JobSetRun, REPLICATED_JOB},
};
pub(crate) use self::{
    job_set::{job_controller, jobs_of},
    plan::{NewPod, Numbers, Ordinals, OwnedPod, number_of_pods},
    pods::Pods,
    template::{PodTimer, Template, in_template},
};

type Id = (ControllerKind, ObjectKey);

/// All controllers, and the names they have used.
#[derive(Debug, Default)]
pub struct Controllers {
    by_key: BTreeMap<Id, Controller>,
    job_sets: BTreeMap<ObjectKey, (JobSet, JobSetRun)>,
    /// Invalid templates, with the reason.
    broken: Vec<FactError>,
    /// Pods that the scheduler has evicted and that controllers have not seen end.
    evicted: BTreeSet<ObjectKey>,
}

/// What controllers did.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// Pods created, and when they end.
    pub(crate) created: Vec<(ObjectKey, Option<PodTimer>)>,
    /// Pods to stop.
    pub(crate) deleted: Vec<ObjectKey>,
}

impl Controllers {
    /// Adds or replaces a controller.
    pub(crate) fn apply(&mut self, mut controller: Controller) {
        let id = (controller.kind, controller.key.clone());
        if let Some(old) = self.by_key.remove(&id) {
            controller.pods.keep_progress(old.pods);
        }
        self.by_key.insert(id, controller);
    }

    /// Adds or replaces a JobSet, whose Jobs are created when controllers run.
    pub(crate) fn apply_job_set(&mut self, key: ObjectKey, job_set: JobSet) {
        let run = self.job_sets.get(&key).map_or(JobSetRun::default(), |(_, run)| *run);
        self.job_sets.insert(key, (job_set, run));
    }

    /// Removes a controller and its pods.
    pub fn delete(&mut self, kind: ControllerKind, key: &ObjectKey, store: &mut Store) -> bool {
        let id = (kind, key.clone());
        let owned = self.owned_pods(store).remove(&id).unwrap_or_default();
        if self.by_key.remove(&id).is_none() {
            return false;
        }
        for pod in owned {
            store.pods.delete(&pod.key);
        }
        if kind == ControllerKind::Job {
            store.batch_jobs.delete(key);
        }
        true
    }

    /// Removes a JobSet with its Jobs and their pods.
    pub fn delete_job_set(&mut self, key: &ObjectKey, store: &mut Store) -> bool {
        let known = self.job_sets.remove(key).is_some();
        for job in self.jobs_of_set(key) {
            self.delete(ControllerKind::Job, &job, store);
        }
        known
    }

    fn jobs_of_set(&self, key: &ObjectKey) -> Vec<ObjectKey> {
        let is_its = |controller: &&Controller| {
            controller.kind == ControllerKind::Job
                && controller.key.namespace == key.namespace
                && controller.owner.as_ref() == Some(&key.name)
        };
        self.by_key.values().filter(is_its).map(|job| job.key.clone()).collect()
    }

    /// Creates the Jobs of JobSets again of which one has failed, or stops them.
    fn restart_job_sets(&mut self, store: &mut Store, changes: &mut Changes) {
        let mut failed: Vec<(Timestamp, ObjectKey, String, JobFailure)> = Vec::new();
        for (job, failure) in self.failed_jobs() {
            let Some(set) = job.owner.clone() else { continue };
            let set = ObjectKey { namespace: job.key.namespace.clone(), name: set };
            let meta = job.template.pod.metadata.as_ref();
            let labels = meta.and_then(|meta| meta.labels.as_ref());
            let part = labels.and_then(|labels| labels.get(REPLICATED_JOB)).cloned();
            failed.push((job.created, set, part.unwrap_or_default(), failure));
        }
        failed.sort_by_key(|(created, ..)| *created);
        for (_, key, part, failure) in failed {
            let jobs = self.jobs_of_set(&key);
            if jobs.is_empty() {
                // Another of its Jobs has failed too.
                continue;
            }
            let Some((set, run)) = self.job_sets.get_mut(&key).filter(|(_, run)| !run.has_failed)
            else {
                continue;
            };
            run.job_failed(set.spec.failure_policy.as_ref(), &part, failure.reason());
            let has_failed = run.has_failed;
            let owned = self.owned_pods(store);
            for job in jobs {
                let id = (ControllerKind::Job, job);
                for pod in owned.get(&id).into_iter().flatten() {
                    if pod.is_active() {
                        changes.deleted.push(pod.key.clone());
                    } else if !has_failed && pod.has_ended() {
                        store.pods.delete(&pod.key);
                    }
                }
                match self.by_key.get_mut(&id).filter(|_| has_failed) {
                    Some(job) => job.pods.finish(),
                    None => _ = self.by_key.remove(&id),
                }
            }
        }
    }

    /// Whether there is a controller of this kind and name.
    pub fn contains(&self, kind: ControllerKind, key: &ObjectKey) -> bool {
        self.by_key.contains_key(&(kind, key.clone()))
    }

    /// Namespaces and names of all controllers.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &ObjectKey> {
        self.by_key.keys().map(|(_, key)| key)
    }

    /// The Jobs that have failed in the simulation, and why.
    pub(crate) fn failed_jobs(&self) -> impl Iterator<Item = (&Controller, JobFailure)> {
        let controllers = self.by_key.values();
        controllers.filter_map(|controller| Some((controller, controller.pods.failure()?)))
    }

    /// Remembers that the scheduler evicts a pod: it has the condition `DisruptionTarget` when it ends.
    pub(crate) fn evict(&mut self, pod: ObjectKey) {
        self.evicted.insert(pod);
    }

    /// Removes and returns the problems found so far.
    pub fn take_problems(&mut self) -> Vec<FactError> {
        std::mem::take(&mut self.broken)
    }

    /// When the youngest controller was created.
    pub(crate) fn last_created(&self) -> Option<Timestamp> {
        let sets = self.job_sets.values();
        let sets = sets.filter_map(|(set, _)| Some(set.metadata.creation_timestamp.as_ref()?.0));
        self.by_key.values().map(|controller| controller.created).chain(sets).max()
    }

    /// The next time at which a controller does something without a change of its pods.
    pub(crate) fn next_change(&self) -> Option<Timestamp> {
        self.by_key.values().filter_map(|controller| controller.pods.next_change()).min()
    }

    /// Changes the creation time of the controller or JobSet of this name, if there is one.
    pub(crate) fn redate(&mut self, kind: &str, key: &ObjectKey, created: Timestamp) {
        let id = ControllerKind::parse(kind).map(|kind| (kind, key.clone()));
        if let Some(controller) = id.and_then(|id| self.by_key.get_mut(&id)) {
            controller.created = created;
        }
        if let Some((job_set, _)) = self.job_sets.get_mut(key).filter(|_| kind == "JobSet") {
            job_set.metadata.creation_timestamp = Some(Time(created));
        }
    }

    /// Creates missing pods, oldest controller first, and lists pods to stop.
    pub(crate) fn run(&mut self, store: &mut Store, now: Timestamp) -> Changes {
        self.create_jobs(now);
        if self.by_key.is_empty() {
            return Changes::default();
        }
        let mut owned = self.owned_pods(store);
        let delegating = self.deployments_with_sets();
        let mut order: Vec<(Timestamp, ObjectKey, ControllerKind)> = self
            .by_key
            .values()
            .map(|controller| (controller.created, controller.key.clone(), controller.kind))
            .collect();
        order.sort();
        let mut changes = Changes::default();
        for (_, key, kind) in order {
            let id = (kind, key);
            if delegating.contains(&id.1) && kind == ControllerKind::Deployment {
                continue;
            }
            let pods = owned.remove(&id).unwrap_or_default();
            let Some(controller) = self.by_key.get_mut(&id) else { continue };
            let plan = controller.pods.plan(&controller.key, &pods, &self.evicted, store, now);
            for pod in plan.delete {
                if plan.replaces {
                    store.pods.delete(&pod);
                } else {
                    changes.deleted.push(pod);
                }
            }
            for new in plan.create {
                let pod = controller.make_pod(&new, store, now);
                controller.make_claims(&new, store);
                if let Err(error) = store.apply(&pod) {
                    self.broken.push(error);
                    break;
                }
                let key = ObjectKey { namespace: id.1.namespace.clone(), name: new.name };
                changes.created.push((key, controller.template.timer));
            }
        }
        self.restart_job_sets(store, &mut changes);
        self.publish_jobs(store);
        // Those that are terminating may be seen to end later.
        self.evicted.retain(|pod| store.pods.get(pod).is_some());
        changes
    }

    /// Stores what the scheduler knows of Jobs.
    fn publish_jobs(&self, store: &mut Store) {
        for facts in self.by_key.values().filter_map(Controller::batch_job) {
            if store.batch_jobs.get(&facts.key).is_none_or(|known| **known != facts) {
                store.put(facts);
            }
        }
    }

    /// Adds the Jobs of JobSets that are not there yet.
    fn create_jobs(&mut self, now: Timestamp) {
        for (key, (job_set, run)) in &self.job_sets {
            if run.has_failed {
                continue;
            }
            for job in jobs_of(key, job_set, now) {
                match job {
                    Ok(job) => {
                        let id = (ControllerKind::Job, job.key.clone());
                        self.by_key.entry(id).or_insert(job);
                    }
                    Err(error) if self.broken.contains(&error) => {}
                    Err(error) => self.broken.push(error),
                }
            }
        }
    }

    /// Deployments whose ReplicaSets are known: these create the pods.
    fn deployments_with_sets(&self) -> BTreeSet<ObjectKey> {
        let sets = self.by_key.values().filter(|c| c.kind == ControllerKind::ReplicaSet);
        let owners = sets.filter_map(|set| {
            let namespace = set.key.namespace.clone();
            Some(ObjectKey { namespace, name: set.owner.clone()? })
        });
        owners.collect()
    }

    /// The pods of each controller.
    fn owned_pods(&self, store: &Store) -> BTreeMap<Id, Vec<OwnedPod>> {
        let by_uid: BTreeMap<(&Name, &Name), &Controller> = self
            .by_key
            .values()
            .map(|controller| ((&controller.key.namespace, &controller.uid), controller))
            .collect();
        let mut owned: BTreeMap<Id, Vec<OwnedPod>> = BTreeMap::new();
        for facts in store.pods.values() {
            let Some(owner) = &facts.controller else { continue };
            let namespace = &facts.key.namespace;
            let by_uid = by_uid.get(&(namespace, &owner.uid)).copied();
            let named = || self.by_name(&owner.kind, namespace, &owner.name);
            let Some(controller) = by_uid.or_else(named) else { continue };
            let pod = OwnedPod {
                key: facts.key.clone(),
                status: facts.status,
                index: pod_index(&controller.key, facts),
            };
            owned.entry((controller.kind, controller.key.clone())).or_default().push(pod);
        }
        owned
    }

    /// The controller of this name, if its manifest gives no uid that would tell it from another.
    fn by_name(&self, kind: &str, namespace: &Name, name: &Name) -> Option<&Controller> {
        let kind = ControllerKind::parse(kind)?;
        let find = |kind, name: &str| {
            let key = ObjectKey::new(namespace.clone(), name);
            self.by_key.get(&(kind, key))
        };
        let found =
            find(kind, name).filter(|controller| *controller.uid == controller.key.to_string());
        if kind != ControllerKind::ReplicaSet {
            return found;
        }
        // A ReplicaSet that is not in the input, and is named after its Deployment and a hash.
        let of_deployment = || find(ControllerKind::Deployment, name.rsplit_once('-')?.0);
        found.or_else(of_deployment)
    }
}
