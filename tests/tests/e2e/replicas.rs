//! A leader that does not run for longer than its lease.

use std::{cell::RefCell, collections::BTreeMap};

use jiff::Timestamp;
use kube_batch_testbed::{audit::AuditEvent, cluster::Options};

use crate::bed::{Bed, SCHEDULER, SYSTEM, group, nodes, pods};

/// User name of the replica that is suspended, so that the audit log tells its requests apart.
const SUSPENDED: &str = "suspended-replica";

/// Pods of the burst. The debug build binds them in a few seconds, two at a time.
const N_PODS: usize = 1200;

/// Permits a user what the scheduler's service account may do.
fn authorise(bed: &Bed, user: &str) {
    let user = format!("--user={user}");
    bed.kubectl(["create", "clusterrolebinding", "suspended", "--clusterrole=kube-batch", &user])
        .expect("a binding");
    let namespace = format!("--namespace={SYSTEM}");
    bed.kubectl(["create", "rolebinding", "suspended", "--role=kube-batch", &user, &namespace])
        .expect("a binding");
}

fn is_binding(event: &AuditEvent) -> bool {
    event.subresource == "binding" && event.code == 201
}

/// Starts a replica that is the leader and has another user name, and one that stands by.
fn start_replicas(bed: &mut Bed) {
    let namespace = format!("--lock-object-namespace={SYSTEM}");
    let periods = ["--lease-duration=4s", "--renew-deadline=3s", "--retry-period=1s"];
    let flags = ["--leader-elect", &namespace, "--max-concurrent-writes=2"];
    let flags = [&flags[..], &periods].concat();
    authorise(bed, SUSPENDED);
    let user = bed.plane.kubeconfig_for_user(SUSPENDED, &[]).expect("a kubeconfig");
    bed.spawn_scheduler_as(&user, &flags);
    bed.wait_until_ready(0);
    bed.eventually("the first replica is the leader", || {
        if bed.scheduler(0).is_leader() { Ok(()) } else { Err("it is not".to_owned()) }
    });
    bed.start_scheduler(&flags);
}

#[test]
fn a_leader_that_was_suspended_writes_nothing_when_it_is_resumed() {
    let options = Options { audit: true, ..Options::default() };
    let mut bed = Bed::with_options(options, &nodes(12, "128"));
    start_replicas(&mut bed);
    bed.plane.create(&pods("burst", N_PODS, "1")).expect("pods are created");
    bed.apply(&group("burst", N_PODS));
    let reader = RefCell::new(bed.plane.audit_reader());
    let n_bindings = RefCell::new(BTreeMap::new());
    let wait_for_bindings = |user: &str, n: usize| {
        bed.eventually(&format!("{user} has bound {n} pods"), || {
            let mut n_bindings = n_bindings.borrow_mut();
            for event in reader.borrow_mut().read().expect("an audit log") {
                if is_binding(&event) {
                    *n_bindings.entry(event.user).or_insert(0) += 1;
                }
            }
            let bound = n_bindings.get(user).copied().unwrap_or(0);
            if bound >= n { Ok(()) } else { Err(format!("{bound} are bound")) }
        });
    };
    wait_for_bindings(SUSPENDED, 100);
    bed.scheduler(0).suspend();
    // The other one is in the middle of the rest, so what this one had decided could still be sent.
    wait_for_bindings(SCHEDULER, 1);
    let resumed = Timestamp::now();
    bed.scheduler(0).resume();
    bed.eventually("the first replica reports that it no longer leads", || {
        let log = bed.scheduler(0).log();
        if log.contains("lost the lease") { Ok(()) } else { Err(log) }
    });
    bed.wait_until_bound("burst", N_PODS);
    bed.consistently("only the second replica leads", || {
        let leaders = [0, 1].map(|row| bed.scheduler(row).is_leader());
        if leaders == [false, true] { Ok(()) } else { Err(format!("{leaders:?}")) }
    });
    assert_eq!(bed.scheduler(0).get("/readyz").0, 200, "it stands by");
    assert_one_writer(&bed, resumed);
}

/// Asserts that the suspended replica wrote nothing after it was resumed, except for the lease, and
/// that each pod was bound once, some by each replica.
fn assert_one_writer(bed: &Bed, resumed: Timestamp) {
    let events = bed.plane.audit_events().expect("an audit log");
    let is_read = |verb: &str| ["get", "list", "watch"].contains(&verb);
    let is_late_write = |event: &&AuditEvent| {
        event.user == SUSPENDED
            && event.received >= resumed
            && !is_read(&event.verb)
            && event.resource != "leases"
    };
    let late: Vec<&AuditEvent> = events.iter().filter(is_late_write).collect();
    assert!(late.is_empty(), "{late:?}");
    let mut bound_by: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for event in events.iter().filter(|event| is_binding(event)) {
        bound_by.entry(&event.name).or_default().push(&event.user);
    }
    let of_user = |user| bound_by.values().filter(|users| **users == [user]).count();
    let (by_suspended, by_other) = (of_user(SUSPENDED), of_user(SCHEDULER));
    eprintln!("{by_suspended} pods were bound before, {by_other} by the other replica");
    assert_eq!(by_suspended + by_other, N_PODS, "each pod was bound once");
    assert!(by_other > N_PODS / 4, "the leader was suspended in the middle of the burst");
}
