//! Laws of queues that form a tree.

mod division;
mod exact;
mod played;
