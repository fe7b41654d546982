//! Metrics of jobs and queues, from the report of a cycle.
//!
//! Series of jobs and queues that are gone are removed by the first cycle without them.

use std::{collections::HashSet, sync::Arc};

use kube_batch_api::quantity::Quantity;
use kube_batch_framework::report::{Cycle, JobReport, Phase, QueueReport};

use super::metrics::{Job, Metrics, Queue, QueuePhase, QueueResource};

/// Writes metrics, and remembers which series the last cycle left.
pub(crate) struct ReportMetrics {
    metrics: Arc<Metrics>,
    unready_jobs: HashSet<Job>,
    queues: HashSet<Queue>,
    resources: HashSet<QueueResource>,
}

impl ReportMetrics {
    pub(crate) fn new(metrics: Arc<Metrics>) -> Self {
        Self {
            metrics,
            unready_jobs: HashSet::new(),
            queues: HashSet::new(),
            resources: HashSet::new(),
        }
    }

    pub(crate) fn record(&mut self, cycle: &Cycle) {
        self.record_jobs(&cycle.jobs);
        self.record_queues(&cycle.queues);
    }

    fn record_jobs(&mut self, jobs: &[JobReport]) {
        let mut unready = HashSet::new();
        for report in jobs.iter().filter(|report| report.unschedulable.is_some()) {
            let job = Job { job_id: report.key.to_string() };
            self.metrics.unready_tasks.get_or_create(&job).set(report.lacking.into());
            self.metrics.job_retries.get_or_create(&job).inc();
            unready.insert(job);
        }
        self.metrics.unready_jobs.set(i64::try_from(unready.len()).unwrap_or(i64::MAX));
        for gone in self.unready_jobs.difference(&unready) {
            self.metrics.unready_tasks.remove(gone);
            self.metrics.job_retries.remove(gone);
        }
        self.unready_jobs = unready;
    }

    fn record_queues(&mut self, reports: &[QueueReport]) {
        let (mut queues, mut resources) = (HashSet::new(), HashSet::new());
        for report in reports {
            let name = report.queue.name.to_string();
            let queue = Queue { queue: name.clone() };
            let share = report.closing.as_ref().map_or(0.0, |shares| shares.share.as_f64());
            self.metrics.queue_share.get_or_create(&queue).set(share);
            for (amounts, gauge) in [
                (&report.deserved, &self.metrics.queue_deserved),
                (&report.allocated, &self.metrics.queue_allocated),
            ] {
                for (resource, amount) in amounts {
                    let labels = QueueResource { queue: name.clone(), resource: resource.clone() };
                    let value: Option<Quantity> = amount.parse().ok();
                    gauge.get_or_create(&labels).set(value.map_or(0.0, |v| v.milli() as f64 / 1e3));
                    resources.insert(labels);
                }
            }
            for phase in Phase::ALL {
                let labels = QueuePhase { queue: name.clone(), phase: phase.name() };
                let count = report.groups.get(&phase).copied().unwrap_or(0);
                self.metrics.queue_groups.get_or_create(&labels).set(count.into());
            }
            queues.insert(queue);
        }
        for gone in self.queues.difference(&queues) {
            self.metrics.queue_share.remove(gone);
            for phase in Phase::ALL {
                let labels = QueuePhase { queue: gone.queue.clone(), phase: phase.name() };
                self.metrics.queue_groups.remove(&labels);
            }
        }
        for gone in self.resources.difference(&resources) {
            self.metrics.queue_deserved.remove(gone);
            self.metrics.queue_allocated.remove(gone);
        }
        (self.queues, self.resources) = (queues, resources);
    }
}
