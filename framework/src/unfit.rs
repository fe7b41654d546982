//! Jobs of which no task fits on any node. They are not tried again while that stays so.
//!
//! In a long queue, most jobs wait because no node has room for even one of their tasks. Whenever a pod starts or ends,
//! something has changed that could help them, and nothing is recalled by its input. But one question is enough then:
//! whether there is a node for the class of their tasks now, and if not, whether the reasons are still those that were
//! reported. All jobs of a class share the answer, and it follows from what has changed.
//!
//! That holds for jobs whose turn is no more than this question: all of their tasks wait and are of one class, which looks
//! at no other nodes and has no claims, and nothing is reserved, nominated or held back. The question is asked when it
//! would be their turn, so whatever was decided before counts.

use kube_batch_model::{
    cluster::Cluster,
    column::{ClassIdx, JobIdx},
    status::TaskStatus,
};

use crate::{failure::Failure, plugin::Capacity, session::Session, stuck, tried::LastTry};

impl Session {
    /// Whether the last try of a job was in this action, and holds because none of its tasks fits anywhere as before.
    pub(crate) fn is_still_unfit(&mut self, job: JobIdx) -> bool {
        let Some(LastTry { tried, .. }) =
            self.try_in_action(job).filter(|last| last.holds.while_unfit).cloned()
        else {
            return false;
        };
        let Some(Failure::Unfit(report)) = tried.found.as_ref().map(|found| &*found.failure) else {
            return false;
        };
        let class = self.class_searched_for(job);
        class.is_some_and(|class| self.search().is_unfit(class, report))
    }

    /// The class of the tasks of the job, if its turns only ask whether there is a node for it, and no task of the job has
    /// had a place in this cycle.
    pub(crate) fn class_searched_for(&self, job: JobIdx) -> Option<ClassIdx> {
        let only_searches = !self.evicts()
            && self.fitting(job).iter().all(|(_, n_tasks)| *n_tasks == 0)
            && self.reservations().is_empty()
            && self.holds.is_empty()
            && !self.kept.contains_key(&job)
            && !self.cluster.is_in_larger_gang(job)
            && self.cluster.jobs.incomplete_for[job].is_none()
            && self.plugins().topology(job).is_none()
            && self.is_within_limits(job)
            && !stuck::any(&self.cluster);
        self.only_class(job).filter(|_| only_searches)
    }

    /// The class of the tasks of a job, if there is only one, without claims, and all of them wait.
    fn only_class(&self, job: JobIdx) -> Option<ClassIdx> {
        let Cluster { jobs, tasks, classes, .. } = &self.cluster;
        let n_waiting = jobs.counts[job].of(TaskStatus::Pending) as usize;
        let mut of_tasks = jobs.tasks[job].iter().map(|task| tasks.class[task]);
        let first = of_tasks.next().filter(|_| n_waiting == jobs.tasks[job].len())?;
        let has_claims =
            !classes.devices[first].is_empty() || !classes.template[first].claims.is_empty();
        (!has_claims && of_tasks.all(|class| class == first)).then_some(first)
    }

    /// Whether one task more would keep the limits of its queue.
    fn is_within_limits(&self, job: JobIdx) -> bool {
        let first = self.cluster.jobs.tasks[job].iter().next();
        let kinds = [Capacity::Idle, Capacity::FutureIdle];
        first.is_some_and(|task| {
            kinds.into_iter().all(|kind| self.within_limits(task, &[], kind).is_ok())
        })
    }
}
