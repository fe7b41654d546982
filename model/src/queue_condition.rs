//! What the conditions of a queue say.
// Parity: new, see docs/parity.md#q15.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{name::Name, null::null_is_default, people, problem::PathProblem, seconds::in_seconds};

/// Whether a queue starts jobs.
pub const ACTIVE: &str = "Active";

/// Whether more is promised below a queue than there is.
pub const OVERSUBSCRIBED: &str = "Oversubscribed";

/// One observation about a queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct QueueCondition {
    /// What is observed: Active or Oversubscribed.
    #[serde(rename = "type", deserialize_with = "null_is_default")]
    pub type_: String,
    /// True or False.
    #[serde(deserialize_with = "null_is_default")]
    pub status: String,
    /// One word for programs.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// A sentence for people.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// When the status last changed.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "in_seconds")]
    pub last_transition_time: Option<Timestamp>,
    /// The generation of the queue that was observed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// Why a queue starts no jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inactive {
    /// Its path does not end at the top.
    Path(PathProblem),
    /// It is closed, or this queue above it is.
    Closed(Option<Name>),
}

impl Inactive {
    /// One word for programs.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Path(PathProblem::ParentNotFound { .. }) => "ParentNotFound",
            Self::Path(PathProblem::Loop { .. }) => "ParentLoop",
            Self::Path(PathProblem::TooDeep { .. }) => "TooDeep",
            Self::Closed(_) => "Closed",
        }
    }
}

impl fmt::Display for Inactive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(problem) => problem.fmt(f),
            Self::Closed(None) => f.write_str("closed"),
            Self::Closed(Some(above)) => write!(f, "\"{above}\", above it, is closed"),
        }
    }
}

/// What is promised below a queue, or at the top, beyond what there is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Oversubscribed {
    /// Whether guarantees are too much; otherwise what is deserved by number.
    pub is_guaranteed: bool,
    /// The resource.
    pub resource: Name,
    /// What is promised together.
    pub promised: i64,
    /// What there is to promise.
    pub available: i64,
    /// Whether that is the total of the cluster, and not that of the queue itself.
    pub is_at_top: bool,
}

impl Oversubscribed {
    /// One word for programs.
    pub const fn reason(&self) -> &'static str {
        if self.is_guaranteed { "Guarantees" } else { "Deserved" }
    }
}

impl fmt::Display for Oversubscribed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { is_guaranteed, resource, promised, available, is_at_top } = self;
        let whose = if *is_at_top { "all queues at the top" } else { "its queues" };
        let amounts = [promised, available].map(|amount| people::amount(resource, *amount));
        let [promised_amount, available_amount] = amounts;
        let holder = if *is_at_top { "the cluster has" } else { "it deserves" };
        match is_guaranteed {
            true => write!(
                f,
                "the guarantees of {whose} are {promised_amount} {resource}, and {holder} {available_amount}: each gets {}",
                part_of(*available, *promised)
            ),
            false if *is_at_top => write!(
                f,
                "{whose} are promised {promised_amount} {resource}, and {holder} {available_amount}"
            ),
            false => write!(
                f,
                "{whose} are promised {promised_amount} {resource}, and its own number is {available_amount}"
            ),
        }
    }
}

/// A fraction in words: `two thirds`, `7/9`, `41 %`.
fn part_of(part: i64, whole: i64) -> String {
    let (mut l, mut r) = (part.max(0), whole.max(1));
    while r != 0 {
        (l, r) = (r, l % r);
    }
    let common = l.max(1);
    match (part.max(0) / common, whole.max(1) / common) {
        (0, _) => "nothing".to_owned(),
        (1, 2) => "half".to_owned(),
        (1, 3) => "one third".to_owned(),
        (2, 3) => "two thirds".to_owned(),
        (1, 4) => "a quarter".to_owned(),
        (3, 4) => "three quarters".to_owned(),
        (part, whole) if whole < 100 => format!("{part}/{whole}"),
        (part, whole) => format!("{} %", i128::from(part) * 100 / i128::from(whole)),
    }
}

/// Sets a condition. Returns whether its status has changed.
pub fn set_condition(conditions: &mut Vec<QueueCondition>, next: QueueCondition) -> bool {
    match conditions.iter_mut().find(|own| own.type_ == next.type_) {
        None => {
            conditions.push(next);
            true
        }
        Some(own) => {
            let has_changed = own.status != next.status;
            let since =
                if has_changed { next.last_transition_time } else { own.last_transition_time };
            *own = QueueCondition { last_transition_time: since, ..next };
            has_changed
        }
    }
}
