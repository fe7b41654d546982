//! What one replica knows of the lock, and what follows from it: no calls, no clock.
//!
//! The caller reads the Lease, passes it to [`Lock::observe`], and asks [`Lock::may_take`]. If so, it
//! writes [`Lock::next_record`], and passes the answer to [`Lock::renewed`]. Every time is an
//! argument: a monotonic [`Instant`] where durations are measured, a [`Timestamp`] only where the
//! record has one for other readers.
//!
//! client-go's `tools/leaderelection` does the same in `tryAcquireOrRenew`.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::{api::coordination::v1::LeaseSpec, apimachinery::pkg::apis::meta::v1::MicroTime};
use tokio::time::Instant;

/// Periods of leader election.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Periods {
    /// How long the lock is valid without renewal; then another replica may take it.
    pub(crate) lease: Duration,
    /// How long this replica leads without renewal. Shorter than `lease`.
    pub(crate) renew_deadline: Duration,
    /// Pause between attempts to take or renew the lock.
    pub(crate) retry: Duration,
}

/// One replica's view of the lock.
#[derive(Debug)]
pub(crate) struct Lock {
    identity: String,
    periods: Periods,
    /// The record as last read, and when it was first read so.
    observed: Option<(LeaseSpec, Instant)>,
    /// When the last write that took or renewed the lock was sent.
    renewed: Option<Instant>,
}

impl Lock {
    /// A lock that this replica has not read yet.
    pub(crate) const fn new(identity: String, periods: Periods) -> Self {
        Self { identity, periods, observed: None, renewed: None }
    }

    pub(crate) fn identity(&self) -> &str {
        &self.identity
    }

    pub(crate) const fn periods(&self) -> &Periods {
        &self.periods
    }

    /// Records what was read at `now`; `None` if there is no Lease.
    pub(crate) fn observe(&mut self, record: Option<LeaseSpec>, now: Instant) {
        let Some(record) = record else {
            self.observed = None;
            return;
        };
        if self.observed.as_ref().is_none_or(|(observed, _)| *observed != record) {
            self.observed = Some((record, now));
        }
    }

    /// The replica that held the lock when it was read last, if another does.
    pub(crate) fn other_holder(&self) -> Option<&str> {
        let (record, _) = self.observed.as_ref()?;
        let holder = record.holder_identity.as_deref()?;
        (!holder.is_empty() && holder != self.identity).then_some(holder)
    }

    /// Whether the lock is free, held by this replica, or expired.
    ///
    /// A foreign lock expires when it has not been seen to change for its duration. The times
    /// within the record are not compared: clocks of two machines differ.
    pub(crate) fn may_take(&self, now: Instant) -> bool {
        let Some((record, since)) = &self.observed else { return true };
        let holder = record.holder_identity.as_deref().unwrap_or_default();
        let seconds = record.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        let lease = seconds.map_or(self.periods.lease, Duration::from_secs);
        holder.is_empty()
            || holder == self.identity
            || now.saturating_duration_since(*since) > lease
    }

    /// The record that takes or renews the lock; `now` is the wall clock, for other readers.
    pub(crate) fn next_record(&self, now: Timestamp) -> LeaseSpec {
        let last = self.observed.as_ref().map(|(record, _)| record);
        let ours = last.filter(|record| self.is_ours(record));
        let transitions = last.and_then(|record| record.lease_transitions).unwrap_or(0);
        let is_transition = last.is_some() && ours.is_none();
        LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: i32::try_from(self.periods.lease.as_secs().max(1)).ok(),
            acquire_time: ours
                .and_then(|record| record.acquire_time.clone())
                .or(Some(MicroTime(now))),
            renew_time: Some(MicroTime(now)),
            lease_transitions: Some(transitions.saturating_add(i32::from(is_transition))),
            ..LeaseSpec::default()
        }
    }

    /// Records that the server accepted a write of this replica: what it answered with, when the
    /// write was sent, and when the answer came.
    pub(crate) fn renewed(&mut self, record: LeaseSpec, sent: Instant, now: Instant) {
        self.observe(Some(record), now);
        self.renewed = Some(sent);
    }

    /// Until when this replica leads without another renewal; `None` if it does not lead.
    ///
    /// Other replicas see the record change when the server stores it, at the earliest when it was
    /// sent. So this moment is `lease - renew_deadline` or more before any of them may take the
    /// lock, however long the answer took.
    pub(crate) fn valid_until(&self) -> Option<Instant> {
        self.renewed.map(|sent| sent + self.periods.renew_deadline)
    }

    /// Records that this replica no longer leads.
    pub(crate) const fn lost(&mut self) {
        self.renewed = None;
    }

    /// The record that releases the lock, as read last; `None` if it is not ours to release.
    pub(crate) fn released_record(&self, now: Timestamp) -> Option<LeaseSpec> {
        let (record, _) = self.observed.as_ref()?;
        self.is_ours(record).then(|| LeaseSpec {
            holder_identity: Some(String::new()),
            lease_duration_seconds: Some(1),
            renew_time: Some(MicroTime(now)),
            ..record.clone()
        })
    }

    fn is_ours(&self, record: &LeaseSpec) -> bool {
        record.holder_identity.as_deref() == Some(&*self.identity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIODS: Periods = Periods {
        lease: Duration::from_secs(15),
        renew_deadline: Duration::from_secs(10),
        retry: Duration::from_secs(2),
    };

    fn lock() -> Lock {
        Lock::new("me".to_owned(), PERIODS)
    }

    fn wall(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    /// A record that `holder` renewed at `second` of its own clock.
    fn held_by(holder: &str, second: i64) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            lease_duration_seconds: Some(15),
            acquire_time: Some(MicroTime(wall(0))),
            renew_time: Some(MicroTime(wall(second))),
            lease_transitions: Some(3),
            ..LeaseSpec::default()
        }
    }

    fn after(start: Instant, seconds: u64) -> Instant {
        start + Duration::from_secs(seconds)
    }

    #[test]
    fn a_lock_that_is_absent_or_without_holder_may_be_taken() {
        let start = Instant::now();
        let free = [None, Some(LeaseSpec::default()), Some(held_by("", 0))];
        for record in free {
            let mut lock = lock();
            lock.observe(record.clone(), start);
            assert!(lock.may_take(start), "{record:?}");
        }
    }

    #[test]
    fn our_own_lock_may_be_renewed_at_any_time() {
        let (mut lock, start) = (lock(), Instant::now());
        lock.observe(Some(held_by("me", 0)), start);
        assert!(lock.may_take(start));
        assert!(lock.may_take(after(start, 1000)));
    }

    #[test]
    fn a_foreign_lock_expires_when_it_has_not_been_seen_to_change() {
        let (mut lock, start) = (lock(), Instant::now());
        // Its holder's clock is far behind, or far ahead: that does not count.
        for second in [-1_000_000, 4_000_000_000] {
            lock.observe(None, start);
            lock.observe(Some(held_by("other", second)), start);
            for seconds in [0, 8, 15] {
                lock.observe(Some(held_by("other", second)), after(start, seconds));
                assert!(!lock.may_take(after(start, seconds)), "after {seconds} s");
            }
            assert!(lock.may_take(after(start, 16)), "its holder has crashed");
        }
    }

    #[test]
    fn a_foreign_lock_that_is_renewed_stays_foreign() {
        let (mut lock, start) = (lock(), Instant::now());
        for renewal in 0..10 {
            let now = after(start, u64::try_from(renewal).expect("small") * 10);
            lock.observe(Some(held_by("other", renewal)), now);
            assert!(!lock.may_take(now));
            assert!(!lock.may_take(after(now, 15)));
        }
    }

    #[test]
    fn a_record_without_a_valid_duration_lasts_as_long_as_ours() {
        let start = Instant::now();
        for seconds in [None, Some(-1), Some(i32::MIN)] {
            let mut lock = lock();
            let record = LeaseSpec { lease_duration_seconds: seconds, ..held_by("other", 0) };
            lock.observe(Some(record), start);
            assert!(!lock.may_take(after(start, 15)), "{seconds:?}");
            assert!(lock.may_take(after(start, 16)), "{seconds:?}");
        }
        let mut lock = lock();
        let longer = LeaseSpec { lease_duration_seconds: Some(60), ..held_by("other", 0) };
        lock.observe(Some(longer), start);
        assert!(!lock.may_take(after(start, 60)), "its holder set this duration");
        assert!(lock.may_take(after(start, 61)));
    }

    #[test]
    fn transitions_count_changes_of_the_holder() {
        let (mut lock, start) = (lock(), Instant::now());
        assert_eq!(lock.next_record(wall(5)).lease_transitions, Some(0), "it is created");
        for (record, transitions) in
            [(held_by("other", 1), 4), (held_by("", 1), 4), (held_by("me", 1), 3)]
        {
            lock.observe(Some(record.clone()), start);
            assert_eq!(
                lock.next_record(wall(5)).lease_transitions,
                Some(transitions),
                "{record:?}"
            );
        }
        lock.observe(Some(LeaseSpec::default()), start);
        assert_eq!(lock.next_record(wall(5)).lease_transitions, Some(1), "it has no record");
    }

    #[test]
    fn a_renewal_keeps_the_time_of_acquisition_and_a_takeover_does_not() {
        let (mut lock, start) = (lock(), Instant::now());
        for (holder, acquired) in [("me", 0), ("other", 5)] {
            lock.observe(Some(held_by(holder, 1)), start);
            let next = lock.next_record(wall(5));
            assert_eq!(next.holder_identity.as_deref(), Some("me"));
            assert_eq!(next.lease_duration_seconds, Some(15));
            assert_eq!(next.acquire_time, Some(MicroTime(wall(acquired))));
            assert_eq!(next.renew_time, Some(MicroTime(wall(5))));
        }
    }

    #[test]
    fn a_leader_stops_before_its_lock_expires_for_others() {
        let (mut ours, mut theirs) = (lock(), Lock::new("other".to_owned(), PERIODS));
        let sent = Instant::now();
        let record = ours.next_record(wall(0));
        // The server stores it at once; the answer takes nine seconds.
        theirs.observe(Some(record.clone()), sent);
        ours.renewed(record, sent, after(sent, 9));
        let end = ours.valid_until().expect("it leads");
        assert_eq!(end, after(sent, 10));
        assert!(!theirs.may_take(end));
        assert!(!theirs.may_take(end + (PERIODS.lease - PERIODS.renew_deadline)));
        ours.lost();
        assert_eq!(ours.valid_until(), None);
    }

    #[test]
    fn only_our_own_lock_is_released() {
        let (mut lock, start) = (lock(), Instant::now());
        assert_eq!(lock.released_record(wall(9)), None);
        for foreign in [held_by("other", 1), held_by("", 1), LeaseSpec::default()] {
            lock.observe(Some(foreign), start);
            assert_eq!(lock.released_record(wall(9)), None);
        }
        lock.observe(Some(held_by("me", 1)), start);
        let released = lock.released_record(wall(9)).expect("it is ours");
        assert_eq!(released.holder_identity.as_deref(), Some(""));
        assert_eq!(released.lease_duration_seconds, Some(1), "for those who only watch the time");
        assert_eq!(released.lease_transitions, Some(3));
        lock.observe(Some(released), start);
        assert!(lock.may_take(start), "by anybody, at once");
    }
}
