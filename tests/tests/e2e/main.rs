//! End-to-end tests of the scheduler with a real API server.
//!
//! Each test has a control plane of its own while it runs, which has been cleaned if another test used it before.
//! The scheduler runs as a separate process with the service account and the role in `deploy/`. Tests use `kubectl`
//! where a user would.

mod admission_policy;
mod api_usage;
mod bed;
mod certificates;
mod changes;
mod chart;
mod devices;
mod evicted_jobs;
mod evictions;
mod first_contact;
mod gangs;
mod half_bound;
mod install;
mod manifests;
mod objects;
mod other_groups;
mod outages;
mod process;
mod proxy;
mod queues;
mod reader;
mod relay;
mod replicas;
mod reservations;
mod scenarios;
mod silence;
mod simulate;
mod users;
mod waiting;
mod webhooks;
mod whole_gangs;
