//! The times in which this replica leads, as everything that depends on them sees them.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};

/// A time in which this replica leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Term {
    /// Counts the terms of this process, from 1: it tells a term from the next one.
    pub(crate) number: u64,
    /// Nothing may be written from then on, unless the lease is renewed before; `None` without leader
    /// election.
    pub(crate) valid_until: Option<Instant>,
}

impl Term {
    /// The only term without leader election.
    pub(crate) const FOREVER: Self = Self { number: 1, valid_until: None };

    /// How long this replica may still write; zero if the term is over.
    pub(crate) fn time_left(&self) -> Duration {
        let until = |until: Instant| until.saturating_duration_since(Instant::now());
        self.valid_until.map_or(Duration::MAX, until)
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
    /// Notified when a term begins or ends.
    changed: Notify,
}

impl Terms {
    /// Begins with this term.
    #[cfg(test)]
    pub(crate) fn new(term: Option<Term>) -> Self {
        Self(Arc::new(Inner { term: Mutex::new(term), changed: Notify::new() }))
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
        self.current().map_or(Duration::ZERO, |term| term.time_left())
    }

    /// Begins a term, or ends it.
    pub(crate) fn set(&self, term: Option<Term>) {
        *self.lock() = term;
        self.0.changed.notify_waiters();
    }

    /// The lease of the current term was renewed.
    pub(crate) fn extend(&self, valid_until: Option<Instant>) {
        if let Some(term) = self.lock().as_mut() {
            term.valid_until = valid_until;
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
    use super::*;

    #[tokio::test(flavor = "local", start_paused = true)]
    async fn a_change_is_seen_by_all_who_wait_and_an_extension_is_none() {
        let terms = Terms::default();
        assert_eq!((terms.number(), terms.time_left()), (None, Duration::ZERO));
        let valid_until = |seconds| Some(Instant::now() + Duration::from_secs(seconds));
        let waiting: Vec<_> = (0..3)
            .map(|_| {
                let terms = terms.clone();
                tokio::task::spawn_local(async move { terms.changed_from(None).await })
            })
            .collect();
        tokio::task::yield_now().await;
        terms.set(Some(Term { number: 1, valid_until: valid_until(10) }));
        for task in waiting {
            task.await.expect("no panic");
        }
        assert_eq!(terms.time_left(), Duration::from_secs(10));
        terms.extend(valid_until(15));
        assert_eq!(terms.time_left(), Duration::from_secs(15));
        let changed = tokio::time::timeout(Duration::from_secs(1), terms.changed_from(Some(1)));
        assert!(changed.await.is_err(), "it is the same term");
        terms.set(None);
        terms.changed_from(Some(1)).await;
    }
}
