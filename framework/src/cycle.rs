//! One cycle, from a picture to decisions.

use kube_batch_api::cluster::Cluster;

use crate::{
    candidates::Search,
    milestone::Milestone,
    nominations,
    policy::Policy,
    report::{self, Cycle, Opening},
    session::Session,
};

/// A step of a cycle: it looks at the session and makes statements.
pub trait Action: Send + Sync {
    /// Its name in the configuration.
    fn name(&self) -> &'static str;

    /// Does its work.
    fn execute(&self, session: &mut Session);
}

/// Runs one cycle.
///
/// The same picture, policies and actions give the same answer: nothing else is looked at.
/// `reached` is told of each milestone; it cannot influence anything.
pub fn run_cycle(
    cluster: Cluster,
    policy: Policy,
    actions: &[Box<dyn Action>],
    search: Search,
    reached: &mut dyn FnMut(Milestone),
) -> Cycle {
    let mut session = Session::open_measured(cluster, policy, search, reached);
    let opening = Opening::of(&session);
    nominations::renew(&mut session);
    debug_assert_eq!(session.cluster().audit(), [], "after nominations were renewed");
    reached(Milestone::Opened);
    for (at, action) in actions.iter().enumerate() {
        session.still_to_run = actions[at + 1..].iter().map(|action| action.name()).collect();
        action.execute(&mut session);
        debug_assert_eq!(session.cluster().audit(), [], "after {}", action.name());
        reached(Milestone::Acted(action.name()));
    }
    nominations::settle(&mut session);
    let cycle = report::close(session, opening);
    reached(Milestone::Closed);
    cycle
}
