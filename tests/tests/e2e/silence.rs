//! Connections to the API server that stay open and carry nothing.

use std::{
    thread,
    time::{Duration, Instant},
};

use kube_batch_testbed::cluster::Options;

use crate::{
    bed::{Bed, SYSTEM, group, nodes, pods},
    outages::assert_bound_once,
    relay::Relay,
};

/// Maximum time until new pods are bound although all connections fall silent. A watch is given up after
/// 30 s of silence; the rest is for a new connection, a new list and a cycle.
const BOUND_WITHIN: Duration = Duration::from_secs(45);

/// Maximum time until another replica leads after the leader has vanished: `docs/install.md` has the sum.
const ELECTED_WITHIN: Duration = Duration::from_secs(19);
/// Maximum time until it schedules. `docs/install.md` says 4 s later; on a machine that is busy with other clusters, the
/// API server may not answer the comparison in time, and then a kind is listed again.
const TAKEN_OVER_WITHIN: Duration = Duration::from_secs(33);

/// Pods that are being bound when connections fall silent.
const N_BEFORE: usize = 300;
const N_AFTER: usize = 20;

fn audited_bed() -> Bed {
    Bed::with_options(Options { audit: true, ..Options::default() }, &nodes(8, "64"))
}

/// Silences all connections in the middle of a burst of bindings, and new ones for some time, and
/// returns how long it took until the pods that were created then are bound.
fn bind_despite_silence(new_silent_for: Duration) -> Duration {
    let mut bed = audited_bed();
    let relay = Relay::start(&bed.plane);
    let namespace = format!("--lock-object-namespace={SYSTEM}");
    let flags = ["--leader-elect", &namespace, "--max-concurrent-writes=4"];
    bed.start_scheduler(&[&flags[..], &[&relay.flag()]].concat());
    bed.plane.create(&pods("before", N_BEFORE, "1")).expect("pods are created");
    bed.apply(&group("before", N_BEFORE));
    bed.eventually("some pods are bound", || {
        let bound = bed.n_bound("before");
        if bound > 0 { Ok(()) } else { Err("none is".to_owned()) }
    });
    relay.silence_new(!new_silent_for.is_zero());
    relay.silence();
    let created = Instant::now();
    bed.apply(&group("after", N_AFTER));
    bed.plane.create(&pods("after", N_AFTER, "1")).expect("pods are created");
    let bound_at_first = bed.n_bound("before");
    thread::sleep(new_silent_for);
    relay.silence_new(false);
    bed.wait_until_bound("after", N_AFTER);
    let after = created.elapsed();
    bed.wait_until_bound("before", N_BEFORE);
    eprintln!("{bound_at_first} of {N_BEFORE} were bound; new pods after {after:.1?}");
    eprintln!("all pods after {:.1?}", created.elapsed());
    assert_bound_once(&bed, N_BEFORE + N_AFTER);
    after
}

#[test]
fn new_pods_are_bound_although_all_connections_are_silent() {
    let bound_after = bind_despite_silence(Duration::ZERO);
    assert!(bound_after < BOUND_WITHIN, "{bound_after:?}");
}

#[test]
fn new_pods_are_bound_although_new_connections_are_silent_for_some_seconds() {
    let bound_after = bind_despite_silence(Duration::from_secs(8));
    assert!(bound_after < BOUND_WITHIN, "{bound_after:?}");
}

#[test]
fn another_replica_takes_over_from_a_leader_whose_connections_are_silent() {
    let mut bed = audited_bed();
    let relay = Relay::start(&bed.plane);
    let namespace = format!("--lock-object-namespace={SYSTEM}");
    let election = ["--leader-elect", &*namespace];
    bed.start_scheduler(&[&election[..], &[&relay.flag()]].concat());
    bed.eventually("the first replica is the leader", || {
        if bed.scheduler(0).is_leader() { Ok(()) } else { Err("it is not".to_owned()) }
    });
    bed.start_scheduler(&election);

    relay.silence_new(true);
    relay.silence();
    let silent = Instant::now();
    bed.plane.create(&pods("after", N_AFTER, "1")).expect("pods are created");
    bed.apply(&group("after", N_AFTER));
    bed.eventually("the second replica is the leader", || {
        let leaders = [0, 1].map(|row| bed.scheduler(row).is_leader());
        if leaders == [false, true] { Ok(()) } else { Err(format!("{leaders:?}")) }
    });
    let elected = silent.elapsed();
    bed.wait_until_bound("after", N_AFTER);
    let bound = silent.elapsed();
    eprintln!("became leader after {elected:.1?}, bound after {bound:.1?}");
    assert!(elected < ELECTED_WITHIN, "{elected:?}");
    assert!(bound < TAKEN_OVER_WITHIN, "{bound:?}");
    assert_bound_once(&bed, N_AFTER);
}
