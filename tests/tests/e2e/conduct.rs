//! What it does to the API server: no more than it may, no less than its role says, and not again
//! and again.

use std::{cell::Cell, collections::BTreeSet, fs};

use hyper::Method;
use kube_batch_testbed::{audit::AuditEvent, cluster::Options};
use kube_batch_tests::build::root;
use serde_json::{Value, json};

use crate::{
    bed::{Bed, NAMESPACE, SCHEDULER, SYSTEM, group, job, nodes, priority_class, queue},
    objects::{claim, make_local_volume, old_group, with_claim},
    proxy::{Fate, Proxy},
};

/// Group, resource with its subresource, and verb, as a role has them.
type Right = (String, String, String);

fn calls(bed: &Bed) -> Vec<AuditEvent> {
    let mut events = bed.plane.audit_events().expect("an audit log");
    events.retain(|event| event.user == SCHEDULER && !event.resource.is_empty());
    events
}

/// What a call asks for.
fn right(call: &AuditEvent) -> Right {
    // `/api/v1/…` or `/apis/GROUP/VERSION/…`
    let mut parts = call.uri.split('/').skip(1);
    let group = match parts.next() {
        Some("apis") => parts.next().unwrap_or_default(),
        _ => "",
    };
    let resource = match &*call.subresource {
        "" => call.resource.clone(),
        subresource => format!("{}/{subresource}", call.resource),
    };
    (group.to_owned(), resource, call.verb.clone())
}

/// What `deploy/rbac.yaml` allows the scheduler.
fn allowed() -> BTreeSet<Right> {
    let text = fs::read_to_string(root().join("deploy/rbac.yaml")).expect("the roles");
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text).expect("the roles are YAML");
    let texts = |rule: &Value, key: &str| -> Vec<String> {
        let list = rule[key].as_array().expect("a list");
        list.iter().map(|text| text.as_str().expect("a text").to_owned()).collect()
    };
    let mut allowed = BTreeSet::new();
    for rule in documents.iter().filter_map(|document| document["rules"].as_array()).flatten() {
        for group in texts(rule, "apiGroups") {
            for resource in texts(rule, "resources") {
                for verb in texts(rule, "verbs") {
                    allowed.insert((group.clone(), resource.clone(), verb));
                }
            }
        }
    }
    allowed
}

/// Starts a scheduler, and another through the proxy, which stays.
fn start(bed: &mut Bed, proxy: &Proxy) {
    // The default queue is of the older API group, and of the newer where that is not served.
    let has_default_queue = |bed: &Bed, group: &str| {
        let kind = format!("queues.{group}");
        bed.eventually(&format!("{kind} has a default"), || {
            bed.kubectl(["get", &kind, "default"]).map(drop)
        });
    };
    bed.schedule(&[]);
    has_default_queue(bed, "scheduling.incubator.k8s.io");
    assert_eq!(bed.take(0).terminate(), Some(0));
    bed.kubectl(["delete", "queues.scheduling.incubator.k8s.io", "default"]).expect("deleted");
    bed.schedule(&["--leader-elect", &format!("--lock-object-namespace={SYSTEM}"), &proxy.flag()]);
    has_default_queue(bed, "scheduling.sigs.dev");
}

/// Volumes of both kinds, groups and queues of both API groups, a victim, somebody who waits.
fn make_work(bed: &Bed) {
    make_local_volume(bed, "node-00001");
    for (name, class) in [("local", "local"), ("made", "first-consumer")] {
        bed.apply(&claim(name, class));
        bed.apply(&with_claim(job(name, 1, "1"), name));
    }
    bed.apply(&queue("new", 1));
    let mut old = queue("old", 1);
    old["apiVersion"] = json!("scheduling.incubator.k8s.io/v1alpha1");
    bed.apply(&old);
    let mut local = old_group("local", 1);
    local["spec"]["queue"] = json!("old");
    bed.apply(&local);
    bed.apply(&group("made", 1));
    bed.runs("local", 1);
    bed.runs("made", 1);
    let mut victims = group("victims", 1);
    victims["spec"]["queue"] = json!("new");
    bed.apply(&victims);
    bed.apply(&job("victims", 3, "1"));
    bed.runs("victims", 2);
    let mut important = group("important", 1);
    important["spec"] = json!({"minMember": 1, "queue": "new", "priorityClassName": "high"});
    bed.apply(&important);
    bed.apply(&job("important", 1, "1"));
    bed.runs("important", 1);
    bed.eventually("statuses are written", || {
        let pods = bed.list("pods");
        let says_why = |pod: &Value| pod["status"]["conditions"][0]["reason"] == "Unschedulable";
        if pods.iter().any(says_why) { Ok(()) } else { Err("nobody says why it waits".to_owned()) }
    });
}

#[test]
fn its_role_allows_what_it_does_and_nothing_else() {
    let options = Options { audit: true, ..Options::default() };
    let mut bed = Bed::with(options, &nodes(2, "2"));
    let proxy = Proxy::start(&bed.plane);
    // A server that cannot stream lists, so that they are asked for; and one lost answer, so that
    // the pod is looked at again.
    let mut n_bindings = 0;
    proxy.rule(move |asked| {
        if asked.uri.query().is_some_and(|query| query.contains("sendInitialEvents=true")) {
            return Fate::Answer(400);
        }
        let path = asked.uri.path();
        if asked.method == Method::POST && path.contains("incubator") && path.ends_with("/queues") {
            return Fate::Answer(404);
        }
        if !path.ends_with("/binding") {
            return Fate::Pass;
        }
        n_bindings += 1;
        if n_bindings == 1 { Fate::LoseAnswer } else { Fate::Pass }
    });
    bed.apply(&priority_class("high", 1000));
    start(&mut bed, &proxy);
    make_work(&bed);

    // The log has a watch when it ends.
    proxy.cut();
    let allowed = allowed();
    let refused: Vec<AuditEvent> =
        calls(&bed).into_iter().filter(|call| call.code == 403 || call.code == 401).collect();
    assert!(refused.is_empty(), "{refused:?}");
    bed.eventually("every right is used", || {
        let used: BTreeSet<Right> = calls(&bed).iter().map(right).collect();
        let unused: Vec<&Right> = allowed.difference(&used).collect();
        if unused.is_empty() { Ok(()) } else { Err(format!("{unused:?}")) }
    });
    let used: BTreeSet<Right> = calls(&bed).iter().map(right).collect();
    let beyond: Vec<&Right> = used.difference(&allowed).collect();
    assert!(beyond.is_empty(), "{beyond:?}");
}

/// More than there are writes at once.
const N_WAITING: usize = 60;

#[test]
fn who_waits_is_told_of_once() {
    let options = Options { audit: true, ..Options::default() };
    let mut bed = Bed::with(options, &nodes(2, "2"));
    bed.schedule(&[]);
    bed.apply(&group("too-big", N_WAITING));
    bed.apply(&job("too-big", N_WAITING, "2"));
    // Cycles come one upon the other from the beginning, while what they have to tell is sent.
    let nth = Cell::new(0);
    let disturb = || {
        nth.set(nth.get() + 1);
        let label = format!("nth={}", nth.get());
        bed.kubectl(["label", "node", "node-00000", "--overwrite", &label]).expect("a label");
    };
    bed.eventually("it says why it waits", || {
        disturb();
        let status = bed.get("podgroups.scheduling.sigs.dev", "too-big")["status"].to_string();
        if status.contains("Insufficient cpu") { Ok(()) } else { Err(status) }
    });
    let n_writes = |resource: &str| {
        calls(&bed).iter().filter(|call| call.resource == resource && call.verb != "watch").count()
    };
    let cycles = || bed.scheduler(0).metric("kube_batch_cycles_total");
    let (before, events, pods, groups) =
        (cycles(), n_writes("events"), n_writes("pods"), n_writes("podgroups"));
    while cycles() < before + 60.0 {
        disturb();
    }
    // Each member told once; a count that settles late may be one more write each.
    let some = |before: usize| before.max(N_WAITING) + 3;
    assert!(n_writes("events") <= some(events), "{} events", n_writes("events"));
    assert!(n_writes("pods") <= some(pods), "{} writes to pods", n_writes("pods"));
    assert!(n_writes("podgroups") <= groups.max(1) + 1, "{} to groups", n_writes("podgroups"));
    let told: Vec<Value> = bed.list("events");
    let of_pods = told.iter().filter(|event| event["reason"] == "FailedScheduling").count();
    assert_eq!(of_pods, N_WAITING, "one for each");
    assert_eq!(
        bed.kubectl(["get", "pods", "--namespace", NAMESPACE, "-o", "name"])
            .map(|text| text.lines().count()),
        Ok(N_WAITING)
    );
}
