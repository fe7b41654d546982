//! Runs of the simulation that must not change, and episodes in which a rule was broken once.

mod determinism;
mod episodes;
