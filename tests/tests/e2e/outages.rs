//! Failures of the API server and of the connections to it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use kube_batch_testbed::cluster::{Options, Server};
use serde_json::Value;

use crate::{
    bed::{Bed, SCHEDULER, group, job, nodes},
    proxy::{Handling, Proxy},
};

/// Asserts that no pod was bound twice, even if responses were lost, and that `n_pods` are bound.
pub(crate) fn assert_bound_once(bed: &Bed, n_pods: usize) {
    let mut n_bindings: BTreeMap<String, u32> = BTreeMap::new();
    for event in bed.plane.audit_events().expect("an audit log") {
        // The log has no status for a client that has disconnected.
        if event.user == SCHEDULER && event.subresource == "binding" && event.code == 201 {
            *n_bindings.entry(event.name).or_default() += 1;
        }
    }
    assert!(n_bindings.values().all(|n| *n == 1), "{n_bindings:?}");
    let pods = bed.list("pods");
    let is_bound = |pod: &&Value| pod["spec"]["nodeName"].is_string();
    assert_eq!(pods.iter().filter(is_bound).count(), n_pods);
}

fn audited(n_nodes: usize) -> (Bed, Proxy) {
    let bed =
        Bed::with_options(Options { audit: true, ..Options::default() }, &nodes(n_nodes, "8"));
    let proxy = Proxy::start(&bed.plane);
    (bed, proxy)
}

/// Creates gangs of ten pods.
fn create_gangs(bed: &Bed, names: &[&str]) {
    for name in names {
        bed.apply(&group(name, 10));
        bed.apply(&job(name, 10, "1"));
    }
}

fn wait_until_running(bed: &Bed, names: &[&str]) {
    for name in names {
        bed.wait_until_running(name, 10);
    }
}

#[test]
fn scheduling_continues_after_the_api_server_restarts() {
    let mut bed = Bed::with_options(Options { audit: true, ..Options::default() }, &nodes(6, "8"));
    bed.start_scheduler(&[]);
    create_gangs(&bed, &["before"]);
    wait_until_running(&bed, &["before"]);
    create_gangs(&bed, &["during"]);
    // Probably while the pods of the second gang are being bound.
    bed.plane.stop(Server::ApiServer).expect("the API server is killed");
    thread::sleep(Duration::from_secs(5));
    assert_eq!(bed.scheduler(0).get("/healthz").0, 200, "the process keeps running");
    bed.plane.restart(Server::ApiServer).expect("the API server restarts");
    create_gangs(&bed, &["after"]);
    wait_until_running(&bed, &["before", "during", "after"]);
}

#[test]
fn the_scheduler_recovers_from_rejected_writes_and_lost_responses() {
    let (mut bed, proxy) = audited(10);
    // A fixed mix: every failure occurs early, and no request fails twice in the same way.
    let handlings = [
        Handling::Forward,
        Handling::Respond(429),
        Handling::LoseResponse,
        Handling::Forward,
        Handling::Respond(500),
        Handling::Disconnect,
        Handling::Forward,
        Handling::Respond(503),
        Handling::LoseResponse,
        Handling::Forward,
        Handling::Forward,
    ];
    let mut nth = 0;
    proxy.rule(move |request| {
        if !request.is_write() {
            return Handling::Forward;
        }
        nth += 1;
        handlings[nth % handlings.len()]
    });
    bed.start_scheduler(&[&proxy.flag()]);
    let names = ["a", "b", "c", "d", "e", "f"];
    create_gangs(&bed, &names);
    wait_until_running(&bed, &names);
    assert_bound_once(&bed, 60);
    assert!(bed.scheduler(0).metric("kube_batch_write_retries_total") > 0.0);
    bed.eventually("the phase of every group is Running", || {
        let groups = bed.list("podgroups.scheduling.sigs.dev");
        let is_running = |group: &&Value| group["status"]["phase"] == "Running";
        let n_running = groups.iter().filter(is_running).count();
        if n_running == names.len() { Ok(()) } else { Err(format!("{n_running} are running")) }
    });
}

#[test]
fn scheduling_continues_over_broken_connections() {
    let (mut bed, proxy) = audited(10);
    let versions = Arc::new(Mutex::new(BTreeSet::new()));
    let seen = Arc::clone(&versions);
    proxy.rule(move |request| {
        let is_binding = request.uri.path().ends_with("/binding");
        let kind = if is_binding {
            "binding"
        } else if request.is_watch() {
            "watch"
        } else {
            "other"
        };
        seen.lock().expect("no thread panics").insert((kind, format!("{:?}", request.version)));
        Handling::Forward
    });
    bed.start_scheduler(&[&proxy.flag()]);
    let names = ["a", "b", "c", "d", "e", "f"];
    for name in names {
        create_gangs(&bed, &[name]);
        thread::sleep(Duration::from_millis(150));
        proxy.disconnect_all();
    }
    wait_until_running(&bed, &names);
    assert_bound_once(&bed, 60);
    let versions = versions.lock().expect("no thread panics");
    let versions_of = |wanted| -> Vec<&str> {
        let of_kind = versions.iter().filter(|(kind, _)| *kind == wanted);
        of_kind.map(|(_, version)| version.as_str()).collect()
    };
    assert_eq!(
        (versions_of("binding"), versions_of("watch")),
        (vec!["HTTP/2.0"], vec!["HTTP/1.1"])
    );
}

#[test]
fn expired_watches_list_again() {
    let (mut bed, proxy) = audited(4);
    // No pod may be bound to this node after it is deleted but before the scheduler knows that.
    bed.kubectl(["cordon", "node-00003"]).expect("cordoned");
    bed.start_scheduler(&[&proxy.flag()]);
    create_gangs(&bed, &["before", "deleted"]);
    wait_until_running(&bed, &["before", "deleted"]);

    // Objects change while the scheduler cannot reach the API server.
    proxy.rule(|_| Handling::Disconnect);
    proxy.disconnect_all();
    bed.kubectl(["delete", "job", "deleted", "--namespace", crate::bed::NAMESPACE])
        .expect("deleted");
    bed.kubectl(["delete", "node", "node-00003"]).expect("deleted");
    create_gangs(&bed, &["new"]);
    thread::sleep(Duration::from_secs(3));
    // The API server no longer has these changes: a watch cannot continue without a new list.
    let mut listed = BTreeSet::new();
    proxy.rule(move |request| {
        let path = request.uri.path().to_owned();
        let lists = request.uri.query().is_some_and(|query| query.contains("sendInitialEvents"));
        if lists {
            listed.insert(path.clone());
        }
        let is_refused = request.is_watch() && !listed.contains(&path);
        if is_refused { Handling::Respond(410) } else { Handling::Forward }
    });
    bed.wait_until_running("new", 10);
    bed.eventually("the snapshot has no deleted nodes", || {
        let nodes = bed.scheduler(0).metric("kube_batch_snapshot_objects{kind=\"nodes\"}");
        if nodes == 3.0 { Ok(()) } else { Err(format!("{nodes} nodes")) }
    });
}
