//! What the admission policy checks, and what the scheduler reads, in every kind of object that names a queue.

use std::collections::BTreeMap;

use kube_batch_api::{
    api_version::ApiVersion,
    facts::{
        composite::CompositeFacts,
        metadata::MetadataPrefixes,
        pod::{Interner, TaskFacts},
    },
};
use serde_json::{Value, json};

use crate::{
    bed::{Bed, NAMESPACE, group, nodes},
    other_groups::{bed_with_own_groups, install_other_definitions},
    users::{bind_in_namespace, let_use},
};

/// Where an object may name a queue. `None`: the field is absent.
#[derive(Clone, Copy, Debug)]
struct Named {
    label: Option<&'static str>,
    annotation: Option<&'static str>,
    spec: Option<&'static str>,
}

impl Named {
    /// Every combination of absent, empty, a queue and another one.
    fn all() -> impl Iterator<Item = Self> {
        const VALUES: [Option<&str>; 4] = [None, Some(""), Some("training"), Some("research")];
        VALUES.into_iter().flat_map(|label| {
            VALUES.into_iter().flat_map(move |annotation| {
                VALUES.into_iter().map(move |spec| Self { label, annotation, spec })
            })
        })
    }

    fn write(self, object: &mut Value, has_spec_queue: bool) {
        let key = "scheduling.sigs.dev/queue";
        let fields = [("labels", self.label), ("annotations", self.annotation)];
        for (map, value) in fields.into_iter().filter_map(|(map, value)| Some((map, value?))) {
            object["metadata"][map][key] = value.into();
        }
        if let Some(queue) = self.spec.filter(|_| has_spec_queue) {
            object["spec"]["queue"] = queue.into();
        }
    }
}

/// The queue that the scheduler reads in an object.
fn queue_read(object: &Value) -> Option<String> {
    let (kind, api) = (object["kind"].as_str(), object["apiVersion"].as_str());
    let name = match (kind, ApiVersion::parse(api.expect("an apiVersion"))) {
        (Some("PodGroup"), Some(version)) => {
            let object = serde_json::from_value(object.clone()).expect("an object");
            let prefixes = MetadataPrefixes::default();
            version.dialect().read_group(&object, &prefixes).expect("facts").queue
        }
        (Some("CompositePodGroup"), _) => {
            let object = serde_json::from_value(object.clone()).expect("an object");
            CompositeFacts::from_composite(&object).expect("facts").queue
        }
        _ => {
            let mut pod = object.clone();
            pod["metadata"]["uid"] = "u".into();
            let pod = serde_json::from_value(pod).expect("a pod");
            let facts = TaskFacts::from_pod(&pod, &mut Interner::default()).expect("facts");
            facts.annotations.as_ref().and_then(|annotations| annotations.queue.clone())
        }
    };
    name.map(|name| name.to_string())
}

#[test]
fn the_policy_checks_the_queue_that_the_scheduler_uses() {
    let bed = bed_with_own_groups(false, &nodes(1, "1"));
    bind_in_namespace(&bed, "alice", "edit");
    bed.install_component("admission");
    install_other_definitions(&bed);
    let_use(&bed, "alice", "training", "high");
    let_use(&bed, &format!("system:serviceaccount:{NAMESPACE}:default"), "training", "high");
    const KINDS: [&str; 4] = [
        "podgroups.scheduling.k8s.io",
        "podgroups.scheduling.x-k8s.io",
        "podgroups.scheduling.volcano.sh",
        "compositepodgroups.scheduling.k8s.io",
    ];
    let resources = format!("--resource={}", KINDS.join(","));
    bed.kubectl(["create", "clusterrole", "others", "--verb=get,create,patch", &resources])
        .expect("a role");
    bed.kubectl(["create", "clusterrolebinding", "others", "--clusterrole=others", "--group=team"])
        .expect("a binding");
    let policy = json!({"gang": {"minCount": 1}});
    let reference = json!({"workloadName": "w", "templateName": "t"});
    let plain = |api: &str, kind: &str, spec: Value| {
        json!({
            "apiVersion": api, "kind": kind, "metadata": {"namespace": NAMESPACE}, "spec": spec,
        })
    };
    let of_kubernetes = json!({"schedulingPolicy": policy, "workloadRef": reference});
    let composite =
        json!({"schedulingPolicy": {"gang": {"minGroupCount": 1}}, "workloadRef": reference});
    let pod = json!({"containers": [{"name": "c", "image": "i"}]});
    let bases = [
        (plain("scheduling.sigs.dev/v1alpha2", "PodGroup", json!({"minMember": 1})), true),
        (plain("scheduling.volcano.sh/v1beta1", "PodGroup", json!({"minMember": 1})), true),
        (plain("scheduling.x-k8s.io/v1alpha1", "PodGroup", json!({"minMember": 1})), false),
        (plain("scheduling.k8s.io/v1beta1", "PodGroup", of_kubernetes), false),
        (plain("scheduling.k8s.io/v1alpha3", "CompositePodGroup", composite), false),
        (plain("v1", "Pod", pod), false),
    ];
    // The API server takes a moment to enforce a new policy, and to know new definitions.
    bed.eventually("the policy is enforced", || {
        let mut group = group("early", 1);
        group["spec"]["queue"] = "research".into();
        match kubectl_stdin_as(&bed, "alice", &group) {
            Err(error) if error.contains("may not use the queue") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
    for (base, has_spec_queue) in bases {
        bed.eventually("the kind is known", || {
            let mut known = base.clone();
            known["metadata"]["name"] = "known".into();
            if has_spec_queue {
                known["spec"]["queue"] = "training".into();
            }
            kubectl_stdin_as(&bed, "alice", &known)
        });
        let (mut expected, mut objects) = (BTreeMap::new(), Vec::new());
        for (n, named) in Named::all().enumerate() {
            let (name, mut object) = (format!("o{n:02}x"), base.clone());
            object["metadata"]["name"] = name.clone().into();
            named.write(&mut object, has_spec_queue);
            let mut stored = object.clone();
            if base["apiVersion"] == "scheduling.volcano.sh/v1beta1" && named.spec.is_none() {
                // Its definition has a default.
                stored["spec"]["queue"] = "default".into();
            }
            let is_refused = queue_read(&stored).is_some_and(|queue| queue != "training");
            expected.insert(name, (is_refused, named));
            objects.push(object);
        }
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        let refusals = kubectl_stdin_as(&bed, "alice", &list).expect_err("some are refused");
        for (name, (is_refused, named)) in expected {
            let quoted = format!("\"{name}\"");
            let mut lines = refusals.lines().filter(|line| line.contains(&quoted));
            let found = lines.any(|line| line.contains("may not use the queue"));
            assert_eq!(found, is_refused, "{} {named:?}: {refusals}", base["apiVersion"]);
        }
    }
}

/// Creates objects on trial as a user, and returns what is refused.
fn kubectl_stdin_as(bed: &Bed, user: &str, object: &Value) -> Result<(), String> {
    let trial = ["create", "--dry-run=server", "--filename", "-"];
    let args = ["--as", user, "--as-group", "team"].into_iter().chain(trial);
    let created = bed.plane.kubectl_stdin(args, &object.to_string());
    created.map(drop).map_err(|error| error.to_string())
}
