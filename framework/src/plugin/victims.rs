//! What a plugin is asked about victims.

use kube_batch_model::column::{JobIdx, TaskIdx};

/// A question about a victim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VictimQuestion {
    /// Whether it may be evicted for a task of its own queue. Plugins are asked whose extension point `enablePreemptable`
    /// is enabled; the first tier in which one does not abstain decides.
    Preemptable,
    /// Whether it may be evicted for a task of another queue. Plugins are asked whose extension point `enableReclaimable`
    /// is enabled; the rejection of one is final.
    Reclaimable,
}

/// A plugin's answer about one possible victim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vote {
    /// No opinion. If all plugins abstain, the victim is not evicted.
    Abstain,
    /// The victim may be evicted.
    Permit,
    /// The victim must not be evicted. In reclaim, a rejection of any plugin is final; in preempt, the
    /// first tier with an opinion decides.
    Reject,
}

impl Vote {
    /// Rejects if any vote does, else permits if any does, else abstains.
    pub fn unanimous(votes: impl IntoIterator<Item = Self>) -> Self {
        votes.into_iter().fold(Self::Abstain, |so_far, vote| match (so_far, vote) {
            (Self::Reject, _) | (_, Self::Reject) => Self::Reject,
            (Self::Permit, _) | (_, Self::Permit) => Self::Permit,
            (Self::Abstain, Self::Abstain) => Self::Abstain,
        })
    }
}

/// The proposal to evict one task for another.
#[derive(Clone, Copy, Debug)]
pub struct Proposal<'a> {
    /// The task that would get the resources: the preemptor, or the reclaimer if the victim is of
    /// another queue.
    pub preemptor: TaskIdx,
    /// The task that would be evicted.
    pub victim: TaskIdx,
    /// Victims selected so far that the cluster still shows as running: a plugin that counts tasks or
    /// resources subtracts them. Victims that the cluster shows as terminating are not in this list.
    pub evicted: &'a [TaskIdx],
}

/// The proposal to evict all running tasks of a job for one task of another job.
#[derive(Clone, Copy, Debug)]
pub struct JobProposal<'a> {
    /// The task that would get the resources.
    pub preemptor: TaskIdx,
    /// The job that would be evicted.
    pub job: JobIdx,
    /// Its tasks that would be evicted, ascending. The cluster shows them as running or bound.
    pub victims: &'a [TaskIdx],
}

impl JobProposal<'_> {
    /// The proposals to evict its tasks one after another.
    pub fn proposals(&self) -> impl Iterator<Item = Proposal<'_>> {
        self.victims.iter().enumerate().map(|(at, victim)| {
            let evicted = &self.victims[..at];
            Proposal { preemptor: self.preemptor, victim: *victim, evicted }
        })
    }

    /// The vote about all tasks, evicted one after another: a rejection of one is final.
    pub fn each(&self, mut vote: impl FnMut(&Proposal<'_>) -> Vote) -> Vote {
        Vote::unanimous(self.proposals().map(|proposal| vote(&proposal)))
    }
}
