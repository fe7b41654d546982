//! The processes of the scheduler: how they are started, stopped, killed and frozen.

use std::{
    cell::{Cell, RefCell},
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, Waker},
};

use futures::{FutureExt, future::LocalBoxFuture};
use jiff::Timestamp;
use kube_batch::{
    Registry,
    replica::{Clock, Replica, Surroundings, View},
};
use tokio::{
    task::{JoinHandle, LocalSet},
    time::{Duration, Instant, sleep},
};
use tokio_util::sync::CancellationToken;

use crate::shared::Shared;

/// The time of day at which every episode begins.
const BEGIN: i64 = 1_800_000_000;

/// A process of the scheduler.
pub(crate) struct Process {
    /// Its number in the world.
    pub(crate) number: usize,
    pub(crate) view: View,
    stop: CancellationToken,
    frozen: Freezer,
    task: JoinHandle<()>,
}

/// The clock of one machine: what it shows differs from the time that has passed.
pub(crate) type Offset = std::sync::Arc<std::sync::atomic::AtomicI64>;

/// The time that a correct clock shows this long after an episode began.
pub(crate) fn true_time(elapsed: Duration) -> Timestamp {
    let micros = i64::try_from(elapsed.as_micros()).expect("a short episode");
    Timestamp::from_microsecond(BEGIN * 1_000_000 + micros).expect("a time")
}

impl Process {
    /// Starts a process in the place of a replica, whose configuration must be valid.
    pub(crate) fn start(
        shared: &Shared,
        registry: &Registry,
        (replica, identity): (usize, &str),
        offset: &Offset,
    ) -> Self {
        let number = shared.lock().add_process(identity);
        shared.lock().log(&format!("{identity} starts"));
        let (begin, offset) = (Instant::now() - shared.elapsed(), offset.clone());
        let clock = Clock::new(move || {
            let seconds = offset.load(std::sync::atomic::Ordering::Relaxed);
            let passed = i64::try_from(begin.elapsed().as_micros()).expect("a short episode");
            Timestamp::from_microsecond((BEGIN + seconds) * 1_000_000 + passed).expect("a time")
        });
        let world = shared.clone();
        let end_of_cycle = Rc::new(move || {
            // Most cycles are short.
            let millis = {
                let rng = &mut world.lock().rng;
                if rng.u32(0..20) == 0 { rng.u64(0..3_000) } else { rng.u64(0..5) }
            };
            sleep(Duration::from_millis(millis)).boxed_local()
        });
        let world = shared.clone();
        let configuration = Rc::new(move || {
            let world = world.lock();
            world.text_of(world.configuration(replica))
        });
        let surroundings = Surroundings {
            client: shared.client(number),
            identity: identity.to_owned(),
            clock,
            end_of_cycle,
            configuration,
        };
        let flags = ["--leader-elect=true", "--lock-object-namespace=kube-batch-system"];
        let replica = Replica::new(&flags, registry, surroundings).expect("a configuration");
        let (view, stop, frozen) = (replica.view(), CancellationToken::new(), Freezer::default());
        let stopped = stop.clone();
        let (world, name) = (shared.clone(), identity.to_owned());
        let run = async move {
            // Everything that the process spawns is in this set, and stops with it.
            let set = LocalSet::new();
            let ended = set.run_until(replica.run(stopped.cancelled_owned())).await;
            match ended {
                Ok(()) => world.lock().log(&format!("{name} has ended")),
                // It would be started again.
                Err(error) => world.lock().break_rule(format!("{name} failed: {error:#}")),
            }
        };
        let task = tokio::task::spawn_local(frozen.apply_to(run.boxed_local()));
        Self { number, view, stop, frozen, task }
    }

    /// Whether it has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.task.is_finished()
    }

    /// Asks it to end.
    pub(crate) fn terminate(&self) {
        self.stop.cancel();
    }

    /// Ends it at once.
    pub(crate) fn kill(&self) {
        self.task.abort();
    }

    /// Stops it from doing anything until [`Self::thaw`].
    pub(crate) fn freeze(&self) {
        self.frozen.is_frozen.set(true);
    }

    pub(crate) fn thaw(&self) {
        self.frozen.is_frozen.set(false);
        if let Some(waker) = self.frozen.waker.borrow_mut().take() {
            waker.wake();
        }
    }
}

/// Keeps a future from being polled.
#[derive(Clone, Default)]
struct Freezer {
    is_frozen: Rc<Cell<bool>>,
    waker: Rc<RefCell<Option<Waker>>>,
}

impl Freezer {
    fn apply_to(&self, future: LocalBoxFuture<'static, ()>) -> Frozen {
        Frozen { freezer: self.clone(), future }
    }
}

struct Frozen {
    freezer: Freezer,
    future: LocalBoxFuture<'static, ()>,
}

impl Future for Frozen {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.freezer.is_frozen.get() {
            *self.freezer.waker.borrow_mut() = Some(context.waker().clone());
            return Poll::Pending;
        }
        self.future.as_mut().poll(context)
    }
}
