//! Background tasks that must not end unnoticed.
//!
//! A task that panics or returns is logged and counted. Then either the process ends with an error,
//! or the task starts again after a pause: the caller that spawns a task chooses, and says why.

use std::{any::Any, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use anyhow::anyhow;
use futures::FutureExt;
use tokio::{task::JoinSet, time::Instant};
use tracing::error;

use super::metrics::{Metrics, Task};

/// The pause before the first restart of a task, doubled with each one.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// The longest pause before a restart. A task that ran for longer starts from the first one again.
/// Guessed: soon enough for a scheduler that waits for it, and no load if it never succeeds.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The background tasks of the process.
pub(crate) struct Supervisor {
    /// Each returns when it is not to be started again: with an error, if the process must end.
    tasks: JoinSet<anyhow::Result<()>>,
    metrics: Arc<Metrics>,
}

impl Supervisor {
    pub(crate) fn new(metrics: Arc<Metrics>) -> Self {
        Self { tasks: JoinSet::new(), metrics }
    }

    /// Runs a task that the process cannot go on without: see [`Self::failed`].
    pub(crate) fn spawn_required<F>(&mut self, name: &'static str, task: F)
    where
        F: Future<Output = ()> + 'static,
    {
        let metrics = Arc::clone(&self.metrics);
        self.tasks.spawn_local(async move {
            if contain(name, &metrics, task).await.is_ok() {
                report(name, &metrics, "it returned");
            }
            Err(anyhow!("the background task {name} ended unexpectedly"))
        });
    }

    /// Runs a task that never returns, and starts it again if it does or panics.
    pub(crate) fn spawn_restarted<F>(
        &mut self,
        name: &'static str,
        start: impl FnMut() -> F + 'static,
    ) where
        F: Future<Output = ()> + 'static,
    {
        self.spawn(name, Return::IsFailure, start);
    }

    /// Runs a task that returns when its work is done, and starts it again if it panics.
    pub(crate) fn spawn_until_done<F>(
        &mut self,
        name: &'static str,
        start: impl FnMut() -> F + 'static,
    ) where
        F: Future<Output = ()> + 'static,
    {
        self.spawn(name, Return::IsDone, start);
    }

    fn spawn<F>(
        &mut self,
        name: &'static str,
        on_return: Return,
        mut start: impl FnMut() -> F + 'static,
    ) where
        F: Future<Output = ()> + 'static,
    {
        let metrics = Arc::clone(&self.metrics);
        self.tasks.spawn_local(async move {
            let mut pauses = Pauses::default();
            loop {
                let started = Instant::now();
                match (contain(name, &metrics, start()).await, on_return) {
                    (Ok(()), Return::IsDone) => return Ok(()),
                    (Ok(()), Return::IsFailure) => report(name, &metrics, "it returned"),
                    (Err(Panicked), _) => {}
                }
                tokio::time::sleep(pauses.after_run_of(started.elapsed())).await;
            }
        });
    }

    /// Waits until a required task has ended, and returns that as an error.
    pub(crate) async fn failed(&mut self) -> anyhow::Error {
        while let Some(ended) = self.tasks.join_next().await {
            match ended {
                Ok(Ok(())) => {}
                Ok(Err(error)) => return error,
                Err(error) => {
                    return anyhow!(error).context("a background task ended unexpectedly");
                }
            }
        }
        std::future::pending().await
    }

    /// Stops all tasks, whatever they do.
    pub(crate) async fn shutdown(mut self) {
        self.tasks.shutdown().await;
    }
}

/// What it means that a restarted task returns.
#[derive(Clone, Copy, Debug)]
enum Return {
    IsDone,
    IsFailure,
}

/// A future panicked; it is logged and counted already.
#[derive(Debug)]
pub(crate) struct Panicked;

/// Runs a future to its end.
///
/// # Errors
///
/// [`Panicked`], after logging and counting the panic. What tasks share is behind locks that are
/// used after a panic too, so the caller can go on.
pub(crate) async fn contain<T>(
    name: &'static str,
    metrics: &Metrics,
    future: impl Future<Output = T>,
) -> Result<T, Panicked> {
    AssertUnwindSafe(future).catch_unwind().await.map_err(|payload| {
        report(name, metrics, &format!("it panicked: {}", text_of(&*payload)));
        Panicked
    })
}

fn report(name: &'static str, metrics: &Metrics, why: &str) {
    error!(task = name, why, "a background task ended unexpectedly");
    metrics.task_failures.get_or_create(&Task { task: name }).inc();
}

fn text_of(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(|text| &**text)).unwrap_or("no message")
}

/// Pauses between the runs of a task.
#[derive(Debug, Default)]
struct Pauses {
    n_short_runs: u32,
}

impl Pauses {
    /// The pause after a run of this duration.
    fn after_run_of(&mut self, duration: Duration) -> Duration {
        if duration > LONGEST_PAUSE {
            self.n_short_runs = 0;
        }
        let pause = FIRST_PAUSE.saturating_mul(1 << self.n_short_runs.min(10)).min(LONGEST_PAUSE);
        self.n_short_runs += 1;
        pause
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    struct World {
        supervisor: Supervisor,
        metrics: Arc<Metrics>,
        n_runs: Arc<AtomicU32>,
    }

    impl World {
        fn new() -> Self {
            let metrics = Arc::new(Metrics::new());
            let supervisor = Supervisor::new(Arc::clone(&metrics));
            Self { supervisor, metrics, n_runs: Arc::default() }
        }

        /// Starts a task that counts its runs, and panics in all runs before the `n`th.
        fn panics_until(
            &self,
            n: u32,
        ) -> impl FnMut() -> futures::future::LocalBoxFuture<'static, ()> + use<> {
            let n_runs = Arc::clone(&self.n_runs);
            move || {
                let run = n_runs.fetch_add(1, Ordering::Relaxed) + 1;
                async move { assert!(run >= n, "run {run}") }.boxed_local()
            }
        }

        fn n_runs(&self) -> u32 {
            self.n_runs.load(Ordering::Relaxed)
        }

        fn n_failures(&self) -> u64 {
            self.metrics.task_failures.get_or_create(&Task { task: "task" }).get()
        }

        /// Whether nothing fails for a minute.
        async fn goes_on(&mut self) -> bool {
            tokio::time::timeout(Duration::from_secs(60), self.supervisor.failed()).await.is_err()
        }
    }

    #[tokio::test(flavor = "local", start_paused = true)]
    async fn a_required_task_that_panics_is_an_error() {
        let mut world = World::new();
        world.supervisor.spawn_required("task", async { panic!("for a test") });
        let error = world.supervisor.failed().await.to_string();
        assert_eq!(error, "the background task task ended unexpectedly");
        assert_eq!(world.n_failures(), 1);
    }

    #[tokio::test(flavor = "local", start_paused = true)]
    async fn a_required_task_that_returns_is_an_error() {
        let mut world = World::new();
        world.supervisor.spawn_restarted("other", std::future::pending);
        world.supervisor.spawn_required("task", async {});
        world.supervisor.failed().await;
        assert_eq!(world.n_failures(), 1);
    }

    #[tokio::test(flavor = "local", start_paused = true)]
    async fn a_task_that_panics_or_returns_is_restarted_with_back_off() {
        let mut world = World::new();
        world.supervisor.spawn_restarted("task", world.panics_until(4));
        assert!(world.goes_on().await);
        // After 0, 0.5, 1.5, 3.5, 7.5, 15.5, and 31.5 s.
        assert_eq!((world.n_runs(), world.n_failures()), (7, 7));
    }

    #[tokio::test(flavor = "local", start_paused = true)]
    async fn a_task_that_is_done_is_not_restarted() {
        let mut world = World::new();
        world.supervisor.spawn_until_done("task", world.panics_until(3));
        assert!(world.goes_on().await);
        assert_eq!((world.n_runs(), world.n_failures()), (3, 2));
    }

    #[tokio::test(flavor = "local", start_paused = true)]
    async fn a_panic_is_contained() {
        let world = World::new();
        assert!(contain("task", &world.metrics, async { panic!("for a test") }).await.is_err());
        assert_eq!(contain("task", &world.metrics, async { 7 }).await.expect("no panic"), 7);
        assert_eq!(world.n_failures(), 1);
    }

    #[test]
    fn a_long_run_resets_the_back_off() {
        let mut pauses = Pauses::default();
        let mut after = |seconds| pauses.after_run_of(Duration::from_secs(seconds)).as_millis();
        assert_eq!([after(0), after(1), after(29)], [500, 1000, 2000]);
        assert_eq!([after(31), after(0)], [500, 1000]);
        for _ in 0..50 {
            after(0);
        }
        assert_eq!(after(0), 30_000);
    }
}
