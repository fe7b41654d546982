//! Cases of Kubernetes, and laws for every expression.

mod cases;
mod properties;
