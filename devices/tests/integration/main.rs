//! Which devices a claim gets: cases of Kubernetes, and laws.

mod bounds;
mod cases;
mod fast_path;
mod hardware;
