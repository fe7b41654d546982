//! The admission policy, derived from the table by which the scheduler reads queues and PriorityClasses.

use kube_batch_api::{
    dialect::kinds,
    naming::{Field, Naming, POD},
};
use kube_batch_model::membership::QUEUE_LABEL;

/// The generated file: path below the root, and content.
pub(super) fn file() -> (String, String) {
    let queue = |naming: Naming| Some(naming.queue);
    let class = |naming: Naming| naming.class.field();
    let content = format!(
        r#"# Generated from the table in api/src/naming.rs by `cargo xtask codegen`; do not edit.
#
# A user who creates a PodGroup that names a queue or a PriorityClass, or changes these fields, needs the
# verb `use` on that Queue or PriorityClass. A PodGroup without the fields is always allowed: it is in
# the default queue, with the default priority. The same holds for PodGroups of the other APIs that are
# read, and for composite PodGroups; but if there is a global default PriorityClass, the API server writes it
# into those of scheduling.k8s.io that name none, and users need the verb on it. Pods that name a queue
# themselves, in the label or annotation {QUEUE_LABEL}, are mostly created by controllers:
# there the service account of the pod needs the verb.
#
# Needs Kubernetes 1.30.
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: kube-batch-podgroups
  labels:
    app.kubernetes.io/name: kube-batch
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
{rules}  # Most pods name no queue.
  matchConditions:
  - name: names-a-queue
    expression: >-
      request.resource.resource != 'pods'
      || {queue_of_pod} != ''
  variables:
  - name: isPod
    expression: "request.resource.resource == 'pods'"
  - name: kind
    expression: "request.resource.resource + (request.resource.group == '' ? '' : '.' + request.resource.group)"
  # The queue that the scheduler reads. Where it is in the metadata, it is in the label, or else, if that is empty, in
  # the annotation.
  - name: queue
    expression: >-
      {queue}
  - name: account
    expression: "variables.isPod && has(object.spec.serviceAccountName) ? object.spec.serviceAccountName : 'default'"
  # The PriorityClass that the scheduler or the API server looks up.
  - name: class
    expression: >-
      {class}
  # A change of another field needs no permission for the queue and the class that are there already.
  - name: oldQueue
    expression: >-
      oldObject == null ? '' :
      {old_queue}
  - name: oldClass
    expression: >-
      oldObject == null ? '' :
      {old_class}
  validations:
  - expression: >-
      variables.queue == '' || variables.queue == variables.oldQueue
      || variables.isPod
      || authorizer.group('scheduling.sigs.dev').resource('queues').name(variables.queue)
         .check('use').allowed()
    messageExpression: >-
      'user "' + request.userInfo.username + '" may not use the queue "' + variables.queue
      + '": the verb use on it is missing'
    reason: Forbidden
  - expression: >-
      variables.queue == '' || variables.queue == variables.oldQueue
      || !variables.isPod
      || authorizer.serviceAccount(request.namespace, variables.account)
         .group('scheduling.sigs.dev').resource('queues').name(variables.queue)
         .check('use').allowed()
    messageExpression: >-
      'service account "' + variables.account + '" may not use the queue "' + variables.queue
      + '": the verb use on it is missing'
    reason: Forbidden
  - expression: >-
      variables.class == '' || variables.class == variables.oldClass
      || authorizer.group('scheduling.k8s.io').resource('priorityclasses').name(variables.class)
         .check('use').allowed()
    messageExpression: >-
      'user "' + request.userInfo.username + '" may not use the PriorityClass "' + variables.class
      + '": the verb use on it is missing'
    reason: Forbidden
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: kube-batch-podgroups
  labels:
    app.kubernetes.io/name: kube-batch
spec:
  policyName: kube-batch-podgroups
  validationActions: [Deny]
"#,
        rules = rules(),
        queue_of_pod = indented(&text_in("object", POD.queue)),
        queue = indented(&name_in("object", queue)),
        class = indented(&name_in("object", class)),
        old_queue = indented(&name_in("oldObject", queue)),
        old_class = indented(&name_in("oldObject", class)),
    );
    ("deploy/components/admission/policy.yaml".to_owned(), content)
}

/// The rules that match the kinds of the table, one for each plural.
fn rules() -> String {
    let parts = kinds().map(|(resource, _)| resource.split_once('.').unwrap_or((resource, "\"\"")));
    let rules = by_key(parts).into_iter().map(|(plural, groups)| {
        let groups: String = groups.iter().map(|group| format!("      - {group}\n")).collect();
        format!(
            "    - apiGroups:\n{groups}      apiVersions: [\"*\"]\n      operations: [CREATE, UPDATE]\n      resources: \
             [{plural}]\n"
        )
    });
    rules.collect()
}

/// The CEL expression for the name that an object has in the field of its kind: '' if it has none. Both objects
/// of an update are read by it.
fn name_in(object: &str, field_of: impl Fn(Naming) -> Option<Field>) -> String {
    let named = kinds().filter_map(|(kind, naming)| Some((field_of(naming)?, format!("'{kind}'"))));
    let cases = by_key(named).into_iter().map(|(field, kinds)| {
        let kinds = kinds.join(",\n");
        format!("variables.kind in [\n{kinds}\n]\n? {}\n: ", text_in(object, field))
    });
    cases.chain(["''".to_owned()]).collect()
}

/// The CEL expression for what [`Field::read`] reads: '' if that is nothing.
fn text_in(object: &str, field: Field) -> String {
    match field {
        Field::Spec(name) => format!("{object}.?spec.?{name}.orValue('')"),
        Field::Metadata(key) => {
            let [label, annotation] = ["labels", "annotations"]
                .map(|map| format!("{object}.metadata.?{map}[?'{key}'].orValue('')"));
            format!("({label} != ''\n? {label}\n: {annotation})")
        }
    }
}

/// The values of each key, in the order of the first of each.
fn by_key<K: PartialEq, V>(pairs: impl Iterator<Item = (K, V)>) -> Vec<(K, Vec<V>)> {
    let mut keys: Vec<(K, Vec<V>)> = Vec::new();
    for (key, value) in pairs {
        match keys.iter_mut().find(|(known, _)| *known == key) {
            Some((_, values)) => values.push(value),
            None => keys.push((key, vec![value])),
        }
    }
    keys
}

/// An expression as it is in the YAML of the policy.
fn indented(expression: &str) -> String {
    expression.replace('\n', "\n      ")
}
