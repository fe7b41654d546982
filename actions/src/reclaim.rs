//! Reclaim: evicts tasks of queues above their fair share for waiting tasks of queues below theirs.
//!
//! Queues and jobs get turns in their order; an overused queue gets none. A turn is one statement:
//! tasks are evicted only if that makes the job pipelined or, for a job that has its minimum, places
//! one more task. Victims are taken from the queue with the highest share, as shares are now.
//!
//! Upstream: `actions/reclaim/reclaim.go`, which ignores idle resources, evicts tasks even if the
//! waiting task is not placed, and skips a queue after its first failure.
// Parity: differs, see docs/parity.md#c1 to docs/parity.md#c6.

use kube_batch_framework::{
    cycle::Action, foresight::NextCycle, order::Turns, session::Session, spec::ActionSpec,
    withheld::Withheld,
};
use kube_batch_model::column::{JobIdx, QueueIdx};

use crate::{
    victims::{VictimPolicy, VictimSearch, foresee, turn},
    waiting::Waiting,
};

/// The action.
#[derive(Debug)]
pub struct Reclaim;

/// How a configuration names the action.
pub const SPEC: ActionSpec = ActionSpec {
    name: "reclaim",
    about: "evict tasks of queues above their share for queues below theirs",
    new: || Box::new(Reclaim),
};

impl Action for Reclaim {
    fn name(&self) -> &'static str {
        "reclaim"
    }

    fn reclaims(&self) -> bool {
        true
    }

    fn execute(&self, session: &mut Session) {
        let mut search = VictimSearch::new(session.cluster());
        let mut waiting = Waiting::default();
        let mut turns = Turns::new(session, |job| {
            session.has_waiting_tasks(job) && !session.plugins().gets_loans_only(job)
        });
        let mut withheld = None;
        let is_overused =
            |session: &Session, queue| session.plugins().overused_on_path(queue) == Some(queue);
        turns.run_unless(session, is_overused, |session, job| {
            let policy = policy(session, job, &mut withheld);
            turn(policy, session, &mut search, job, &mut waiting)
        });
    }

    fn foresee(&self, session: &mut Session, next: &mut NextCycle) {
        let mut search = VictimSearch::new(session.cluster());
        let jobs: Vec<JobIdx> = session.cluster().jobs.key.ids().collect();
        let mut withheld = None;
        for job in jobs {
            if session.has_waiting_tasks(job) && may_reclaim(session, job, next) {
                let policy = policy(session, job, &mut withheld);
                foresee(policy, session, &mut search, job, next);
            }
        }
    }
}

/// From which queues a job may reclaim. If one above its own is overused, only from those below that, and what is withheld
/// stays idle.
// Parity: see docs/parity.md#q7.
fn policy<'a>(
    session: &mut Session,
    job: JobIdx,
    withheld: &'a mut Option<Withheld>,
) -> VictimPolicy<'a> {
    let overused = session.cluster().jobs.queue[job]
        .and_then(|own| session.plugins().overused_on_path(own).map(|above| (own, above)));
    let Some((own, above)) = overused else { return VictimPolicy::other_queues(usize::MAX, None) };
    let most = session.cluster().queues.tree.path(own).take_while(|queue| *queue != above).count();
    if withheld.is_none() {
        *withheld = Some(Withheld::of(session));
    }
    VictimPolicy::other_queues(most, withheld.as_ref())
}

/// Whether the queue of the job may reclaim a resource of which the queue of a placed task holds more than it deserves.
fn may_reclaim(session: &Session, job: JobIdx, next: &NextCycle) -> bool {
    let (cluster, plugins) = (session.cluster(), session.plugins());
    let is_overused = |queue: &QueueIdx| plugins.overused_on_path(*queue) == Some(*queue);
    let Some(queue) = cluster.jobs.queue[job].filter(|queue| !is_overused(queue)) else {
        return false;
    };
    if plugins.gets_loans_only(job) {
        return false;
    }
    let grown = next.first_placed().iter().filter_map(|task| cluster.queue_of(*task));
    let mut others = grown.filter(|grown| *grown != queue);
    let wanted = &cluster.jobs.waiting[job];
    others.any(|other| {
        cluster.dimensions.shared().any(|dim| {
            let spare = plugins.spare(other, dim);
            wanted[dim] > 0 && spare.is_none_or(|spare| spare > 0)
        })
    })
}
