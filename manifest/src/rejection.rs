//! What an API server would reject in pods, pod templates and claims for devices, and the scheduler accepts.
//!
//! Only the rules about placement that users break. An object that breaks one is simulated all the same.
//!
//! Source: `pkg/apis/core/validation/validation.go` of Kubernetes 1.37.

mod devices;

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{Affinity, Container, PodAffinityTerm, PodSpec, TopologySpreadConstraint},
    apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::LabelSelector},
};
use kube_batch_api::read::{
    affinity::affinity_terms,
    selector::{label_selector_problem, node_affinity},
};
use kube_batch_model::{
    quantity::Quantity as Amount,
    resource::is_extended_resource,
    selector::{
        node_affinity::node_affinity_problems,
        problem::{
            SelectorProblem as Problem, is_label_key, labels_problem, preference_weight_problem,
        },
    },
};

use self::devices::device_problems;
pub use self::devices::wants_admin_access;
use crate::{object::Object, pods::pod_parts};

/// The problems of an object, and of its pod or templates, with their paths in the object.
pub fn rejections(object: &Object) -> Vec<Problem> {
    let mut found = device_problems(object);
    for part in pod_parts(object) {
        let labels = part.metadata.and_then(|meta| meta.labels.as_ref());
        let of_labels = labels.and_then(|labels| labels_problem("metadata.labels", labels));
        let of_spec = part.spec.map(spec_problems).unwrap_or_default();
        let of_spec = of_spec.into_iter().map(|problem| problem.under("spec"));
        let all = of_labels.into_iter().chain(of_spec);
        found.extend(all.map(|p| Problem::new(part.prefix.clone() + &p.path, p.message)));
    }
    found
}

fn spec_problems(spec: &PodSpec) -> Vec<Problem> {
    let selector = spec.node_selector.as_ref();
    let mut found: Vec<Problem> =
        selector.and_then(|labels| labels_problem("nodeSelector", labels)).into_iter().collect();
    let of_affinity = spec.affinity.as_ref().map(affinity_problems).unwrap_or_default();
    found.extend(of_affinity.into_iter().map(|problem| problem.under("affinity")));
    for (at, constraint) in spec.topology_spread_constraints.iter().flatten().enumerate() {
        let path = format!("topologySpreadConstraints[{at}]");
        found.extend(spread_problems(constraint).into_iter().map(|problem| problem.under(&path)));
    }
    let init = spec.init_containers.as_deref().unwrap_or_default();
    for (list, containers) in [("initContainers", init), ("containers", &spec.containers)] {
        for (at, container) in containers.iter().enumerate() {
            let path = format!("{list}[{at}].resources");
            found.extend(amount_problems(container).into_iter().map(|p| p.under(&path)));
        }
    }
    found
}

fn affinity_problems(affinity: &Affinity) -> Vec<Problem> {
    let of_nodes = affinity.node_affinity.iter().map(node_affinity);
    let of_nodes = of_nodes.flat_map(|affinity| node_affinity_problems(&affinity));
    let mut found: Vec<Problem> = of_nodes.map(|problem| problem.under("nodeAffinity")).collect();
    for term in affinity_terms(affinity) {
        let weight = term.weight;
        found.extend(weight.and_then(|w| preference_weight_problem(&term.entry_path(), w)));
        let path = term.path();
        found.extend(term_problems(term.term).into_iter().map(|problem| problem.under(&path)));
    }
    found
}

fn term_problems(term: &PodAffinityTerm) -> Vec<Problem> {
    let parts = [
        topology_key_problem(&term.topology_key),
        selector_problem("labelSelector", term.label_selector.as_ref()),
        selector_problem("namespaceSelector", term.namespace_selector.as_ref()),
    ];
    parts.into_iter().flatten().collect()
}

fn spread_problems(constraint: &TopologySpreadConstraint) -> Vec<Problem> {
    let at_least_one = |field: &str, number: i32| {
        (number < 1).then(|| Problem::new(field, format!("must be at least 1, not {number}")))
    };
    let choice = |field: &str, value: Option<&str>, choices: [&str; 2]| {
        let value = value.filter(|value| !choices.contains(value))?;
        let [one, other] = choices;
        Some(Problem::new(field, format!("must be {one} or {other}, not {value:?}")))
    };
    let policies = ["Honor", "Ignore"];
    let when = Some(&*constraint.when_unsatisfiable);
    let parts = [
        at_least_one("maxSkew", constraint.max_skew),
        constraint.min_domains.and_then(|number| at_least_one("minDomains", number)),
        topology_key_problem(&constraint.topology_key),
        choice("whenUnsatisfiable", when, ["DoNotSchedule", "ScheduleAnyway"]),
        choice("nodeAffinityPolicy", constraint.node_affinity_policy.as_deref(), policies),
        choice("nodeTaintsPolicy", constraint.node_taints_policy.as_deref(), policies),
        selector_problem("labelSelector", constraint.label_selector.as_ref()),
    ];
    parts.into_iter().flatten().collect()
}

fn topology_key_problem(key: &str) -> Option<Problem> {
    if key.is_empty() {
        return Some(Problem::new("topologyKey", "is missing"));
    }
    let message = || format!("{key:?} is not a label key");
    (!is_label_key(key)).then(|| Problem::new("topologyKey", message()))
}

fn selector_problem(path: &str, selector: Option<&LabelSelector>) -> Option<Problem> {
    selector.and_then(label_selector_problem).map(|problem| problem.under(path))
}

/// Amounts of extended resources that are not whole.
fn amount_problems(container: &Container) -> Vec<Problem> {
    let Some(resources) = &container.resources else { return Vec::new() };
    let lists = [("requests", &resources.requests), ("limits", &resources.limits)];
    let is_broken = |(name, amount): &(&String, &Quantity)| {
        // An amount that cannot be read is an error anyway.
        let parsed = amount.0.parse::<Amount>();
        is_extended_resource(name) && parsed.is_ok_and(|amount| amount.milli() % 1000 != 0)
    };
    let of_list = |(list, amounts): (&str, &Option<BTreeMap<String, Quantity>>)| {
        let (name, amount) = amounts.iter().flatten().find(is_broken)?;
        let message = format!("must be a whole number, not {}", amount.0);
        Some(Problem::new(format!("{list}[{name}]"), message))
    };
    lists.into_iter().filter_map(of_list).collect()
}

#[cfg(test)]
mod tests {
    use kube_batch_yaml::{Limits, Problems, parse};

    use super::*;
    use crate::object::{Kind, Served};

    fn problems(kind: Kind, text: &str) -> Vec<String> {
        let node = parse(text, &Limits::default()).expect("YAML");
        let object = Object::read(kind, Served::BuiltIn, &node, &Problems::default());
        let found = rejections(&object.expect("an object"));
        found.into_iter().map(|problem| format!("{}: {}", problem.path, problem.message)).collect()
    }

    #[test]
    fn what_an_api_server_would_reject_in_claims_is_found() {
        let selector =
            |expression: &str| format!("selectors: [{{cel: {{expression: '{expression}'}}}}]");
        let good = selector("device.driver == \"a\"");
        let cases: [(Kind, String, &[&str]); 5] = [
            (Kind::DeviceClass, format!("{{metadata: {{name: a}}, spec: {{{good}}}}}"), &[]),
            (
                Kind::DeviceClass,
                format!("{{metadata: {{name: a}}, spec: {{{}}}}}", selector("device.name")),
                &["spec.selectors[0].cel.expression: does not compile: ERROR: <input>:1:7: undefined field 'name'"],
            ),
            (
                Kind::ResourceClaim,
                "{metadata: {name: a}, spec: {devices: {requests: [{name: a, exactly: {count: 0}}, {name: a}]}}}".into(),
                &[
                    "spec.devices.requests[0].exactly.deviceClassName: is missing",
                    "spec.devices.requests[0].exactly.count: must be at least 1, not 0",
                    "spec.devices.requests[1].name: \"a\" is the name of another request",
                    "spec.devices.requests[1]: must have exactly or firstAvailable",
                ],
            ),
            (
                Kind::ResourceClaim,
                "{metadata: {name: a}, spec: {devices: {requests: [{name: a, exactly: {deviceClassName: gpu, allocationMode: All, count: 2}}]}}}".into(),
                &["spec.devices.requests[0].exactly.count: must not be set with mode All"],
            ),
            (
                Kind::ResourceClaimTemplate,
                format!(
                    "{{metadata: {{name: a}}, spec: {{spec: {{devices: {{requests: [{{name: a, firstAvailable: \
                     [{{name: x, deviceClassName: gpu, {good}}}, {{name: y, deviceClassName: gpu, allocationMode: Some}}]}}]}}}}}}}}"
                ),
                &["spec.spec.devices.requests[0].firstAvailable[1].allocationMode: must be ExactCount or All, not \"Some\""],
            ),
        ];
        for (kind, text, expected) in cases {
            assert_eq!(problems(kind, &text), expected, "{text}");
        }
    }

    #[test]
    fn what_an_api_server_would_reject_is_found() {
        let required = "requiredDuringSchedulingIgnoredDuringExecution";
        let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
        let spread = "topologyKey: zone, whenUnsatisfiable: ScheduleAnyway";
        let cases: [(String, &[&str]); 11] = [
            (format!("topologySpreadConstraints: [{{maxSkew: 1, minDomains: 2, {spread}}}]"), &[]),
            (
                format!("topologySpreadConstraints: [{{maxSkew: 0, minDomains: 0, {spread}}}]"),
                &[
                    "spec.topologySpreadConstraints[0].maxSkew: must be at least 1, not 0",
                    "spec.topologySpreadConstraints[0].minDomains: must be at least 1, not 0",
                ],
            ),
            (
                "topologySpreadConstraints: [{maxSkew: 1, whenUnsatisfiable: Maybe}]".into(),
                &[
                    "spec.topologySpreadConstraints[0].topologyKey: is missing",
                    "spec.topologySpreadConstraints[0].whenUnsatisfiable: must be DoNotSchedule or \
                     ScheduleAnyway, not \"Maybe\"",
                ],
            ),
            (
                format!(
                    "topologySpreadConstraints: [{{maxSkew: 1, {spread}, nodeTaintsPolicy: No, \
                     labelSelector: {{matchExpressions: [{{key: a, operator: Has}}]}}}}]"
                ),
                &[
                    "spec.topologySpreadConstraints[0].nodeTaintsPolicy: must be Honor or Ignore, \
                     not \"No\"",
                    "spec.topologySpreadConstraints[0].labelSelector.matchExpressions[0].operator: \
                     \"Has\" is not an operator of this selector",
                ],
            ),
            (
                format!("affinity: {{podAffinity: {{{required}: [{{labelSelector: {{}}}}]}}}}"),
                &["spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0]\
                   .topologyKey: is missing"],
            ),
            (
                format!(
                    "affinity: {{podAntiAffinity: {{{preferred}: [{{weight: 0, podAffinityTerm: \
                     {{topologyKey: a b}}}}]}}}}"
                ),
                &[
                    "spec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution\
                     [0].weight: must be from 1 to 100, not 0",
                    "spec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution\
                     [0].podAffinityTerm.topologyKey: \"a b\" is not a label key",
                ],
            ),
            (
                format!(
                    "affinity: {{nodeAffinity: {{{required}: {{nodeSelectorTerms: \
                     [{{matchExpressions: [{{key: a, operator: Foo}}]}}]}}}}}}"
                ),
                &["spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution\
                   .nodeSelectorTerms[0].matchExpressions[0].operator: \"Foo\" is not an operator \
                   of this selector"],
            ),
            (
                "nodeSelector: {-bad key: x}".into(),
                &["spec.nodeSelector[-bad key]: \"-bad key\" is not a label key"],
            ),
            (
                "containers: [{name: c, resources: {limits: {a.com/gpu: 0.5, cpu: 0.5}}}]".into(),
                &[
                    "spec.containers[0].resources.limits[a.com/gpu]: must be a whole number, not 0.5",
                ],
            ),
            (
                "initContainers: [{name: c, resources: {requests: {a.com/gpu: 500m}}}]".into(),
                &["spec.initContainers[0].resources.requests[a.com/gpu]: must be a whole number, \
                   not 500m"],
            ),
            ("containers: [{name: c, resources: {requests: {a.com/gpu: 2}}}]".into(), &[]),
        ];
        for (spec, expected) in cases {
            let containers = if spec.starts_with("containers") { "" } else { ", containers: []" };
            let text = format!("metadata: {{name: p}}\nspec: {{{spec}{containers}}}");
            assert_eq!(problems(Kind::Pod, &text), expected, "{spec}");
        }
    }

    #[test]
    fn templates_and_labels_are_checked_too() {
        let template = "{metadata: {labels: {a: '?'}}, spec: {containers: []}}";
        let problem = "metadata.labels[a]: \"?\" is not a label value";
        for kind in [Kind::Job, Kind::ReplicaSet, Kind::Deployment, Kind::StatefulSet] {
            let text = format!("metadata: {{name: x}}\nspec: {{template: {template}}}");
            assert_eq!(problems(kind, &text), [format!("spec.template.{problem}")], "{kind}");
        }
        let text = format!(
            "metadata: {{name: x}}\nspec: {{replicatedJobs: [{{name: j, template: {{spec: \
             {{template: {template}}}}}}}]}}"
        );
        let path = "spec.replicatedJobs[0].template.spec.template.";
        assert_eq!(problems(Kind::JobSet, &text), [format!("{path}{problem}")]);
        assert_eq!(problems(Kind::Node, "metadata: {name: n, labels: {a: '?'}}"), [""; 0]);
    }
}
