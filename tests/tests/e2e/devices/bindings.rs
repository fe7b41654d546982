//! Bindings that fail after the devices of the pods were allocated.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use super::slice;
use crate::{
    bed::{Bed, SYSTEM, nodes},
    proxy::{Handling, Proxy},
};

/// Responds with this status to bindings, as long as the result is `true`.
fn refuse_bindings(proxy: &Proxy, code: u16) -> Arc<AtomicBool> {
    let refuses = Arc::new(AtomicBool::new(true));
    let shared = Arc::clone(&refuses);
    proxy.rule(move |request| {
        let is_refused = request.uri.path().ends_with("/binding") && shared.load(Ordering::Relaxed);
        if is_refused { Handling::Respond(code) } else { Handling::Forward }
    });
    refuses
}

#[test]
fn the_next_leader_binds_with_the_devices_that_the_killed_one_allocated() {
    let mut bed = Bed::new(&nodes(2, "8"));
    bed.create_devices(&[slice("node-00000", 2), slice("node-00001", 1)]);
    let proxy = Proxy::start(&bed.plane);
    refuse_bindings(&proxy, 503);
    let namespace = format!("--lock-object-namespace={SYSTEM}");
    let flags = [
        "--leader-elect",
        &namespace,
        "--lease-duration=2s",
        "--renew-deadline=1500ms",
        "--retry-period=300ms",
    ];
    // Only the first one uses the proxy.
    bed.start_scheduler(&[&flags[..], &[&proxy.flag()]].concat());
    bed.eventually("the first replica is the leader", || {
        if bed.scheduler(0).is_leader() { Ok(()) } else { Err("it is not".to_owned()) }
    });
    bed.start_scheduler(&flags);
    bed.create_gang("gang", 2);
    bed.eventually("both pods have a device", || {
        let devices = bed.devices_of("gang");
        if devices.len() == 2 { Ok(()) } else { Err(format!("{devices:?}")) }
    });
    bed.take_scheduler(0).kill();
    let allocated = bed.allocated();
    assert_eq!(bed.n_bound("gang"), 0, "{allocated:?}");
    // One device is left for two other pods.
    bed.create_gang("one", 1);
    bed.create_gang("two", 1);
    bed.wait_until_running("gang", 2);
    bed.eventually("one of the other pods runs", || {
        let n_running = ["one", "two"].map(|name| bed.pods_in(name, "Running").len());
        if n_running == [0, 1] || n_running == [1, 0] {
            Ok(())
        } else {
            Err(format!("{n_running:?}"))
        }
    });
    let mut of_gang = bed.allocated();
    of_gang.retain(|name, _| allocated.contains_key(name));
    assert_eq!(of_gang, allocated, "the claims keep their devices");
    bed.expect_no_conflicts();
}

#[test]
fn a_pod_whose_binding_was_refused_is_bound_with_the_same_device() {
    let mut bed = Bed::new(&nodes(1, "8"));
    bed.create_devices(&[slice("node-00000", 4)]);
    let proxy = Proxy::start(&bed.plane);
    bed.start_scheduler(&[&proxy.flag()]);
    let refuses = refuse_bindings(&proxy, 403);
    bed.create_gang("refused", 1);
    bed.wait_for_event("refused-0", "FailedScheduling", "cannot bind to node-00000: injected");
    bed.eventually("the claim has a device and no reservation", || {
        let claims = bed.allocated();
        let is_released = claims.len() == 1 && claims.values().all(|claim| claim.pods.is_empty());
        if is_released { Ok(()) } else { Err(format!("{claims:?}")) }
    });
    let (claim, before) = bed.allocated().pop_first().expect("a claim");
    refuses.store(false, Ordering::Relaxed);
    bed.wait_until_running("refused", 1);
    let after = bed.allocated().remove(&claim).expect("the claim has a device");
    assert_eq!((&after.devices, &after.since), (&before.devices, &before.since));
    assert_eq!(after.pods, ["refused-0"]);

    // A conflict says nothing about the pod: it is read, and bound again.
    let mut n_bindings = 0;
    proxy.rule(move |request| {
        let is_binding = request.uri.path().ends_with("/binding");
        n_bindings += u32::from(is_binding);
        if is_binding && n_bindings == 1 { Handling::Respond(409) } else { Handling::Forward }
    });
    bed.create_gang("conflict", 1);
    bed.wait_until_running("conflict", 1);
    let claims = bed.allocated();
    let users: Vec<&str> =
        claims.values().flat_map(|claim| &claim.pods).map(String::as_str).collect();
    assert_eq!(users, ["conflict-0", "refused-0"], "in the order of the claims");
    bed.expect_no_conflicts();
}
