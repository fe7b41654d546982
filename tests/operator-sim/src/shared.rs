//! The world, as all tasks of an episode share it.

use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::Notify;

use crate::world::World;

/// The world, as those share it that live in it.
#[derive(Clone)]
pub(crate) struct Shared {
    world: Arc<Mutex<World>>,
    /// Notified of every change in the server.
    pub(crate) changed: Arc<Notify>,
}

/// The usual time on the way, in milliseconds.
pub(crate) const USUAL_DELAY_MS: u64 = 20;

impl Shared {
    pub(crate) fn new(world: World) -> Self {
        Self { world: Arc::new(Mutex::new(world)), changed: Arc::new(Notify::new()) }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long the episode has lasted.
    pub(crate) fn elapsed(&self) -> Duration {
        self.lock().elapsed()
    }

    /// Lets watches look for changes.
    pub(crate) fn notify(&self) {
        self.changed.notify_waiters();
    }
}

/// The error of a connection that breaks.
pub(crate) fn reset() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "connection reset")
}
