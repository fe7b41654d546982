//! The topology domain in which tasks are evicted for a job that requires one: the one whose victims cost
//! least.
// Parity: new, see docs/parity.md#t6.

use std::{cmp::Reverse, collections::VecDeque};

use kube_batch_framework::{plugin::Capacity, session::Session, topology::Scope};
use kube_batch_model::column::{JobIdx, TaskIdx};

use super::{
    attempt::{Attempt, Attempted, Means},
    minimal_set::Victims,
    on_node::{Preemptor, VictimCost},
    policy::VictimPolicy,
    select::VictimSearch,
};
use crate::domain_budget::DomainBudget;

/// Where an attempt may succeed.
pub(super) enum Best {
    /// In this domain, or anywhere.
    In(Option<Scope>),
    /// Nowhere.
    Nowhere,
    /// No eviction is needed.
    NeedsNoVictims,
}

/// What is lost with the victims in a domain, compared in this order: violated budgets, the highest priority,
/// Jobs that fail, broken gangs, and then as the victims on a node.
type DomainCost = (usize, i32, usize, usize, VictimCost);

/// The domains that may have room for the minimum of the job, those with most room now first; `None` if it may
/// be anywhere, or only where its other tasks are.
pub(super) fn domains_to_compare(session: &mut Session, job: JobIdx) -> Option<Vec<Scope>> {
    let required = session.plugins().topology(job)?.required_level()?;
    if !required.n_tasks().is_empty() {
        return None;
    }
    let level = required.level.clone();
    let mut domains = session.domains_with_room(job);
    let first = session.waiting_tasks(job).first().copied()?;
    let class = session.cluster().tasks.class[first];
    let fits = session.search().domain_fits(class, &level, Capacity::FutureIdle);
    domains.sort_by_key(|scope| Reverse(fits[scope.domain]));
    Some(domains)
}

/// The domain in which an attempt succeeds with the cheapest victims; of equal ones the first by name.
pub(super) fn cheapest_domain(
    policy: VictimPolicy<'_>,
    session: &mut Session,
    search: &mut VictimSearch,
    job: JobIdx,
    tasks: &VecDeque<TaskIdx>,
    (means, domains): (Means, &[Scope]),
) -> Best {
    let mut lowest: Option<(DomainCost, &Scope)> = None;
    let mut tries = DomainBudget::default();
    for scope in domains {
        if tries.is_used_up(false) {
            break;
        }
        let mut attempt = Attempt::new(policy, session, search, job, Some(scope.clone()));
        let mut left = tasks.clone();
        let outcome = attempt.run(means, &mut left);
        tries.count(tasks.len() - left.len());
        match outcome {
            Attempted::Placed => {}
            Attempted::Unplaceable => continue,
            Attempted::NeedsNoVictims => return Best::NeedsNoVictims,
        }
        if !attempt.reprieve() {
            continue;
        }
        let (victims, n_broken) = attempt.victims();
        let Some(preemptor) = attempt.first_preemptor(tasks) else { continue };
        drop(attempt);
        let cost = cost(session, preemptor, &victims, n_broken);
        let is_lower =
            |(known, first): &(DomainCost, &Scope)| (cost, scope.domain) < (*known, first.domain);
        if lowest.as_ref().is_none_or(is_lower) {
            lowest = Some((cost, scope));
        }
    }
    lowest.map_or(Best::Nowhere, |(_, scope)| Best::In(Some(scope.clone())))
}

fn cost(
    session: &Session,
    preemptor: Preemptor,
    victims: &[TaskIdx],
    n_broken: usize,
) -> DomainCost {
    let violates = session.plugins().violates_budget(victims);
    let n_violating = violates.into_iter().filter(|violates| *violates).count();
    let victims = Victims { tasks: victims.to_vec(), n_violating };
    let cost = VictimCost::of(session, preemptor, &victims);
    (n_violating, cost.highest_priority(), cost.n_failing_jobs(), n_broken, cost)
}
