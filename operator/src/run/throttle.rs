//! How often the status of an object is written when only numbers change.
//!
//! While a gang of ten thousand starts, its count of running pods changes with every cycle; while
//! a cluster is full, so do the numbers in every message. A change of state is written at once, a
//! change of numbers some time after the last write. That a gang lacks pods is written only if it
//! still does after a second: controllers create the pods of a Job one by one. So is that a pod lacks a
//! claim from a template.

use std::{collections::HashMap, time::Duration};

use kube_batch_scheduler::writes::Urgency;
use tokio::time::Instant;

/// The longest of these times.
const LONGEST: Duration = Duration::from_secs(60);

/// The shortest time since the last write, or, while a gang or a pod forms, since it was first seen. Guessed:
/// short enough for a user who watches.
const fn min_interval(urgency: Urgency) -> Duration {
    match urgency {
        Urgency::State => Duration::ZERO,
        Urgency::Forming | Urgency::Count => Duration::from_secs(1),
        Urgency::Text => Duration::from_secs(10),
        Urgency::PodText => LONGEST,
    }
}

/// When each object was last written, or first seen to form.
#[derive(Debug)]
pub(crate) struct Throttle<K>(HashMap<K, Instant>);

impl<K> Default for Throttle<K> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<K: std::hash::Hash + Eq> Throttle<K> {
    /// Allows a change of this urgency to be written now, or returns when it may be.
    ///
    /// # Errors
    ///
    /// The moment from which on it may be written.
    pub(crate) fn admit(
        &mut self,
        object: K,
        urgency: Urgency,
        now: Instant,
    ) -> Result<(), Instant> {
        let forms = (urgency == Urgency::Forming).then_some(now);
        let last = self.0.get(&object).copied().or(forms);
        if let Some(due) = last.map(|last| last + min_interval(urgency)).filter(|due| *due > now) {
            self.0.entry(object).or_insert(now);
            return Err(due);
        }
        self.0.insert(object, now);
        Ok(())
    }

    /// Removes what delays nothing any more.
    pub(crate) fn sweep(&mut self, now: Instant) {
        self.0.retain(|_, last| *last + LONGEST > now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_wait_and_states_do_not() {
        let mut throttle = Throttle::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(throttle.admit("a", Urgency::Text, at(0)), Ok(()));
        assert_eq!(throttle.admit("a", Urgency::Text, at(1)), Err(at(10)));
        assert_eq!(throttle.admit("b", Urgency::Text, at(1)), Ok(()));
        assert_eq!(throttle.admit("a", Urgency::Count, at(1)), Ok(()));
        assert_eq!(throttle.admit("a", Urgency::Count, at(1)), Err(at(2)));
        assert_eq!(throttle.admit("a", Urgency::State, at(1)), Ok(()));
        assert_eq!(throttle.admit("a", Urgency::Text, at(10)), Err(at(11)));
        assert_eq!(throttle.admit("a", Urgency::PodText, at(60)), Err(at(61)));
        throttle.sweep(at(60));
        assert_eq!(throttle.0.len(), 2);
        throttle.sweep(at(61));
        assert_eq!(throttle.0.len(), 0);
    }

    #[test]
    fn missing_pods_are_reported_after_a_second() {
        let mut throttle = Throttle::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(throttle.admit("lacks pods", Urgency::Forming, at(0)), Err(at(1)));
        assert_eq!(throttle.admit("lacks pods", Urgency::Forming, at(1)), Ok(()));
        assert_eq!(throttle.admit("starts", Urgency::Forming, at(0)), Err(at(1)));
        assert_eq!(throttle.admit("starts", Urgency::State, at(0)), Ok(()));
    }
}
