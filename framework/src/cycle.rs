//! One scheduling cycle, from a snapshot to decisions.

use jiff::Timestamp;
use kube_batch_api::cluster::Cluster;

use crate::{
    candidates::Search,
    memory::Memory,
    milestone::Milestone,
    nominations,
    policy::Policy,
    report::{self, Cycle, Opening},
    session::Session,
    stale_gangs,
};

/// A step of a cycle: it reads the session and changes it through statements.
pub trait Action: Send + Sync {
    /// The name of the action in the configuration.
    fn name(&self) -> &'static str;

    /// Runs the action.
    fn execute(&self, session: &mut Session);
}

/// Runs one cycle, and returns the cluster as it was.
///
/// The result depends on the snapshot, the time, the plugins, the actions and the memory only. `reached` is called
/// for each milestone and has no influence on the result.
pub fn run_cycle(
    cluster: Cluster,
    now: Timestamp,
    policy: Policy,
    actions: &[Box<dyn Action>],
    search: Search,
    memory: &mut Memory,
    reached: &mut dyn FnMut(Milestone),
) -> (Cycle, Cluster) {
    let remembered = std::mem::replace(memory, Memory::none());
    let mut session = Session::open_measured(cluster, now, policy, search, remembered, reached);
    session.actions = actions.iter().map(|action| action.name()).collect();
    let opening = Opening::of(&session);
    nominations::renew(&mut session);
    debug_assert_eq!(session.cluster().audit(), [], "after nominations were renewed");
    session.open_turn_log(opening.queues.clone());
    reached(Milestone::Opened);
    for (at, action) in actions.iter().enumerate() {
        session.n_started = at + 1;
        session.turn_log.begin_action();
        action.execute(&mut session);
        debug_assert_eq!(session.cluster().audit(), [], "after {}", action.name());
        reached(Milestone::Acted(action.name()));
    }
    stale_gangs::evict_one(&mut session);
    debug_assert_eq!(session.cluster().audit(), [], "after a stale gang was evicted");
    nominations::settle(&mut session);
    let (cycle, to_remember) = report::close(&mut session, opening);
    *memory = to_remember;
    reached(Milestone::Closed);
    (cycle, session.into_cluster())
}
