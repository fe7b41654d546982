//! Bad days of the API server and of the way to it.

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
    proxy::{Fate, Proxy},
};

/// No pod was bound twice, whatever became of the answers, and none is left.
pub(crate) fn assert_bound_once(bed: &Bed, n_pods: usize) {
    let mut n_bindings: BTreeMap<String, u32> = BTreeMap::new();
    for event in bed.plane.audit_events().expect("an audit log") {
        // Of a caller that has hung up the log knows no status.
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
    let bed = Bed::with(Options { audit: true, ..Options::default() }, &nodes(n_nodes, "8"));
    let proxy = Proxy::start(&bed.plane);
    (bed, proxy)
}

/// Gangs of ten, each of which ends up running.
fn gangs(bed: &Bed, names: &[&str]) {
    for name in names {
        bed.apply(&group(name, 10));
        bed.apply(&job(name, 10, "1"));
    }
}

fn run(bed: &Bed, names: &[&str]) {
    for name in names {
        bed.runs(name, 10);
    }
}

#[test]
fn a_server_that_comes_back_finds_a_scheduler_that_goes_on() {
    let mut bed = Bed::with(Options { audit: true, ..Options::default() }, &nodes(6, "8"));
    bed.schedule(&[]);
    gangs(&bed, &["before"]);
    run(&bed, &["before"]);
    gangs(&bed, &["during"]);
    // In the middle of it, as likely as not.
    bed.plane.stop(Server::ApiServer).expect("it is killed");
    thread::sleep(Duration::from_secs(5));
    assert_eq!(bed.scheduler(0).get("/healthz").0, 200, "the process lives on");
    bed.plane.restart(Server::ApiServer).expect("it comes back");
    gangs(&bed, &["after"]);
    run(&bed, &["before", "during", "after"]);
}

#[test]
fn refused_and_lost_writes_are_made_good() {
    let (mut bed, proxy) = audited(10);
    // A fixed mix: each kind of fate comes soon, and none twice in a row for the same call.
    let fates = [
        Fate::Pass,
        Fate::Answer(429),
        Fate::LoseAnswer,
        Fate::Pass,
        Fate::Answer(500),
        Fate::Cut,
        Fate::Pass,
        Fate::Answer(503),
        Fate::LoseAnswer,
        Fate::Pass,
        Fate::Pass,
    ];
    let mut nth = 0;
    proxy.rule(move |asked| {
        if !asked.is_write() {
            return Fate::Pass;
        }
        nth += 1;
        fates[nth % fates.len()]
    });
    bed.schedule(&[&proxy.flag()]);
    let names = ["a", "b", "c", "d", "e", "f"];
    gangs(&bed, &names);
    run(&bed, &names);
    assert_bound_once(&bed, 60);
    assert!(bed.scheduler(0).metric("kube_batch_write_retries_total") > 0.0);
    bed.eventually("status is written in the end", || {
        let groups = bed.list("podgroups.scheduling.sigs.dev");
        let runs = |group: &&Value| group["status"]["phase"] == "Running";
        let n_running = groups.iter().filter(runs).count();
        if n_running == names.len() { Ok(()) } else { Err(format!("{n_running} run")) }
    });
}

#[test]
fn cut_connections_cost_no_more_than_time() {
    let (mut bed, proxy) = audited(10);
    let versions = Arc::new(Mutex::new(BTreeSet::new()));
    let seen = Arc::clone(&versions);
    proxy.rule(move |asked| {
        let is_binding = asked.uri.path().ends_with("/binding");
        let what = if is_binding {
            "binding"
        } else if asked.is_watch() {
            "watch"
        } else {
            "other"
        };
        seen.lock().expect("nobody panics").insert((what, format!("{:?}", asked.version)));
        Fate::Pass
    });
    bed.schedule(&[&proxy.flag()]);
    let names = ["a", "b", "c", "d", "e", "f"];
    for name in names {
        gangs(&bed, &[name]);
        thread::sleep(Duration::from_millis(150));
        proxy.cut();
    }
    run(&bed, &names);
    assert_bound_once(&bed, 60);
    let versions = versions.lock().expect("nobody panics");
    let of = |kind| -> Vec<&str> {
        let of_kind = versions.iter().filter(|(what, _)| *what == kind);
        of_kind.map(|(_, version)| version.as_str()).collect()
    };
    assert_eq!((of("binding"), of("watch")), (vec!["HTTP/2.0"], vec!["HTTP/1.1"]));
}

#[test]
fn watches_that_are_too_old_begin_anew() {
    let (mut bed, proxy) = audited(4);
    // Nobody is to be bound to it when it is gone and that is not known yet.
    bed.kubectl(["cordon", "node-00003"]).expect("cordoned");
    bed.schedule(&[&proxy.flag()]);
    gangs(&bed, &["before", "leaves"]);
    run(&bed, &["before", "leaves"]);

    // Nothing gets through, and meanwhile the world moves on.
    proxy.rule(|_| Fate::Cut);
    proxy.cut();
    bed.kubectl(["delete", "job", "leaves", "--namespace", crate::bed::NAMESPACE]).expect("gone");
    bed.kubectl(["delete", "node", "node-00003"]).expect("gone");
    gangs(&bed, &["comes"]);
    thread::sleep(Duration::from_secs(3));
    // Changes of the time between are no longer known to the server.
    proxy.rule(|asked| {
        let resumes = asked.uri.query().is_some_and(|query| !query.contains("sendInitialEvents"));
        if asked.is_watch() && resumes { Fate::Answer(410) } else { Fate::Pass }
    });
    bed.runs("comes", 10);
    bed.eventually("what has left is forgotten", || {
        let nodes = bed.scheduler(0).metric("kube_batch_snapshot_objects{kind=\"nodes\"}");
        if nodes == 3.0 { Ok(()) } else { Err(format!("{nodes} nodes")) }
    });
}
