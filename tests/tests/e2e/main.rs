//! The scheduler against a real API server: a control plane for each test, the scheduler as a
//! process of its own under the rights that `deploy/` gives it, and `kubectl` where a user would
//! use it.

mod bed;
mod changes;
mod conduct;
mod evictions;
mod gangs;
mod install;
mod objects;
mod outages;
mod process;
mod proxy;
mod scenarios;
