//! The words for why pods are missing to the minimum of a job.

use std::fmt;

use crate::{
    facts::batch_job::BatchJobState,
    why::{IdleJob, LastEviction, MissingPods},
};

impl fmt::Display for MissingPods {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { n_gated, n_failed, mistakes, idle_jobs, n_more_idle, evicted } = self;
        if *n_gated > 0 {
            write!(f, " without scheduling gates ({n_gated} gated)")?;
        }
        match n_failed {
            0 => {}
            1 => f.write_str("; 1 more has failed")?,
            _ => write!(f, "; {n_failed} more have failed")?,
        }
        idle_jobs.iter().try_for_each(|job| write!(f, "; {job}"))?;
        match n_more_idle {
            0 => {}
            1 => f.write_str("; 1 more Job creates none")?,
            n => write!(f, "; {n} more Jobs create none")?,
        }
        if let Some(LastEviction { cause, at }) = evicted {
            let at = at.map(|at| format!(" at {at}")).unwrap_or_default();
            write!(f, "; its pods were evicted{at}: {cause}")?;
        }
        mistakes.iter().try_for_each(|mistake| write!(f, "; {mistake}"))
    }
}

impl fmt::Display for IdleJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, state } = self;
        match state {
            BatchJobState::Failed { reason } if reason.is_empty() => {
                write!(f, "Job {name} has failed and creates no more")
            }
            BatchJobState::Failed { reason } => {
                write!(f, "Job {name} has failed ({reason}) and creates no more")
            }
            BatchJobState::Suspended => write!(f, "Job {name} is suspended"),
            BatchJobState::Complete => write!(f, "Job {name} has completed"),
            BatchJobState::Active { .. } => write!(
                f,
                "Job {name} replaces pods that failed or were evicted after a back-off of 10s to 10m"
            ),
        }
    }
}
