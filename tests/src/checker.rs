//! Checks the decisions of a cycle against the objects from which it was taken.
//!
//! The checker shares neither snapshot nor ledgers with the scheduler: it reads the facts of the store,
//! and does its own sums.
//!
//! Node selectors, node affinity, host ports and volumes are not checked: no bench shape has any. Of devices, it is
//! not checked what selectors and constraints of claims say.

mod budgets;
mod capacity;
mod devices;
mod gangs;
mod nodes;
mod rules;
mod topology;
mod victims;
mod view;

use kube_batch_cache::store::Store;
use kube_batch_model::decision::Decision;
use kube_batch_scheduler::conf::Conf;

use self::view::{View, decided_pods};

/// What holds for the decisions of a cycle. Each law returns its violations in words.
const LAWS: [fn(&View<'_>) -> Vec<String>; 14] = [
    nodes::bound_pods_are_admitted,
    capacity::no_node_is_over_committed,
    capacity::no_victim_could_stay,
    devices::devices_are_given_once,
    devices::bound_pods_have_devices,
    gangs::gangs_start_whole,
    gangs::gangs_keep_their_minimum_or_leave_whole,
    gangs::composites_start_whole,
    gangs::composites_keep_their_minimum_or_leave_whole,
    victims::victims_are_permitted,
    budgets::budgets_are_kept,
    rules::rules_about_other_pods_hold,
    rules::pods_are_spread,
    topology::jobs_are_in_one_domain,
];

/// Returns what is wrong with the decisions of a cycle, one sentence for each violation; nothing if they
/// are right.
pub fn problems(store: &Store, conf: &Conf, decisions: &[Decision]) -> Vec<String> {
    let mut problems = Vec::new();
    let pods = decided_pods(store, decisions, &mut problems);
    // Sums over decisions that are wrong in themselves would only repeat it.
    if !problems.is_empty() {
        return problems;
    }
    let view = View::new(store, conf, &pods);
    LAWS.iter().flat_map(|law| law(&view)).collect()
}
