//! Which queue was meant by the name of one that does not exist.

use std::collections::{BTreeMap, btree_map::Entry};

use kube_batch_model::{column::JobIdx, name::Name, problem::JobProblem};

use crate::{served::serves, session::Session};

/// How many names are compared with each other in a cycle: any number of jobs may name queues that do not exist.
const MAX_COMPARED: usize = 1 << 14;

/// Finds the queues that were meant by jobs whose queue does not exist, for the first of them.
pub(crate) fn find(session: &mut Session) {
    let mut similar = BTreeMap::new();
    let mut n_compared = 0;
    for job in session.active_jobs() {
        let Some((name, namespace)) = wanted(session, *job) else { continue };
        let Entry::Vacant(unknown) = similar.entry((name.clone(), namespace.clone())) else {
            continue;
        };
        n_compared += session.cluster().queues.facts.len();
        if n_compared > MAX_COMPARED {
            break;
        }
        unknown.insert(meant(session, name, namespace));
    }
    session.similar_queues = similar;
}

/// The queue that was meant by a job whose queue does not exist, if one has a similar name and would serve it.
pub(crate) fn of(session: &Session, job: JobIdx) -> Option<Name> {
    let (name, namespace) = wanted(session, job)?;
    session.similar_queues.get(&(name.clone(), namespace.clone()))?.clone()
}

/// The name and the namespace of a job whose queue does not exist.
fn wanted(session: &Session, job: JobIdx) -> Option<(&Name, &Name)> {
    let jobs = &session.cluster().jobs;
    let Some(JobProblem::QueueNotFound(name)) = &jobs.problem[job] else { return None };
    Some((name, &jobs.key[job].object().namespace))
}

/// At most one error in three letters; of equal names, the queue that is older.
fn meant(session: &Session, name: &Name, namespace: &Name) -> Option<Name> {
    let cluster = session.cluster();
    let is_near = |length: usize| length.abs_diff(name.len()) <= length.max(name.len()) / 3;
    let near = cluster.queues.facts.iter().filter(|(_, facts)| is_near(facts.name.len()));
    let similar = near.filter_map(|(queue, facts)| {
        let n_errors = strsim::osa_distance(name, &facts.name);
        let is_similar = n_errors <= name.len().max(facts.name.len()) / 3;
        is_similar.then_some((n_errors, queue))
    });
    let (_, queue) = similar.filter(|(_, queue)| serves(cluster, *queue, namespace)).min()?;
    Some(cluster.queues.facts[queue].name.clone())
}
