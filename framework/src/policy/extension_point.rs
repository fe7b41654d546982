//! The extension points at which plugins are called.

/// The extension points that the configuration can disable for a plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ExtensionPoint {
    /// `enableJobOrder`
    JobOrder,
    /// `enableJobReady`
    JobReady,
    /// `enableJobPipelined`
    JobPipelined,
    /// `enableTaskOrder`
    TaskOrder,
    /// `enablePreemptable`
    Preemptable,
    /// `enableReclaimable`
    Reclaimable,
    /// `enableQueueOrder`
    QueueOrder,
    /// `enablePredicate`
    Predicate,
    /// `enableNodeOrder`
    NodeOrder,
}

impl ExtensionPoint {
    /// All, in the order of the documentation.
    pub const ALL: [Self; 9] = [
        Self::JobOrder,
        Self::JobReady,
        Self::JobPipelined,
        Self::TaskOrder,
        Self::Preemptable,
        Self::Reclaimable,
        Self::QueueOrder,
        Self::Predicate,
        Self::NodeOrder,
    ];

    /// The configuration key that enables or disables it.
    pub const fn key(self) -> &'static str {
        match self {
            Self::JobOrder => "enableJobOrder",
            Self::JobReady => "enableJobReady",
            Self::JobPipelined => "enableJobPipelined",
            Self::TaskOrder => "enableTaskOrder",
            Self::Preemptable => "enablePreemptable",
            Self::Reclaimable => "enableReclaimable",
            Self::QueueOrder => "enableQueueOrder",
            Self::Predicate => "enablePredicate",
            Self::NodeOrder => "enableNodeOrder",
        }
    }
}

/// The extension points at which a plugin is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtensionPoints(u16);

impl ExtensionPoints {
    /// Every extension point.
    pub const ALL: Self = Self(u16::MAX);

    /// Whether this one is among them.
    pub const fn has(self, point: ExtensionPoint) -> bool {
        self.0 & (1 << point as u8) != 0
    }

    /// Without this one.
    #[must_use]
    pub const fn without(self, point: ExtensionPoint) -> Self {
        Self(self.0 & !(1 << point as u8))
    }
}
