//! The arguments of the plugin.

use kube_batch_framework::arguments::{ArgumentSpec, Arguments};

/// The arguments of the plugin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PredicatesArguments {
    /// `predicate.MemoryPressureEnable`: nodes under memory pressure refuse best-effort pods.
    pub memory_pressure: bool,
    /// `predicate.DiskPressureEnable`: nodes under disk pressure refuse every pod.
    pub disk_pressure: bool,
    /// `predicate.PIDPressureEnable`: nodes short of process ids refuse every pod.
    pub pid_pressure: bool,
}

/// All arguments.
pub(super) const SPECS: [ArgumentSpec; 3] = [MEMORY_PRESSURE, DISK_PRESSURE, PID_PRESSURE];

const MEMORY_PRESSURE: ArgumentSpec = ArgumentSpec::switch(
    "predicate.MemoryPressureEnable",
    "keep pods of QoS class BestEffort off nodes under memory pressure",
);
const DISK_PRESSURE: ArgumentSpec =
    ArgumentSpec::switch("predicate.DiskPressureEnable", "keep pods off nodes under disk pressure");
const PID_PRESSURE: ArgumentSpec = ArgumentSpec::switch(
    "predicate.PIDPressureEnable",
    "keep pods off nodes that are short of process ids",
);

impl PredicatesArguments {
    pub(super) fn of(arguments: &Arguments) -> Self {
        Self {
            memory_pressure: arguments.bool(&MEMORY_PRESSURE),
            disk_pressure: arguments.bool(&DISK_PRESSURE),
            pid_pressure: arguments.bool(&PID_PRESSURE),
        }
    }
}
