//! What users, nodes and faults do in an episode: drawn from a seed before it begins, so that a part of
//! it can be left out when a failure is made smaller.

use fastrand::Rng;
use tokio::time::Duration;

use crate::{
    configuration::Configuration,
    outages::{Effect, Requests, Verb},
    server::{
        CLAIMS, EVENTS, GROUPS, KINDS, KUBERNETES_GROUPS, Kind, LEASES, NODES, PODS, QUEUES,
        RESOURCE_CLAIMS,
    },
    traffic::{Admission, Faults, WatchFault},
};

/// Something that happens.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Action {
    /// A user creates a gang of `n` pods that need `min` of them.
    CreateGang {
        queue: usize,
        n: u32,
        min: u32,
        cpu: u32,
        priority: usize,
    },
    /// A user creates a pod without a group.
    CreatePod {
        cpu: u32,
    },
    /// A user creates a pod with a claim whose volume is provisioned when the pod has a node.
    CreatePodWithClaim {
        cpu: u32,
    },
    /// A user creates a claim for a device, and pods that share it.
    CreatePodsWithDevice {
        cpu: u32,
        n: usize,
    },
    /// A user creates a gang whose pods each request a device as an extended resource.
    CreateRequestingGang {
        cpu: u32,
        n: u32,
    },
    /// A user creates a claim for a device, and a PodGroup of Kubernetes whose pods share it.
    CreateSharingGang {
        cpu: u32,
        n: u32,
    },
    /// A user deletes a claim for devices.
    DeleteDeviceClaim(usize),
    /// A user deletes a pod. Which one is an index into all pods.
    DeletePod(usize),
    /// A user deletes a group and its pods.
    DeleteGang(usize),
    /// A user changes the minimum of a group.
    ChangeMinimum(usize, u32),
    /// An administrator changes the weight of a queue.
    ChangeWeight(usize, u32),
    /// A pod is deleted by force and made again under the same name at once, as a StatefulSet does.
    RecreatePod(usize),
    /// The pod of the next binding or eviction is deleted by force and made again under the same name, while that
    /// request is on its way or its answer is.
    RecreateSent(Way),
    /// A node is made again under the same name at once. Its pods stay on it, and its devices are published later.
    RecreateNode(usize),
    /// A pod ends.
    FinishPod(usize),
    /// A controller creates the pods that a gang lacks.
    RefillGang(usize),
    /// A node is added. Its devices are published by a driver, or counted by a device plugin.
    AddNode {
        cpu: u32,
        has_plugin: bool,
    },
    DeleteNode(usize),
    /// A driver withdraws the devices of a node.
    DeleteSlice(usize),
    /// A driver publishes the devices of a node.
    PublishSlice(usize),
    Cordon(usize),
    Uncordon(usize),
    /// A node gets another capacity.
    ResizeNode(usize, u32),
    /// Another scheduler runs a pod on a node.
    ForeignPod(usize, u32),
    /// A tenant creates something hostile.
    Hostile(Hostility),
    /// Something fails.
    Fault(Fault),
}

/// What fails.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// A replica's connections have faults for some time, in milliseconds.
    Faults { replica: usize, faults: Faults, millis: u64 },
    /// The admission webhooks of a tenant's namespace behave differently for some time, in milliseconds.
    Admission { tenant: usize, admission: Admission, millis: u64 },
    /// The connections of a replica break.
    Reset(usize),
    /// A replica is stopped as by SIGSTOP, for some time in milliseconds.
    Freeze { replica: usize, millis: u64 },
    /// A replica is killed, and another process takes its place.
    Kill(usize),
    /// A replica is asked to end, and another process takes its place.
    Terminate(usize),
    /// The time of day of a replica is set forward or back, in seconds.
    SetClock { replica: usize, seconds: i64 },
    /// The times of day of all replicas jump, in seconds, and after some time in milliseconds back.
    JumpClocks { seconds: i64, millis: u64 },
    /// A node is ready and not ready in turns, a second each, for some time in milliseconds.
    FlapNode { node: usize, millis: u64 },
    /// The definitions of these kinds are deleted, and made again after some time in milliseconds.
    DeleteCrds { kinds: &'static [Kind], millis: u64 },
    /// The configuration file of a replica changes, and after some time in milliseconds back.
    Configure { replica: usize, configuration: Configuration, millis: u64 },
    /// The server forgets old changes.
    Compact,
    /// An administrator deletes the lease.
    DeleteLease,
    /// What becomes of requests of one sort is different for some time, in milliseconds.
    Outage { requests: Requests, effect: Effect, millis: u64 },
    /// Something is wrong with the watches of a kind for some time, in milliseconds.
    Watches { kind: Kind, fault: WatchFault, millis: u64 },
}

/// Where a request or its answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    There,
    Back,
}

/// What a tenant creates to hurt others.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Hostility {
    /// A pod with many names of resources.
    ManyResources,
    /// A pod with a name of a group that is none.
    BadAnnotation,
    /// A pod that another component has nominated.
    ForeignNomination(usize),
    /// A group that cannot start.
    HugeMinimum,
}

/// What the scheduler writes.
const WRITES: [(Kind, Verb); 11] = [
    (PODS, Verb::Bind),
    (PODS, Verb::PatchStatus),
    (PODS, Verb::Delete),
    (PODS, Verb::Write),
    (GROUPS, Verb::Write),
    (KUBERNETES_GROUPS, Verb::Write),
    (QUEUES, Verb::Write),
    (EVENTS, Verb::Write),
    (CLAIMS, Verb::Write),
    (RESOURCE_CLAIMS, Verb::Write),
    (LEASES, Verb::Write),
];

/// Actions with the time before each.
pub(crate) type Script = Vec<(Duration, Action)>;

/// The namespaces of the tenants.
pub(crate) const TENANTS: [&str; 2] = ["tenant-a", "tenant-b"];

/// The number of replicas.
pub(crate) const N_REPLICAS: usize = 2;

/// Draws a script of `n` actions.
pub(crate) fn draw(rng: &mut Rng, n: usize) -> Script {
    // Some episodes are quiet, some are not.
    let pace = [300, 2_000, 8_000][rng.usize(0..3)];
    let share_of_faults = [0, 10, 30, 50][rng.usize(0..4)];
    let mut script = Script::new();
    while script.len() < n {
        let pause = Duration::from_millis(rng.u64(0..pace));
        let is_fault = rng.u32(0..100) < share_of_faults;
        if is_fault && rng.u32(0..20) == 0 {
            burst(rng, pause, &mut script);
        } else {
            script.push((pause, if is_fault { Action::Fault(fault(rng)) } else { change(rng) }));
        }
    }
    script
}

/// Draws some thirty pods and gangs that are created at once, and what ends a replica or both while they are bound.
fn burst(rng: &mut Rng, pause: Duration, script: &mut Script) {
    for n in 0..rng.u32(5..16) {
        let action = match rng.u32(0..4) {
            0 => Action::CreatePod { cpu: rng.u32(0..3) },
            1 => Action::CreateRequestingGang { cpu: rng.u32(0..2), n: rng.u32(1..4) },
            _ => {
                let (n, cpu) = (rng.u32(1..7), rng.u32(0..3));
                Action::CreateGang { queue: rng.usize(0..3), n, min: n, cpu, priority: 0 }
            }
        };
        script.push((if n == 0 { pause } else { Duration::ZERO }, action));
    }
    let first = rng.usize(0..N_REPLICAS);
    for n in 0..rng.usize(1..=N_REPLICAS) {
        let replica = (first + n) % N_REPLICAS;
        let fault = match rng.u32(0..6) {
            0 => Fault::Kill(replica),
            1 => Fault::Reset(replica),
            _ => Fault::Terminate(replica),
        };
        script.push((Duration::from_millis(rng.u64(0..300)), Action::Fault(fault)));
    }
}

fn change(rng: &mut Rng) -> Action {
    let any = rng.usize(0..1_000);
    match rng.u32(0..118) {
        0..20 => {
            let n = rng.u32(1..7);
            let min = if rng.u32(0..4) == 0 { rng.u32(0..=n) } else { n };
            let (queue, cpu, priority) = (rng.usize(0..3), rng.u32(1..4), rng.usize(0..3));
            Action::CreateGang { queue, n, min, cpu, priority }
        }
        20..24 => Action::CreateRequestingGang { cpu: rng.u32(0..3), n: rng.u32(1..4) },
        24..29 => Action::CreatePod { cpu: rng.u32(0..3) },
        29..31 => Action::CreatePodWithClaim { cpu: rng.u32(0..3) },
        31..35 => Action::CreatePodsWithDevice { cpu: rng.u32(0..3), n: rng.usize(1..4) },
        35..40 => Action::DeletePod(any),
        40..50 => Action::DeleteGang(any),
        50..55 => Action::ChangeMinimum(any, rng.u32(0..8)),
        55..58 => Action::ChangeWeight(any, rng.u32(1..5)),
        58..70 => Action::FinishPod(any),
        70..77 => Action::RefillGang(any),
        77..81 => Action::AddNode { cpu: rng.u32(2..9), has_plugin: rng.u32(0..4) == 0 },
        81..84 => Action::DeleteNode(any),
        84..87 => Action::Cordon(any),
        87..91 => Action::Uncordon(any),
        91..93 => Action::ResizeNode(any, rng.u32(1..9)),
        93..96 => Action::ForeignPod(any, rng.u32(1..3)),
        96..99 => Action::CreateSharingGang { cpu: rng.u32(0..3), n: rng.u32(1..4) },
        99..102 => Action::DeleteSlice(any),
        102..105 => Action::PublishSlice(any),
        105 => Action::DeleteDeviceClaim(any),
        106..109 => Action::RecreatePod(any),
        109..111 => Action::RecreateSent(if rng.bool() { Way::There } else { Way::Back }),
        111..114 => Action::RecreateNode(any),
        _ => Action::Hostile(match rng.u32(0..4) {
            0 => Hostility::ManyResources,
            1 => Hostility::BadAnnotation,
            2 => Hostility::ForeignNomination(any),
            _ => Hostility::HugeMinimum,
        }),
    }
}

fn fault(rng: &mut Rng) -> Fault {
    let replica = rng.usize(0..N_REPLICAS);
    match rng.u32(0..48) {
        46.. => {
            let all =
                [Configuration::Invalid, Configuration::Missing, Configuration::WithoutEvictions];
            let configuration = all[rng.usize(0..all.len())];
            Fault::Configure { replica, configuration, millis: rng.u64(100..100_000) }
        }
        44.. => {
            let kinds = [&[GROUPS][..], &[QUEUES], &[GROUPS, QUEUES]][rng.usize(0..3)];
            Fault::DeleteCrds { kinds, millis: rng.u64(10..200_000) }
        }
        42.. => Fault::FlapNode { node: rng.usize(0..1_000), millis: rng.u64(2_000..90_000) },
        40.. => {
            let seconds = [-7_200, -3_600, 3_600, 7_200][rng.usize(0..4)];
            Fault::JumpClocks { seconds, millis: rng.u64(100..60_000) }
        }
        34.. => watch_fault(rng),
        25.. => outage(rng),
        24 => Fault::DeleteLease,
        20.. => {
            let admission = [Admission::RejectsHalf, Admission::RejectsAll, Admission::IsDead];
            let (tenant, millis) = (rng.usize(0..TENANTS.len()), rng.u64(500..400_000));
            Fault::Admission { tenant, admission: admission[rng.usize(0..3)], millis }
        }
        0..10 => {
            let millis = rng.u64(500..60_000);
            Fault::Faults { replica, faults: faults(rng), millis }
        }
        10..13 => Fault::Reset(replica),
        13..15 => Fault::Freeze { replica, millis: rng.u64(100..40_000) },
        15..17 => Fault::Kill(replica),
        17 => Fault::Terminate(replica),
        18 => Fault::SetClock { replica, seconds: rng.i64(-4_000..4_000) },
        19 => Fault::Compact,
    }
}

fn watch_fault(rng: &mut Rng) -> Fault {
    // Most kinds change seldom.
    let kind = if rng.bool() { [PODS, GROUPS, NODES][rng.usize(0..3)] } else { watched(rng) };
    let fault = match rng.u32(0..4) {
        0 => WatchFault::SwapsObjects,
        1 => WatchFault::SwapsVersions,
        2 => WatchFault::IsStale { millis: rng.u64(100..8_000) },
        _ => WatchFault::HasNoBookmarks,
    };
    Fault::Watches { kind, fault, millis: rng.u64(5_000..400_000) }
}

fn watched(rng: &mut Rng) -> Kind {
    loop {
        let kind = KINDS[rng.usize(0..KINDS.len())];
        if !matches!(kind, LEASES | EVENTS) {
            return kind;
        }
    }
}

fn outage(rng: &mut Rng) -> Fault {
    // The last kind, events, is not read.
    let (kind, verb) = if rng.bool() {
        (KINDS[rng.usize(0..KINDS.len() - 1)], Verb::Read)
    } else {
        WRITES[rng.usize(0..WRITES.len())]
    };
    let millis = rng.u64(500..400_000);
    Fault::Outage { requests: Requests { kind, verb }, effect: effect(rng, verb), millis }
}

fn effect(rng: &mut Rng, verb: Verb) -> Effect {
    match rng.u32(0..10) {
        0..5 => {
            let codes: &[u16] = match verb {
                Verb::Read => &[403, 404, 429, 500, 503, 504],
                Verb::Write | Verb::Bind | Verb::PatchStatus | Verb::Delete => {
                    &[403, 429, 500, 503, 504]
                }
            };
            let code = codes[rng.usize(0..codes.len())];
            let retry_after = (code == 429 && rng.bool()).then(|| rng.u32(1..30));
            Effect::Rejects { code, retry_after }
        }
        5 => Effect::FailsLate { code: [500, 504][rng.usize(0..2)] },
        6 => Effect::Hangs,
        7 => Effect::HangsLate,
        _ => Effect::IsSlow { millis: rng.u64(500..9_000) },
    }
}

fn faults(rng: &mut Rng) -> Faults {
    let none = Faults::default();
    match rng.u32(0..7) {
        0 => Faults { is_silent: true, ..none },
        1 => Faults { loses_request: 0.2, loses_answer: 0.2, ..none },
        2 => Faults { resets: 0.3, ..none },
        3 => Faults { fails: 0.5, ..none },
        4 => Faults { delay_ms: 4_000, repeats: 0.1, ..none },
        5 => Faults { watch_delay_ms: 2_000, ..none },
        _ => Faults {
            loses_request: 0.05,
            loses_answer: 0.05,
            resets: 0.05,
            fails: 0.1,
            repeats: 0.05,
            delay_ms: 500,
            watch_delay_ms: 500,
            is_silent: false,
        },
    }
}
