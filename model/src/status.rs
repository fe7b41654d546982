//! The status of a task, what it adds to the ledgers of its node, and the allowed transitions.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::column::NodeIdx;

/// The state of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum TaskStatus {
    /// Waits for a node.
    Pending,
    /// Has idle resources of a node since this cycle; not yet sent to the API server.
    Allocated,
    /// Nominated for a node on which resources are still being released.
    Pipelined,
    /// The binding is being sent to the API server.
    Binding,
    /// Bound to a node, not yet running.
    Bound,
    /// Running on a node.
    Running,
    /// Terminating, or evicted in this cycle; its resources become idle soon.
    Releasing,
    /// Terminating for too long: its resources are not counted on. Exists only within a cycle.
    // Parity: see docs/parity.md#p13.
    Stuck,
    /// Finished successfully.
    Succeeded,
    /// Finished with an error.
    Failed,
    /// The node does not report it.
    Unknown,
}

/// Number of task states.
pub const N_STATUSES: usize = 11;

/// What one task's request does to its node's ledgers: -1, 0 or +1 times the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charge {
    /// Resources that no task holds.
    pub idle: i64,
    /// Resources held by tasks that are being terminated.
    pub releasing: i64,
    /// Resources nominated for pipelined tasks.
    pub pipelined: i64,
    /// Resources held or nominated.
    pub used: i64,
}

impl TaskStatus {
    /// All states, in declaration order.
    pub const ALL: [Self; N_STATUSES] = [
        Self::Pending,
        Self::Allocated,
        Self::Pipelined,
        Self::Binding,
        Self::Bound,
        Self::Running,
        Self::Releasing,
        Self::Stuck,
        Self::Succeeded,
        Self::Failed,
        Self::Unknown,
    ];

    /// What a task of this status adds to each ledger of its node. Removing the task subtracts the
    /// same.
    pub const fn charge(self) -> Charge {
        match self {
            Self::Releasing => Charge { idle: -1, releasing: 1, pipelined: 0, used: 1 },
            Self::Pipelined => Charge { idle: 0, releasing: 0, pipelined: 1, used: 1 },
            Self::Allocated
            | Self::Binding
            | Self::Bound
            | Self::Running
            | Self::Stuck
            | Self::Unknown => Charge { idle: -1, releasing: 0, pipelined: 0, used: 1 },
            Self::Pending | Self::Succeeded | Self::Failed => {
                Charge { idle: 0, releasing: 0, pipelined: 0, used: 0 }
            }
        }
    }

    /// Whether a session may move a task from this state to `next`.
    ///
    /// What the API server reports is an observation and is not checked against this table.
    pub const fn may_become(self, next: Self) -> bool {
        match self {
            Self::Pending => matches!(next, Self::Allocated | Self::Pipelined),
            Self::Allocated => matches!(next, Self::Binding),
            Self::Bound | Self::Running => matches!(next, Self::Releasing),
            Self::Pipelined
            | Self::Binding
            | Self::Releasing
            | Self::Stuck
            | Self::Succeeded
            | Self::Failed
            | Self::Unknown => false,
        }
    }

    /// Whether a task may be evicted, as far as its status decides.
    pub const fn may_be_evicted(self) -> bool {
        self.may_become(Self::Releasing)
    }

    /// Counts toward the minimum of its job.
    pub const fn is_ready(self) -> bool {
        match self {
            Self::Allocated | Self::Binding | Self::Bound | Self::Running | Self::Succeeded => true,
            Self::Pending
            | Self::Pipelined
            | Self::Releasing
            | Self::Stuck
            | Self::Failed
            | Self::Unknown => false,
        }
    }

    /// Could count toward the minimum of its job: ready, nominated, or waiting.
    pub const fn is_valid(self) -> bool {
        self.is_ready() || matches!(self, Self::Pending | Self::Pipelined)
    }

    /// Counts as held by its job and queue when shares are computed.
    // Parity: pipelined counts, see docs/parity.md#d5.
    pub const fn is_held(self) -> bool {
        match self {
            Self::Allocated | Self::Pipelined | Self::Binding | Self::Bound | Self::Running => true,
            Self::Pending
            | Self::Releasing
            | Self::Stuck
            | Self::Succeeded
            | Self::Failed
            | Self::Unknown => false,
        }
    }

    /// Has a node by a decision that the API server has not confirmed yet.
    pub const fn is_being_placed(self) -> bool {
        match self {
            Self::Allocated | Self::Pipelined | Self::Binding => true,
            Self::Pending
            | Self::Bound
            | Self::Running
            | Self::Releasing
            | Self::Stuck
            | Self::Succeeded
            | Self::Failed
            | Self::Unknown => false,
        }
    }

    /// Occupies its node: has a pod there that has not finished.
    pub const fn is_on_node(self) -> bool {
        self.charge().used != 0
    }
}

impl fmt::Display for TaskStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pending => "Pending",
            Self::Allocated => "Allocated",
            Self::Pipelined => "Pipelined",
            Self::Binding => "Binding",
            Self::Bound => "Bound",
            Self::Running => "Running",
            Self::Releasing => "Releasing",
            Self::Stuck => "Stuck",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
            Self::Unknown => "Unknown",
        })
    }
}

/// The status and node of a task: all that a session may change about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Its state.
    pub status: TaskStatus,
    /// The node it is on or nominated for. `None` as well when the node is not in the snapshot.
    pub node: Option<NodeIdx>,
}

impl Placement {
    /// Waiting, nowhere.
    pub const PENDING: Self = Self { status: TaskStatus::Pending, node: None };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_is_not_idle_or_is_nominated() {
        for status in TaskStatus::ALL {
            let charge = status.charge();
            assert_eq!(charge.used, -charge.idle + charge.pipelined, "{status}");
            assert!(charge.releasing <= charge.used, "{status}");
        }
    }

    #[test]
    fn ready_tasks_are_valid_and_no_state_becomes_itself() {
        for status in TaskStatus::ALL {
            assert!(status.is_valid() || !status.is_ready(), "{status}");
            assert!(!status.may_become(status), "{status}");
        }
    }
}
