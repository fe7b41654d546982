//! Devices that kube-scheduler, or another one, allocates too.

use kube_batch_testbed::cluster::Options;
use serde_json::{Value, json};

use super::{GPU, claim, pods_with_template, slice};
use crate::bed::{Bed, group, nodes};

/// Starts a cluster with kube-scheduler, and with `n` devices on each of two nodes.
fn with_kube_scheduler(n_devices: usize) -> Bed {
    let options = Options { scheduler: true, ..Options::default() };
    let mut bed = Bed::with_options(options, &nodes(2, "64"));
    bed.create_devices(&[slice("node-00000", n_devices), slice("node-00001", n_devices)]);
    bed.start_scheduler(&[]);
    bed
}

/// Pods of kube-scheduler, each with a claim from the template.
fn pods_of_kube_scheduler(name: &str, n: usize) -> Vec<Value> {
    let mut pods = pods_with_template(name, n, GPU);
    for pod in &mut pods {
        pod["spec"]["schedulerName"] = json!("default-scheduler");
        pod["metadata"]["annotations"].take();
    }
    pods
}

#[test]
fn devices_of_kube_scheduler_are_not_given_away() {
    let bed = with_kube_scheduler(4);
    bed.plane.create(&pods_of_kube_scheduler("theirs", 5)).expect("pods are created");
    bed.wait_until_running("theirs", 5);
    bed.create_gang("too-big", 4);
    bed.create_gang("ours", 3);
    bed.wait_until_running("ours", 3);
    bed.wait_until_reported("too-big-0", "cannot allocate all claims");
    assert_eq!(bed.n_bound("too-big"), 0);
    bed.expect_no_conflicts();
}

/// Pods of each scheduler, which need all devices together.
const N_PODS: usize = 20;

/// Nothing prevents that both allocate a device at the same moment, but if it happens it is counted.
#[test]
fn devices_that_two_schedulers_allocate_at_the_same_time_are_counted() {
    let bed = with_kube_scheduler(N_PODS);
    bed.apply(&group("ours", 1));
    let ours = pods_with_template("ours", N_PODS, GPU);
    let theirs = pods_of_kube_scheduler("theirs", N_PODS);
    let both: Vec<Value> = ours.into_iter().zip(theirs).flat_map(|(a, b)| [a, b]).collect();
    bed.plane.create(&both).expect("pods are created");
    bed.wait_until_running("ours", N_PODS);
    bed.wait_until_running("theirs", N_PODS);
    assert_eq!(bed.allocated().len(), 2 * N_PODS);
    let conflicts = bed.conflicts();
    eprintln!("{} devices were allocated twice", conflicts.len());
    bed.eventually("the metric shows these devices", || match bed.n_conflicts() {
        n if n == conflicts.len() => Ok(()),
        n => Err(format!("it shows {n}: {conflicts:?}")),
    });
}

#[test]
fn a_device_that_another_scheduler_gives_away_again_is_counted() {
    let mut bed = Bed::new(&nodes(1, "8"));
    bed.create_devices(&[slice("node-00000", 2)]);
    bed.start_scheduler(&[]);
    bed.create_gang("ours", 1);
    bed.wait_until_running("ours", 1);
    bed.expect_no_conflicts();
    bed.apply(&claim("other"));
    let (_, ours) = bed
        .list("resourceclaims")
        .into_iter()
        .map(|claim| (claim["metadata"]["name"].clone(), claim["status"]["allocation"].clone()))
        .find(|(name, _)| name != "other")
        .expect("the claim of the pod");
    bed.patch_status("other", &json!({"allocation": ours}));
    bed.eventually("the metric counts the device", || match bed.n_conflicts() {
        1 => Ok(()),
        n => Err(format!("it counts {n}")),
    });
    let log = bed.scheduler(0).log();
    assert!(log.contains("two claims hold one device"), "{log}");
    // The other device is still free.
    bed.create_gang("next", 1);
    bed.wait_until_running("next", 1);
    assert_eq!(bed.devices_of("next"), ["node-00000/gpu-1"]);
    assert_eq!(bed.n_conflicts(), 1);
}
