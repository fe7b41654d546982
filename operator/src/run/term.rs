//! The times in which this replica leads, as everything that depends on them sees them.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::Notify;

use super::clock::{Clock, Moment};

/// A time in which this replica leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Term {
    /// Counts the terms of this process, from 1: it tells a term from the next one.
    pub(crate) number: u64,
    /// The lease; `None` without leader election.
    pub(crate) lease: Option<Renewed>,
}

/// A lease that was renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Renewed {
    pub(crate) at: Moment,
    /// Nothing may be written this long after, unless it is renewed before.
    pub(crate) lasts: Duration,
}

impl Renewed {
    /// How long it is still valid; zero if it has expired, by either clock.
    pub(crate) fn time_left(&self, now: Moment) -> Duration {
        self.lasts.saturating_sub(now.since(self.at))
    }
}

impl Term {
    /// The only term without leader election.
    pub(crate) const FOREVER: Self = Self { number: 1, lease: None };

    /// How long this replica may still write; zero if the term is over.
    pub(crate) fn time_left(&self, now: Moment) -> Duration {
        self.lease.map_or(Duration::MAX, |lease| lease.time_left(now))
    }
}

/// The term of this replica, now and later. Clones are of the same one.
///
/// tokio's watch channel does the same, but wakes those who wait in random order, and a simulation could
/// not be repeated.
#[derive(Clone, Debug, Default)]
pub(crate) struct Terms(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    term: Mutex<Option<Term>>,
    clock: Clock,
    /// Notified when a term begins or ends.
    changed: Notify,
}

impl Terms {
    /// Terms that end by this clock, and by the monotonic one.
    pub(crate) fn new(clock: Clock) -> Self {
        Self(Arc::new(Inner { clock, ..Inner::default() }))
    }

    /// Begins with this term.
    #[cfg(test)]
    pub(crate) fn with(term: Term) -> Self {
        let terms = Self::default();
        terms.set(Some(term));
        terms
    }

    fn lock(&self) -> MutexGuard<'_, Option<Term>> {
        self.0.term.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The current term; `None` while this replica does not lead.
    pub(crate) fn current(&self) -> Option<Term> {
        *self.lock()
    }

    /// Number of the current term; `None` while this replica does not lead.
    pub(crate) fn number(&self) -> Option<u64> {
        self.current().map(|term| term.number)
    }

    /// How long this replica may still write; zero if it does not lead.
    pub(crate) fn time_left(&self) -> Duration {
        self.current().map_or(Duration::ZERO, |term| term.time_left(self.0.clock.moment()))
    }

    /// Begins a term, or ends it.
    pub(crate) fn set(&self, term: Option<Term>) {
        *self.lock() = term;
        self.0.changed.notify_waiters();
    }

    /// The lease of the current term was renewed.
    pub(crate) fn extend(&self, lease: Option<Renewed>) {
        if let Some(term) = self.lock().as_mut() {
            term.lease = lease;
        }
    }

    /// Waits until this replica leads in another term than `known`, or no longer leads.
    pub(crate) async fn changed_from(&self, known: Option<u64>) {
        loop {
            let changed = self.0.changed.notified();
            if self.number() != known {
                return;
            }
            changed.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};

    use super::*;

    #[tokio::test(flavor = "local", start_paused = true)]
    async fn a_change_is_seen_by_all_who_wait_and_an_extension_is_none() {
        let clock = Clock::ahead(&Arc::default());
        let terms = Terms::new(clock.clone());
        assert_eq!((terms.number(), terms.time_left()), (None, Duration::ZERO));
        let lease =
            |seconds| Some(Renewed { at: clock.moment(), lasts: Duration::from_secs(seconds) });
        let waiting: Vec<_> = (0..3)
            .map(|_| {
                let terms = terms.clone();
                tokio::task::spawn_local(async move { terms.changed_from(None).await })
            })
            .collect();
        tokio::task::yield_now().await;
        terms.set(Some(Term { number: 1, lease: lease(10) }));
        for task in waiting {
            task.await.expect("no panic");
        }
        assert_eq!(terms.time_left(), Duration::from_secs(10));
        terms.extend(lease(15));
        assert_eq!(terms.time_left(), Duration::from_secs(15));
        let changed = tokio::time::timeout(Duration::from_secs(1), terms.changed_from(Some(1)));
        assert!(changed.await.is_err(), "it is the same term");
        terms.set(None);
        terms.changed_from(Some(1)).await;
    }

    #[tokio::test(flavor = "local", start_paused = true)]
    async fn a_term_ends_by_the_clock_that_shows_more_time() {
        let ahead = Arc::new(AtomicI64::new(0));
        let clock = Clock::ahead(&ahead);
        let terms = Terms::new(clock.clone());
        let lease = Renewed { at: clock.moment(), lasts: Duration::from_secs(10) };
        terms.set(Some(Term { number: 1, lease: Some(lease) }));
        tokio::time::advance(Duration::from_secs(3)).await;
        for (seconds, left) in [(0, 7), (-3_600, 7), (5, 2), (7, 0), (3_600, 0)] {
            // The machine was suspended, or its clock was set.
            ahead.store(seconds, Ordering::Relaxed);
            assert_eq!(terms.time_left(), Duration::from_secs(left), "{seconds}");
        }
    }
}
