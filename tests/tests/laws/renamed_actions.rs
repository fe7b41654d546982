//! Actions are known by what they do: under other names they decide the same.

use kube_batch_actions::{allocate, backfill, preempt, reclaim};
use kube_batch_framework::{
    candidates::Search, cycle::Action, foresight::NextCycle, report::Cycle, session::Session,
    spec::ActionSpec,
};
use kube_batch_scheduler::registry::Registry;
use kube_batch_sim::{case::Case, runner::run_case_observed};
use kube_batch_tests::{
    random_cluster::RandomCluster,
    seeds::{is_often, seeds},
};
use kube_batch_yaml::{Limits, parse};

/// Worlds of each law.
const N_CLUSTERS: u64 = 300;

/// An action of another name, as one that replaces it would be.
struct Renamed {
    name: &'static str,
    action: Box<dyn Action>,
}

impl Action for Renamed {
    fn name(&self) -> &'static str {
        self.name
    }

    fn evicts(&self) -> bool {
        self.action.evicts()
    }

    fn reclaims(&self) -> bool {
        self.action.reclaims()
    }

    fn places_best_effort(&self) -> bool {
        self.action.places_best_effort()
    }

    fn execute(&self, session: &mut Session) {
        self.action.execute(session);
    }

    fn foresee(&self, session: &mut Session, next: &mut NextCycle) {
        self.action.foresee(session, next);
    }
}

/// The names of the actions of this project, and these actions under other names.
const RENAMED: [(&str, ActionSpec); 4] = [
    (reclaim::SPEC.name, spec("take-back", || renamed("take-back", reclaim::SPEC))),
    (allocate::SPEC.name, spec("place", || renamed("place", allocate::SPEC))),
    (backfill::SPEC.name, spec("fill-up", || renamed("fill-up", backfill::SPEC))),
    (preempt::SPEC.name, spec("push-out", || renamed("push-out", preempt::SPEC))),
];

const fn spec(name: &'static str, new: fn() -> Box<dyn Action>) -> ActionSpec {
    ActionSpec { name, about: "an action under another name", new }
}

fn renamed(name: &'static str, spec: ActionSpec) -> Box<dyn Action> {
    Box::new(Renamed { name, action: (spec.new)() })
}

fn other_name(action: &ActionSpec) -> ActionSpec {
    let found = RENAMED.into_iter().find(|(name, _)| *name == action.name);
    found.expect("every action has another name").1
}

fn cycles(case: &Case) -> Vec<Cycle> {
    let mut cycles = Vec::new();
    let played = run_case_observed(case, Search::Index, &mut |simulation| {
        cycles.extend(simulation.last().map(|last| last.cycle.clone()));
    });
    assert!(played.is_ok(), "the case can be played");
    cycles
}

#[test]
fn an_action_of_another_name_decides_the_same() {
    let seeds = seeds(N_CLUSTERS);
    let (mut n_reclaiming, mut n_filling) = (0, 0);
    for seed in seeds.iter().copied() {
        let text = RandomCluster::new(seed).case();
        let document = parse(&text, &Limits::default()).expect("a random cluster is YAML");
        let mut case =
            Case::read(&document, &Registry::builtin()).expect("a random cluster is a case");
        let before = cycles(&case);
        n_reclaiming += usize::from(case.conf.action_names().contains(&"reclaim"));
        n_filling += usize::from(case.conf.action_names().contains(&"backfill"));
        case.conf.actions = case.conf.actions.iter().map(other_name).collect();
        assert!(before == cycles(&case), "seed {seed}");
    }
    assert!(is_often(n_reclaiming, &seeds, 3), "{n_reclaiming} clusters with reclaim");
    assert!(is_often(n_filling, &seeds, 3), "{n_filling} clusters with backfill");
}
