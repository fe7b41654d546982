//! Control planes that several tests use, one after the other.
//!
//! A start takes a hundred times as much of the processors as the cleaning of a control plane between two tests.
//! A plane is only used again if all its objects are as they were before the first test; any other is thrown away,
//! so a test never depends on the tests before it.

use std::{
    ops::{Deref, DerefMut},
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
};

use crate::{
    cluster::{ControlPlane, Options, snapshot::Snapshot},
    error::Result,
    janitor::Janitor,
};

/// Maximum number of idle planes. Tests of one kind often follow one another, so a plane that is idle for long is of a
/// kind that the next tests do not need.
const N_IDLE: usize = 2;

/// A pool of control planes, for a `static`.
#[derive(Debug, Default)]
pub struct Pool {
    /// The last one was used last.
    idle: Mutex<Vec<Idle>>,
}

/// What planes must have in common to be used one for the other.
#[derive(Clone, Debug, PartialEq)]
struct Kind {
    options: Options,
    state: &'static str,
}

/// A plane that no test uses.
#[derive(Debug)]
struct Idle {
    kind: Kind,
    plane: ControlPlane,
    snapshot: Snapshot,
    janitor: Janitor,
}

impl Pool {
    /// An empty pool.
    pub const fn new() -> Self {
        Self { idle: Mutex::new(Vec::new()) }
    }

    /// A control plane with these options for a test: a clean one, or a new one. `state` names what callers prepare in
    /// a new one before they call [`PooledPlane::remember`].
    ///
    /// # Errors
    ///
    /// Those of [`ControlPlane::start`].
    pub fn take(
        &'static self,
        test: &str,
        options: Options,
        state: &'static str,
    ) -> Result<PooledPlane> {
        let kind = Kind { options, state };
        while let Some(idle) = self.remove(&kind) {
            match idle.clean(test) {
                Ok((plane, snapshot)) => {
                    return Ok(PooledPlane {
                        plane: Some(plane),
                        kind,
                        snapshot: Some(snapshot),
                        pool: self,
                    });
                }
                Err(error) => eprintln!("a control plane is not used again: {error}"),
            }
        }
        self.remove_oldest();
        let mut plane = ControlPlane::start(kind.options.clone())?;
        plane.begin_use(test)?;
        Ok(PooledPlane { plane: Some(plane), kind, snapshot: None, pool: self })
    }

    /// Takes out the plane of this kind that was used last.
    fn remove(&self, kind: &Kind) -> Option<Idle> {
        let mut idle = self.idle();
        let row = idle.iter().rposition(|idle| idle.kind == *kind)?;
        Some(idle.remove(row))
    }

    /// Ends the plane that has been idle for longest, if there are too many.
    fn remove_oldest(&self) {
        let mut idle = self.idle();
        let oldest = (idle.len() >= N_IDLE).then(|| idle.remove(0));
        // Others need not wait until its servers have ended.
        drop(idle);
        if let Some(oldest) = oldest {
            oldest.end();
        }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Idle>> {
        // Nothing panics while it is locked.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Idle {
    /// Cleans the plane for a test.
    fn clean(self, test: &str) -> Result<(ControlPlane, Snapshot)> {
        let Self { mut plane, mut snapshot, janitor, kind: _ } = self;
        janitor.dismiss();
        plane.expect_running()?;
        plane.restore(&mut snapshot)?;
        plane.begin_use(test)?;
        Ok((plane, snapshot))
    }

    fn end(self) {
        drop(self.plane);
        self.janitor.dismiss();
    }
}

/// A control plane that one test uses. When it is dropped, the plane goes back to its pool, unless the test panics,
/// has stopped a server, or has prepared nothing that was remembered.
#[derive(Debug)]
pub struct PooledPlane {
    /// `None` only while this is being dropped.
    plane: Option<ControlPlane>,
    kind: Kind,
    /// What the plane is like at the beginning of a test; `None` while it is being prepared.
    snapshot: Option<Snapshot>,
    pool: &'static Pool,
}

impl PooledPlane {
    /// Whether the plane still has to be prepared.
    pub fn is_new(&self) -> bool {
        self.snapshot.is_none()
    }

    /// Remembers the objects of the plane: later tests begin with the same. The audit log begins now.
    ///
    /// # Errors
    ///
    /// Those of [`ControlPlane::snapshot`].
    pub fn remember(&mut self) -> Result<()> {
        self.snapshot = Some(self.snapshot()?);
        self.begin_audit()
    }
}

impl Deref for PooledPlane {
    type Target = ControlPlane;

    fn deref(&self) -> &ControlPlane {
        self.plane.as_ref().expect("the plane is there until this is dropped")
    }
}

impl DerefMut for PooledPlane {
    fn deref_mut(&mut self) -> &mut ControlPlane {
        self.plane.as_mut().expect("the plane is there until this is dropped")
    }
}

impl Drop for PooledPlane {
    fn drop(&mut self) {
        let (Some(plane), Some(snapshot)) = (self.plane.take(), self.snapshot.take()) else {
            return;
        };
        if thread::panicking() || !plane.is_as_started() {
            return;
        }
        // Without a janitor, the files of the plane would stay when this process ends.
        if let Ok(janitor) = Janitor::start(&plane.root(), &plane.process_ids()) {
            self.pool.idle().push(Idle { kind: self.kind.clone(), plane, snapshot, janitor });
        }
    }
}
