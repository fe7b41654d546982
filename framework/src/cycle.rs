//! One scheduling cycle, from a snapshot to decisions.

use jiff::Timestamp;
use kube_batch_model::cluster::Cluster;

use crate::{
    candidates::Search,
    foresight::{NextCycle, Start},
    holds::Holds,
    known_action::KnownAction,
    memory::Memory,
    milestone::Milestone,
    nominations,
    policy::Policy,
    report::{self, Cycle, Opening},
    session::Session,
    stale_gangs,
};

/// The largest number of times that a cycle is repeated. Guessed.
const MAX_REPEATS: usize = 8;

/// A cycle is repeated only as long as the turns that led to something took no more work than this: about 60 ms.
const MAX_USEFUL_WORK: u64 = 1_000_000;

/// A step of a cycle: it reads the session and changes it through statements.
pub trait Action: Send + Sync {
    /// The name of the action in the configuration.
    fn name(&self) -> &'static str;

    /// Whether it may evict tasks. If no action does, whether running tasks may be evicted makes no difference to a try.
    fn evicts(&self) -> bool {
        true
    }

    /// Whether it evicts tasks of one queue for waiting tasks of another, if the plugins permit that: what must stay idle
    /// for a job may then be lent to a task that the action could evict for the job.
    fn reclaims(&self) -> bool {
        false
    }

    /// Whether it places tasks that request nothing, for jobs that earlier actions have not completed: those keep the
    /// places of such a job for it.
    fn places_best_effort(&self) -> bool {
        false
    }

    /// Runs the action.
    fn execute(&self, session: &mut Session);

    /// Simulates the action in the next cycle, for each job by itself, and calls [`NextCycle::take_back`] for what it
    /// would evict; again for the same job as long as something is taken back.
    fn foresee(&self, _session: &mut Session, _next: &mut NextCycle) {}
}

/// Runs one cycle, and returns the cluster as it was.
///
/// The result depends on the snapshot, the time, the plugins, the actions and the memory only. `reached` is called
/// for each milestone and has no influence on the result.
pub fn run_cycle(
    cluster: Cluster,
    now: Timestamp,
    policy: &dyn Fn() -> Policy,
    actions: &[Box<dyn Action>],
    search: Search,
    memory: &mut Memory,
    reached: &mut dyn FnMut(Milestone<'_>),
) -> (Cycle, Cluster) {
    let remembered = std::mem::replace(memory, Memory::none());
    let mut start = Start::new(cluster, remembered);
    let mut repeats = 0..MAX_REPEATS;
    let (mut session, opening) = loop {
        let (mut session, opening) = act(start, now, policy(), actions, search, reached);
        let held = held(&mut session, actions);
        debug_assert_eq!(session.audit(), [], "after the next cycle was foreseen");
        let may_repeat = session.turn_log.useful() <= MAX_USEFUL_WORK;
        if held.is_empty() || !may_repeat || repeats.next().is_none() {
            break (session, opening);
        }
        start = session.into_start(held);
    };
    stale_gangs::evict_one(&mut session);
    debug_assert_eq!(session.audit(), [], "after a stale gang was evicted");
    nominations::settle(&mut session);
    reached(Milestone::Decided(&session.decisions));
    let n_decisions = session.decisions.len();
    let (cycle, to_remember) = report::close(&mut session, opening);
    debug_assert_eq!(cycle.decisions.len(), n_decisions, "a report decides nothing");
    *memory = to_remember;
    reached(Milestone::Closed);
    (cycle, session.into_cluster())
}

/// The jobs to hold, so that the cycle places nothing that the next one would evict.
fn held(session: &mut Session, actions: &[Box<dyn Action>]) -> Holds {
    let Some(mut next) = NextCycle::of(session) else { return Holds::new() };
    for action in actions {
        action.foresee(session, &mut next);
    }
    next.restore(session)
}

fn known(action: &dyn Action) -> KnownAction {
    KnownAction {
        name: action.name(),
        evicts: action.evicts(),
        reclaims: action.reclaims(),
        places_best_effort: action.places_best_effort(),
    }
}

/// Opens a session and runs the actions.
fn act(
    start: Start,
    now: Timestamp,
    policy: Policy,
    actions: &[Box<dyn Action>],
    search: Search,
    reached: &mut dyn FnMut(Milestone<'_>),
) -> (Session, Opening) {
    let Start { cluster, memory, holds, work, earlier } = start;
    let mut session = Session::open_measured(cluster, now, policy, search, memory, reached);
    session.work_before = work;
    session.turn_log.earlier = earlier;
    session.actions = actions.iter().map(|action| known(&**action)).collect();
    let opening = Opening::of(&session);
    nominations::renew(&mut session);
    session.reserve();
    // Only now: nominations are not held, because pods were evicted for them.
    session.holds = holds;
    debug_assert_eq!(session.audit(), [], "after nominations were renewed");
    session.open_turn_log(opening.queues.clone());
    session.record_holds();
    reached(Milestone::Opened);
    for (at, action) in actions.iter().enumerate() {
        session.n_started = at + 1;
        action.execute(&mut session);
        debug_assert_eq!(session.audit(), [], "after {}", action.name());
        reached(Milestone::Acted(action.name()));
    }
    (session, opening)
}
