//! A cycle is a function of what can be written down: run again from a recording, it decides and reports the same, bit for
//! bit, and leaves the same state.

use kube_batch_framework::{memory::Memory, report::Cycle};
use kube_batch_scheduler::{
    core::{Core, CycleInput},
    recording::Recording,
    registry::Registry,
};
use kube_batch_sim::{case::Case, simulation::Simulation};
use kube_batch_tests::{
    random_cluster::{RandomCluster, Rng},
    seeds::seeds,
};

use crate::memory::{changes::Change, read, simulation};

fn recorded(core: &mut Core, input: &CycleInput<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    core.record(input, &mut bytes).expect("memory takes all");
    bytes
}

fn replay(bytes: &[u8]) -> Recording {
    Recording::read(bytes, &Registry::builtin()).expect("a recording can be read")
}

/// Where two recordings differ first.
fn difference(one: &[u8], other: &[u8]) -> String {
    let lines = |bytes: &[u8]| String::from_utf8_lossy(bytes).lines().map(str::to_owned).collect();
    let (one, other): (Vec<String>, Vec<String>) = (lines(one), lines(other));
    let at = one.iter().zip(&other).position(|(one, other)| one != other);
    at.map_or_else(|| "their lengths".to_owned(), |at| format!("{}\n{}", one[at], other[at]))
}

/// A cycle without what is not recorded: about which jobs nothing has changed.
fn comparable(cycle: &Cycle) -> Cycle {
    Cycle { unsettled: None, ..cycle.clone() }
}

/// Plays a history. Half of the cycles are recorded, and run again from their recordings.
fn replay_some(seed: u64, case: &Case, rng: &mut Rng, budget: u64) {
    let late: Vec<bool> = case.objects.iter().map(|_| rng.percent(30)).collect();
    let mut simulation: Simulation = simulation(case, Memory::with_budget(budget), |at| !late[at]);
    let mut late: Vec<usize> = (0..late.len()).filter(|at| late[*at]).collect();
    let mut last: Option<Recording> = None;
    for step in 0..15 {
        if let Some(change) = Change::of_any_object(&simulation, rng, &mut late) {
            change.make(case, &mut simulation);
        }
        let is_recorded = rng.percent(50);
        let mut bytes = Vec::new();
        let mut begin = |core: &mut Core, input: &CycleInput<'_>| {
            if !is_recorded {
                return;
            }
            bytes = recorded(core, input);
            if let Some(mut last) = last.take() {
                let of_last = recorded(&mut last.core, input);
                let message = || format!("seed {seed}: the state after step {} differs", step - 1);
                assert!(of_last == bytes, "{}: {}", message(), difference(&of_last, &bytes));
            }
        };
        let cycle = comparable(&simulation.cycle_from(&mut begin, &mut |_| {}).cycle);
        last = is_recorded.then(|| {
            let mut recording = replay(&bytes);
            let (now, elapsed) = (recording.now, recording.elapsed);
            let Recording { core, store, assumed, .. } = &mut recording;
            let again = recorded(core, &CycleInput { store, assumed, now, elapsed });
            assert!(again == bytes, "seed {seed}, step {step}: {}", difference(&again, &bytes));
            let replayed = comparable(&recording.cycle(&mut |_| {}).cycle);
            let shown = [&replayed, &cycle].map(|cycle| format!("{cycle:#?}").into_bytes());
            let message = || difference(&shown[0], &shown[1]);
            assert!(replayed == cycle, "seed {seed}, step {step}: {}", message());
            recording
        });
    }
}

#[test]
fn a_recorded_cycle_decides_the_same_again() {
    for seed in seeds(100) {
        let mut rng = Rng::new(seed.rotate_left(16));
        let random =
            if rng.percent(50) { RandomCluster::new(seed) } else { RandomCluster::contended(seed) };
        // With a small budget, rounds and credits are remembered too.
        let budget = if rng.percent(50) { 400 } else { u64::MAX };
        replay_some(seed, &read(&random.case()), &mut rng, budget);
    }
}

#[test]
fn what_is_no_recording_is_refused() {
    for (text, problem) in [
        ("", "the first line of the recording: EOF"),
        ("{}\n{}\n", "the first line of the recording: missing field"),
    ] {
        let error = Recording::read(text.as_bytes(), &Registry::builtin()).expect_err(text);
        assert!(error.to_string().starts_with(problem), "{error}");
    }
}
