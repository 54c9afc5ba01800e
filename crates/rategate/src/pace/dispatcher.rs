//! The dispatcher: one thread runs tasks from a bounded queue in order, at the limit's instants.
//!
//! The callers go on meanwhile.

use std::error::Error;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};

use crate::clock::Clock;
use crate::clock::wait::CancelToken;
use crate::decision::Grant;
use crate::error::AcquireError;
use crate::limiter::Limiter;
use crate::panics::quietly;
use crate::process::ProcessBound;
use crate::shared::Shared;

/// The maximum number of tasks that a dispatcher's queue can be made for.
pub const MAX_QUEUE: usize = 1_048_576;

/// A task of a dispatcher: any operation, which receives the grant of its start.
pub type Task = Box<dyn FnOnce(Grant) + Send>;

/// A dispatcher that runs tasks one after another on its own thread, each with one permit.
///
/// * **Order.** First come, first run.
/// * **Bound.** The queue holds `capacity` tasks besides the one that waits to run next; a task
///   that finds the queue full comes back.
/// * **Ceiling.** The permit is taken just before the task runs, so a slow task delays those
///   behind it and never makes them run in a burst. The limiter may be shared with other callers.
/// * **Panics.** A task that panics is counted, and stops nothing. A clock or a limit that panics
///   ends the work; the remaining tasks are dropped and counted.
///
/// ```
/// use std::time::Duration;
/// use std::sync::mpsc::channel;
/// use rategate::pace::Dispatcher;
/// use rategate::{Limiter, ManualClock, SlidingLog};
///
/// let policy = SlidingLog::new(2, Duration::from_secs(1));
/// let limiter = Limiter::with_clock(policy, ManualClock::new());
/// let dispatcher = Dispatcher::new(limiter, 100)?;
/// let (sent, starts) = channel();
/// for _ in 0..5 {
///     let sent = sent.clone();
///     dispatcher.submit(move |grant| sent.send(grant.released_at().as_millis()).unwrap())?;
/// }
/// assert_eq!(dispatcher.shutdown().map(|report| report.ran), Some(5));
/// assert_eq!(starts.try_iter().collect::<Vec<_>>(), [0, 0, 1_000, 1_000, 2_000]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Dropped, it [aborts](Self::abort). A task that owns its own dispatcher may shut it down, abort
/// or drop it: a thread cannot wait for itself, so that call does not wait.
///
/// # After a fork
///
/// The thread stays with the parent, and so do the tasks and the limiter that it has. In the
/// child the dispatcher accepts no task ([`SubmitError::Forked`]), its ends return `None` at
/// once, and its drop does nothing. Make another one there.
pub struct Dispatcher {
    worker: ProcessBound<Worker>,
}

/// The thread of a dispatcher, and the handles that reach it.
struct Worker {
    /// Absent once no more tasks are accepted.
    queue: Option<SyncSender<Task>>,
    thread: Option<JoinHandle<Report>>,
    cancel: CancelToken,
    limiter: Box<dyn Shown>,
}

/// The thread's limiter, for display only: a weak handle, so the limiter ends with the thread.
trait Shown: Send + Sync {
    fn fmt_as(&self, f: &mut fmt::Formatter<'_>, name: &str) -> fmt::Result;
}

impl<C: Clock> Shown for Weak<Shared<C>> {
    fn fmt_as(&self, f: &mut fmt::Formatter<'_>, name: &str) -> fmt::Result {
        match self.upgrade() {
            Some(shared) => shared.fmt_as(f, name, &[]),
            None => f.debug_struct(name).finish_non_exhaustive(),
        }
    }
}

/// A report of a dispatcher's tasks. Every accepted task is in one of the first three counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Tasks that ran to their end.
    pub ran: u64,
    /// Tasks that panicked.
    pub panicked: u64,
    /// Tasks that never started.
    pub dropped: u64,
    /// The error with which the limiter granted no more, where that ended the work early.
    pub stopped_by: Option<AcquireError>,
    /// `true` if the limiter's clock or limit panicked, which ended the work early.
    pub limiter_panicked: bool,
}

/// The error of a task that was not accepted. The task comes back unrun.
pub enum SubmitError {
    /// The queue is full for now.
    QueueFull(Task),
    /// The limiter has been closed, or grants no more however long the task waits.
    Closed(Task),
    /// This process was forked from the one that made the dispatcher, and lacks its thread.
    Forked(Task),
}

impl Dispatcher {
    /// Creates a dispatcher over `limiter` with a queue for `capacity` waiting tasks.
    ///
    /// The capacity is clamped to between 1 and [`MAX_QUEUE`]. The queue is allocated at once.
    ///
    /// # Errors
    ///
    /// [`io::Error`] if the system cannot start a thread.
    pub fn new<C>(limiter: Limiter<C>, capacity: usize) -> io::Result<Self>
    where
        C: Clock + 'static,
    {
        let (queue, tasks) = sync_channel(capacity.clamp(1, MAX_QUEUE));
        let cancel = limiter.shared().cancel_token().child();
        let worker_cancel = cancel.clone();
        let shown = Box::new(Arc::downgrade(limiter.shared()));
        let thread =
            thread::Builder::new().name("rategate-dispatcher".to_owned()).spawn(move || {
                let report = dispatch(&limiter, &tasks, &worker_cancel);
                drop_quietly(limiter);
                report
            })?;
        let worker = Worker { queue: Some(queue), thread: Some(thread), cancel, limiter: shown };
        Ok(Self { worker: ProcessBound::new(worker) })
    }

    /// Submits a task. Never waits.
    ///
    /// # Errors
    ///
    /// [`SubmitError`], with the task in it.
    pub fn submit(&self, task: impl FnOnce(Grant) + Send + 'static) -> Result<(), SubmitError> {
        self.submit_boxed(Box::new(task))
    }

    /// Submits a task that is already boxed, such as one that came back.
    ///
    /// # Errors
    ///
    /// [`SubmitError`], with the task in it.
    pub fn submit_boxed(&self, task: Task) -> Result<(), SubmitError> {
        let Some(worker) = self.worker.get() else {
            return Err(SubmitError::Forked(task));
        };
        let Some(queue) = worker.queue.as_ref().filter(|_| !worker.cancel.is_cancelled()) else {
            return Err(SubmitError::Closed(task));
        };
        queue.try_send(task).map_err(|error| match error {
            TrySendError::Full(task) => SubmitError::QueueFull(task),
            TrySendError::Disconnected(task) => SubmitError::Closed(task),
        })
    }

    /// Runs all tasks accepted so far, each at its instant, and returns when the last has ended.
    ///
    /// Blocks the thread: do not call it on a thread that drives tasks.
    ///
    /// `None` where a task shuts down its own dispatcher: the work is not over yet. The tasks
    /// behind it still run, in order and each at its instant, and the thread ends after the last.
    /// `None` also in a forked child, which has no share in the work.
    #[expect(clippy::must_use_candidate, reason = "called for the work that is still to be done")]
    pub fn shutdown(mut self) -> Option<Report> {
        self.worker.get_mut()?.join()
    }

    /// Lets the running task end, and drops the others unrun, even one that waits for its
    /// instant.
    ///
    /// A task whose instant has just come still runs: its permit is charged.
    ///
    /// Blocks the thread until that task has ended: do not call it on a thread that drives tasks.
    ///
    /// `None` where a task aborts its own dispatcher: the work is not over yet. `None` also in a
    /// forked child, where it ends nothing.
    #[expect(clippy::must_use_candidate, reason = "called for the end of the work")]
    pub fn abort(mut self) -> Option<Report> {
        let worker = self.worker.get_mut()?;
        worker.cancel.cancel();
        worker.join()
    }
}

impl Worker {
    /// Accepts no more tasks and waits for the thread, unless this is the thread.
    fn join(&mut self) -> Option<Report> {
        self.queue = None;
        let thread = self.thread.take()?;
        if thread.thread().id() == thread::current().id() {
            return None;
        }
        // The thread catches all panics on it, so there always is a report.
        thread.join().ok()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // After a shutdown from inside, the thread still has tasks to run.
        if self.thread.is_some() {
            self.cancel.cancel();
            self.join();
        }
    }
}

fn dispatch<C: Clock>(
    limiter: &Limiter<C>,
    tasks: &Receiver<Task>,
    cancel: &CancelToken,
) -> Report {
    let mut report = Report::default();
    // Until the channel ends, even when nothing runs any more: a task once accepted is counted.
    for task in tasks {
        if let Some(grant) = wait_for_permit(limiter, cancel, &mut report) {
            run(task, grant, &mut report);
        } else {
            cancel.cancel();
            report.dropped = report.dropped.saturating_add(1);
            drop_quietly(task);
        }
    }
    report
}

/// Waits for the next task's permit. `None` if the limiter grants no more.
fn wait_for_permit<C: Clock>(
    limiter: &Limiter<C>,
    cancel: &CancelToken,
    report: &mut Report,
) -> Option<Grant> {
    let granted = catch_unwind(AssertUnwindSafe(|| {
        limiter.shared().acquire(limiter.request(1), limiter.precision(), Some(cancel))
    }));
    match granted {
        Ok(Ok(grant)) => return Some(grant),
        Ok(Err(AcquireError::Interrupted)) => {}
        // A panic is in the report already.
        Ok(Err(error)) => {
            if !report.limiter_panicked {
                report.stopped_by.get_or_insert(error);
            }
        }
        Err(payload) => {
            drop_quietly(payload);
            report.limiter_panicked = true;
        }
    }
    None
}

fn run(task: Task, grant: Grant, report: &mut Report) {
    match catch_unwind(AssertUnwindSafe(move || task(grant))) {
        Ok(()) => report.ran = report.ran.saturating_add(1),
        Err(payload) => {
            drop_quietly(payload);
            report.panicked = report.panicked.saturating_add(1);
        }
    }
}

/// Drops a task's captured values, or its panic payload; either may panic on drop.
fn drop_quietly<T>(what: T) {
    quietly(move || drop(what));
}

impl SubmitError {
    /// Returns the task that was not accepted.
    #[must_use]
    pub fn into_task(self) -> Task {
        match self {
            Self::QueueFull(task) | Self::Closed(task) | Self::Forked(task) => task,
        }
    }
}

/// Writes one line: the policy, what remains and the number of waiters, while its thread has the
/// limiter.
impl fmt::Debug for Dispatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.worker.get() {
            Some(worker) => worker.limiter.fmt_as(f, "Dispatcher"),
            None => f.debug_struct("Dispatcher").finish_non_exhaustive(),
        }
    }
}

impl fmt::Debug for SubmitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::QueueFull(_) => "QueueFull",
            Self::Closed(_) => "Closed",
            Self::Forked(_) => "Forked",
        })
    }
}

impl fmt::Display for SubmitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::QueueFull(_) => "the dispatcher's queue is full",
            Self::Closed(_) => "the dispatcher takes no more tasks",
            Self::Forked(_) => {
                "the dispatcher's thread is in the process that this one was forked from; make a \
                 dispatcher in this process"
            }
        })
    }
}

impl Error for SubmitError {}
