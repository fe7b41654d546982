//! Laws of the plugins, and cases whose expectations come from Kubernetes.

mod binpack;
mod filters;
mod moves;
mod oracle;
mod random_cluster;
mod rules;
mod world;
