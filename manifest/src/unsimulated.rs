//! Annotations that a controller or a webhook acts on, and the simulation does not.
//!
//! In a cluster the pods would have other fields, come in another order, or be in another PodGroup.
//!
//! Source: `api/jobset/v1alpha2/jobset_types.go` of JobSet 0.12, `api/leaderworkerset/v1/leaderworkerset_types.go` of
//! LeaderWorkerSet 0.10, `pkg/controllers/podgroup/pg_controller_handler.go` of Volcano 1.15, and the Job controller
//! of Kubernetes 1.37.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube_batch_api::membership::named_groups;
use kube_batch_model::selector::problem::SelectorProblem as Problem;

use crate::{object::Object, pods::pod_parts};

/// Annotations by key, with what is done because of them.
type Effects = &'static [(&'static str, &'static str)];

/// In pods and their templates.
const OF_PODS: Effects = &[
    (
        "alpha.jobset.sigs.k8s.io/exclusive-topology",
        "JobSet adds affinity to the first pod of a Job, and creates the others once that has a node",
    ),
    (
        "alpha.jobset.sigs.k8s.io/node-selector",
        "JobSet adds a node selector and a toleration to pods",
    ),
    (
        "leaderworkerset.sigs.k8s.io/exclusive-topology",
        "LeaderWorkerSet adds affinity to the leader of a group, and creates its workers once that has a node",
    ),
    (
        "leaderworkerset.sigs.k8s.io/subgroup-exclusive-topology",
        "LeaderWorkerSet adds affinity to pods",
    ),
];

/// In pods and templates that name no PodGroup.
const OF_PODS_WITHOUT_GROUP: Effects = &[(
    "scheduling.volcano.sh/queue-name",
    "the controllers of Volcano create a PodGroup in this queue for pods of its scheduler name",
)];

/// In the controllers of pods.
const OF_CONTROLLERS: Effects = &[
    (
        "scheduling.volcano.sh/group-min-member",
        "the controllers of Volcano create a PodGroup with this minimum for pods of its scheduler name",
    ),
    ("scheduling.k8s.io/group-template-name", "the Job controller may create a PodGroup"),
];

/// What may be done because of other annotations of JobSet in its own objects.
const OF_JOB_SET: &str = "JobSet may act on it";

/// The annotations of an object, and of its pod templates, that have an effect in a cluster and none in the
/// simulation, with their paths in the object. Pods with a uid have been created, and are as they are.
pub fn unsimulated_annotations(object: &Object) -> Vec<Problem> {
    let mut found = Vec::new();
    match object {
        Object::JobSet(set) => {
            let jobs = set.spec.replicated_jobs.iter().enumerate().filter_map(|(at, job)| {
                let prefix = format!("spec.replicatedJobs[{at}].template.");
                Some((prefix, job.template.metadata.as_ref()?))
            });
            for (prefix, meta) in [(String::new(), &set.metadata)].into_iter().chain(jobs) {
                found.extend(of_job_set(&prefix, meta));
            }
        }
        Object::Job(_) | Object::ReplicaSet(_) | Object::Deployment(_) | Object::StatefulSet(_) => {
            found.extend(listed("", object.meta(), OF_CONTROLLERS));
        }
        _ => {}
    }
    if matches!(object, Object::Pod(pod) if pod.metadata.uid.is_some()) {
        return found;
    }
    for part in pod_parts(object) {
        let Some(meta) = part.metadata else { continue };
        found.extend(listed(&part.prefix, meta, OF_PODS));
        if named_groups(meta, part.spec).next().is_none() {
            found.extend(listed(&part.prefix, meta, OF_PODS_WITHOUT_GROUP));
        }
    }
    found
}

/// The annotations of this list.
fn listed(prefix: &str, meta: &ObjectMeta, effects: Effects) -> Vec<Problem> {
    let has = |(key, _): &&(&str, &str)| annotations(meta).contains_key(*key);
    effects.iter().filter(has).map(|(key, effect)| problem(prefix, key, effect)).collect()
}

/// All annotations that are named after JobSet: in its own objects, a user has written them.
fn of_job_set(prefix: &str, meta: &ObjectMeta) -> Vec<Problem> {
    let domain = |key: &str| key.split_once('/').map(|(domain, _)| domain.to_owned());
    let is_of_job_set =
        |domain: &str| domain == "jobset.sigs.k8s.io" || domain.ends_with(".jobset.sigs.k8s.io");
    let keys = annotations(meta).keys();
    let keys = keys.filter(|key| domain(key).is_some_and(|domain| is_of_job_set(&domain)));
    keys.map(|key| {
        let known = OF_PODS.iter().find(|(own, _)| own == key);
        problem(prefix, key, known.map_or(OF_JOB_SET, |(_, effect)| effect))
    })
    .collect()
}

fn annotations(meta: &ObjectMeta) -> &BTreeMap<String, String> {
    const NONE: &BTreeMap<String, String> = &BTreeMap::new();
    meta.annotations.as_ref().unwrap_or(NONE)
}

fn problem(prefix: &str, key: &str, effect: &str) -> Problem {
    let path = format!("{prefix}metadata.annotations[{key}]");
    Problem::new(path, format!("has no effect in the simulation; in a cluster, {effect}"))
}

#[cfg(test)]
mod tests {
    use kube_batch_yaml::{Limits, Problems, parse};

    use super::*;
    use crate::object::{Kind, Served};

    fn paths(kind: Kind, text: &str) -> Vec<String> {
        let node = parse(text, &Limits::default()).expect("YAML");
        let object = Object::read(kind, Served::BuiltIn, &node, &Problems::default());
        let found = unsimulated_annotations(&object.expect("an object"));
        found.into_iter().map(|problem| problem.path).collect()
    }

    #[test]
    fn annotations_of_a_job_set_are_found_wherever_it_reads_them() {
        let (exclusive, selector) = (
            "alpha.jobset.sigs.k8s.io/exclusive-topology",
            "alpha.jobset.sigs.k8s.io/node-selector",
        );
        let text = format!(
            "metadata: {{name: j, annotations: {{{exclusive}: rack, {selector}: 'true', \
             jobset.sigs.k8s.io/new: x, example.com/a: b}}}}\n\
             spec: {{replicatedJobs: [{{name: w, template: {{metadata: {{annotations: {{{exclusive}: rack}}}}, \
             spec: {{template: {{metadata: {{annotations: {{{exclusive}: rack}}}}, spec: {{containers: []}}}}}}}}}}]}}"
        );
        let job = "spec.replicatedJobs[0].template.";
        assert_eq!(
            paths(Kind::JobSet, &text),
            [
                format!("metadata.annotations[{exclusive}]"),
                format!("metadata.annotations[{selector}]"),
                "metadata.annotations[jobset.sigs.k8s.io/new]".to_owned(),
                format!("{job}metadata.annotations[{exclusive}]"),
                format!("{job}spec.template.metadata.annotations[{exclusive}]"),
            ]
        );
    }

    #[test]
    fn annotations_in_templates_and_controllers_are_found_and_not_those_of_pods_that_exist() {
        let exclusive = "leaderworkerset.sigs.k8s.io/exclusive-topology";
        let subgroup = "leaderworkerset.sigs.k8s.io/subgroup-exclusive-topology";
        let meta = format!("annotations: {{{exclusive}: rack, {subgroup}: rack}}");
        let template = format!("{{metadata: {{{meta}}}, spec: {{containers: []}}}}");
        let min_member = "scheduling.volcano.sh/group-min-member";
        for kind in [Kind::Job, Kind::ReplicaSet, Kind::Deployment, Kind::StatefulSet] {
            let text = format!(
                "metadata: {{name: x, annotations: {{{min_member}: '3'}}}}\nspec: {{template: {template}}}"
            );
            assert_eq!(
                paths(kind, &text),
                [
                    format!("metadata.annotations[{min_member}]"),
                    format!("spec.template.metadata.annotations[{exclusive}]"),
                    format!("spec.template.metadata.annotations[{subgroup}]"),
                ],
                "{kind}"
            );
        }
        let pod = format!("metadata: {{name: p, {meta}}}\nspec: {{containers: []}}");
        assert_eq!(paths(Kind::Pod, &pod).len(), 2);
        let pod = pod.replace("name: p", "name: p, uid: u");
        assert_eq!(paths(Kind::Pod, &pod), [""; 0]);
    }

    #[test]
    fn the_queue_of_a_group_that_volcano_would_make_is_found_if_no_group_is_named() {
        let queue = "scheduling.volcano.sh/queue-name: q";
        let pod = |annotations: &str| {
            format!(
                "metadata: {{name: p, annotations: {{{annotations}}}}}\nspec: {{containers: []}}"
            )
        };
        assert_eq!(paths(Kind::Pod, &pod(queue)).len(), 1);
        let in_group = format!("{queue}, scheduling.k8s.io/group-name: g");
        assert_eq!(paths(Kind::Pod, &pod(&in_group)), [""; 0]);
    }
}
