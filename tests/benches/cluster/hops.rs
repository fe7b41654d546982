//! Where the time is spent between the creation of a pod and its binding.
//!
//! The log of kube-batch has a line for each binding that is sent, with the hops before it; the audit log of the API
//! server says when the pod was created and when the binding arrived.

use std::{fs, path::Path};

use jiff::{SignedDuration, Timestamp};
use kube_batch_testbed::audit::AuditEvent;
use serde::Deserialize;

use super::figures::{created, milliseconds, percentile};

/// A line about a binding that is sent. Hops are in microseconds.
#[derive(Deserialize)]
struct Sent {
    timestamp: Timestamp,
    pod: String,
    wait: i64,
    snapshot: i64,
    decide: i64,
    queue: i64,
}

/// The hops, in order.
const HOPS: [(&str, &str); 6] = [
    (
        "watch",
        "from the end of the creation until the pod is stored: the API server, the connection, JSON",
    ),
    ("wait", "until a cycle begins"),
    ("snapshot", "until its snapshot is complete"),
    ("decide", "until all is decided"),
    ("queue", "until the binding is sent"),
    ("connection", "until it arrives at the API server"),
];

/// Prints how long each hop has taken.
pub(crate) fn show_hops(log: &Path, events: &[AuditEvent]) {
    let log = fs::read_to_string(log).expect("kube-batch writes a log");
    let created = created(events);
    let mut hops: [Vec<f64>; 6] = Default::default();
    for sent in log.lines().filter_map(|line| serde_json::from_str::<Sent>(line).ok()) {
        let Some((_, name)) = sent.pod.split_once('/') else { continue };
        let is_binding = |event: &&AuditEvent| event.subresource == "binding" && event.name == name;
        let (Some(created), Some(binding)) = (created.get(name), events.iter().find(is_binding))
        else {
            continue;
        };
        let inside = [sent.wait, sent.snapshot, sent.decide, sent.queue];
        let stored = sent.timestamp - SignedDuration::from_micros(inside.iter().sum());
        let inside = inside.map(|micros| micros as f64 / 1e3);
        let watch = milliseconds(*created, stored);
        let connection = milliseconds(sent.timestamp, binding.received);
        let all = [[watch].as_slice(), &inside, &[connection]].concat();
        hops.iter_mut().zip(all).for_each(|(hop, took)| hop.push(took));
    }
    println!("{:12} {:>8} {:>8} {:>8}", "hop", "p50 ms", "p90 ms", "p99 ms");
    for ((name, about), mut took) in HOPS.into_iter().zip(hops) {
        took.sort_by(f64::total_cmp);
        let [p50, p90, p99] = [50, 90, 99].map(|percent| percentile(&took, percent));
        println!("{name:12} {p50:8.2} {p90:8.2} {p99:8.2}   {about}");
    }
}
