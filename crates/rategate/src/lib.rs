//! Exact rate limiting and pacing for threads and tasks.
//!
//! A [`Limiter`] delays operations so that a limit is never exceeded and none of the permitted
//! rate is lost. Starts are computed in whole nanoseconds and exact fractions, and promised in
//! arrival order. A sleep that ends late delays one operation, not the schedule.
//!
//! # Smallest example
//!
//! At most two actions in any second, from any number of threads that clone the limiter:
//!
//! ```
//! use std::time::Duration;
//!
//! use rategate::{Limiter, SlidingLog};
//!
//! let limiter = Limiter::new(SlidingLog::new(2, Duration::from_secs(1)));
//! for page in ["first", "second"] {
//!     limiter.acquire(1)?;
//!     println!("fetching the {page} page");
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Which limit do I want?
//!
//! | my limit says | policy |
//! |---|---|
//! | a rate, and a burst after silence | [`Gcra`] |
//! | at most N in *any* window of length M | [`SlidingLog`] |
//! | at most N in *any* window of length M, for each of many keys | [`SlidingLog::compact`] |
//! | at most N in each window of a grid | [`FixedWindow`] |
//! | at most N in each day, week or month of a calendar | [`FixedWindow`], with `calendar` |
//! | evenly spaced, and report how late each operation is | [`TwoTimeline`] |
//! | an average rate, with few and long sleeps | [`TwoTimeline`], batched |
//! | slower at first and after a rest, while a server warms up | [`WarmUp`] |
//! | a bucket refilled from outside, and nothing may be lost | [`BackfillPool`] |
//! | a bucket, a log, a schedule or a pool, slower while a server is cold | [`SlowStart`] |
//! | at most N at the same time | [`Concurrency`] |
//! | at most N *effects* in any window, however late they come | [`CommitLog`] |
//! | several of these together | [`AllOf`] |
//! | one of these for each of my users | [`Keyed`] |
//!
//! # Which form do I want?
//!
//! | my code is | form |
//! |---|---|
//! | threads that wait for permits, or only try | [`Limiter`] |
//! | tasks, under any executor | [`AsyncLimiter`] |
//! | a caller that waits in its own way, or may cancel | [`Reservation`] |
//! | classes of callers that should share fairly | [`Limiter::class`] |
//! | one of many callers, each with a limit of its own | [`Keyed`] |
//! | on several machines that share one limit | [`distributed`] |
//! | a call that has to pass several of them | [`keyed::try_all`] |
//! | an operation whose end or effect counts, not only its start | [`Permit`] |
//! | an operation whose cost is known when it is done | [`charge::Hold`] |
//! | one loop that waits after each operation | [`pace::Throttle`] |
//! | callers that submit work and go on | [`pace::Dispatcher`] |
//! | operations of a load whose rate changes: ramps, waves, traces | [`pace::OpenLoop`] |
//! | an iterator | [`RateLimitedExt`] |
//! | a stream of bytes | [`adapter::ByteLimited`] |
//! | a stream, or a sink, of items | `RateLimitedStreamExt`, [`adapter`] (`futures`) |
//! | a stream of bytes in tasks | `adapter::AsyncByteLimited` (`futures` or `tokio`) |
//! | a future of my own, polled manually | [`wait::AcquireOwned`] |
//! | counts of what a limit did, and for which keys | [`Limiter::with_stats`], [`stats`] |
//! | a test | any of them on a [`ManualClock`] |
//!
//! # Features
//!
//! Without any, a limiter for threads and tasks needs two crates: this one and its core.
//!
//! * `keyed`, on by default: [`Keyed`], acquisitions of several limits at once
//!   ([`keyed::try_all`]), and [deny lists](deny).
//! * `distributed`: one limit for several machines ([`distributed`]), over any [`store`].
//! * `calendar`: quotas of a day, a week, a month, a quarter or a year in a time zone.
//! * `timer-slack`, on by default: waiting threads ask Linux to wake them without the 50 us that
//!   it allows itself.
//! * `tsc`, on by default: [`MonotonicClock`] reads the processor's time stamp counter where the
//!   counter can be trusted. Without this feature the clock reads the system's time; nothing else
//!   changes.
//! * `tokio`: tokio's timer (`TokioTimer`), its clock, which tests can pause (`TokioClock`), and
//!   rate-limited tokio readers and writers (`AsyncByteLimited`).
//! * `async-io`: the timer of the async-io reactor, which smol runs on (`AsyncIoTimer`).
//! * `futures`: streams (`RateLimitedStreamExt`) and sinks (`RateLimitedSink`) whose items pass a
//!   limiter, and `AsyncByteLimited` for the readers and writers of the futures crates. It needs
//!   only their traits.
//! * `serde`: `snapshot::Snapshot` saves a limiter and restores it after a restart, as plain data
//!   or as a file; `Keyed::save` and `Keyed::restore` do so for a table.
//! * `rayon`: `RateLimitedParallelExt`, for parallel iterators whose actions pass a limiter.
//! * `metrics`: [statistics](stats) for the recorder of the `metrics` facade.
//! * `tracing`: events of limiters with statistics.
//!
//! [`AsyncLimiter`] needs none of them: a thread of this crate ends its waits.
//!
//! # Contract
//!
//! * **Ceiling.** Each policy's `C(W)` holds for real starts (the default), and for promised
//!   instants where a schedule promises instants. A waiter takes its permits when it runs, and the
//!   limit counts [`Grant::released_at`]. Promised instants ([`Grant::promised_at`]) count for
//!   schedules (average, damped and batched [`TwoTimeline`]), limits
//!   [with promised starts](Limiter::with_promised_starts), and reservations whose owner sleeps on
//!   its own. Real starts then obey `C(W + d)`, `d` being the largest lateness. Where the other
//!   side counts arrivals, [`SlidingLog::with_guard`] allows for their delay.
//! * **Never early.** No wait ends before its instant, whatever the platform's sleep does. The
//!   exception is [`pace::Throttle::wait`], which keeps an average: it sleeps once, and carries the
//!   error of that sleep into the next one.
//! * **Order.** Threads and tasks wait in one queue and are served in arrival order, and no try
//!   overtakes them. With [classes](Limiter::class), the order holds within each class. A waiter
//!   that leaves the queue makes way for those behind. Only the slot of a cancelled
//!   [reservation](Reservation) goes to the next caller that fits into it.
//! * **Exact retry.** A denial reports when to come again; one nanosecond sooner is too soon.
//!   That holds while every waiter that is due has taken its permits: a waiter that takes late,
//!   or leaves, moves the instant. On a clock that has [gone back](Clock::may_go_back) it counts
//!   from the newest reading.
//! * **Nothing lost.** A caller has used up nothing if it drops a [`Reservation`] before its
//!   start, is woken before the start by [`Limiter::close`], or finds the deadline too near.
//! * **Kinds of no.** "Not yet" is a [`Denial`] or [`TooLong`](error::TooLong) with a time; "never"
//!   is an error at once, not an endless wait; "closed" and "unavailable" are others. Every error
//!   converts into [`Error`], and [`Error::kind`] tells which.
//!
//! # Targets
//!
//! The crate needs the standard library and 64-bit atomics; [`rategate_core`] needs neither. On
//! `wasm32-unknown-unknown`, as in a browser, the standard library has no clock and no threads.
//! There [`SystemClock::new`], [`MonotonicClock::new`], `Limiter::new` and all else that makes a
//! clock by itself panic with a message that says so. Pass a [`Clock`] of your own, whose
//! [`timer`](Clock::timer) ends the waits of tasks, to `with_clock` instead. Only `try_acquire`
//! and [`AsyncLimiter`] are of use then, because a browser's thread cannot wait. WASI has a
//! clock.
//!
//! # What it does not do
//!
//! * A limiter loses its state when the process ends, unless it is saved (`serde`), and it knows
//!   nothing of other processes: see [`distributed`] for those.
//! * It does not spin unless configured to, so it wakes as exactly as the system's sleep does,
//!   usually 0.1 ms late. See [`wait::Precision`].
//! * It does not notice that a machine was suspended. Where the system's monotonic clock stands
//!   still meanwhile, as on Linux, so does [`SystemClock`], and [`MonotonicClock`] to within a
//!   second. Hardly anything is earned in that time, and waits last longer by as much.
//! * It does nothing in the background, with three exceptions: the thread of a
//!   [`pace::Dispatcher`]; one that ends the waits of tasks, once there are some
//!   ([`wait::ThreadTimer`]); and one that calibrates the first [`MonotonicClock`] for a second and
//!   ends.
//! * It does not share a limit with a forked child. The child has its own copy of each limit, so
//!   parent and child together may reach twice the rate; one [`distributed`] limit covers both.
//!   Tasks in the child wait by a timer of the child's own, and a dispatcher of the parent
//!   accepts no task there. Callers that wait at the moment of the fork are copied into the
//!   child's wait queue, and each copy blocks it for one grace period. A lock that another thread
//!   holds at the fork stays locked in the child.

#![cfg_attr(
    not(feature = "distributed"),
    allow(dead_code, unreachable_pub, reason = "used by tables of keys and distributed limits")
)]

pub mod adapter;
pub mod adaptive;
#[cfg(feature = "calendar")]
pub mod calendar;
pub mod charge;
mod clock;
mod decision;
#[cfg(feature = "distributed")]
mod delivery;
#[cfg(feature = "keyed")]
pub mod deny;
#[cfg(feature = "distributed")]
pub mod distributed;
pub mod error;
mod future;
mod hold;
#[cfg(feature = "keyed")]
pub mod keyed;
mod lead;
mod limiter;
mod local;
mod on_demand;
pub mod pace;
mod panics;
mod permit;
pub mod policy;
mod process;
mod random;
mod reservation;
mod section;
mod shared;
#[cfg(feature = "serde")]
pub mod snapshot;
pub mod stats;
mod status;
#[cfg(feature = "distributed")]
pub mod store;
mod sync;

#[doc(no_inline)]
pub use adapter::RateLimitedExt;
#[cfg(feature = "rayon")]
#[doc(no_inline)]
pub use adapter::RateLimitedParallelExt;
#[cfg(feature = "futures")]
#[doc(no_inline)]
pub use adapter::RateLimitedStreamExt;
pub use clock::{Clock, ManualClock, MonotonicClock, SystemClock};
pub use decision::{Decision, Denial, Grant};
#[doc(no_inline)]
pub use error::{AcquireError, Error, TryAcquireError};
pub use future::AsyncLimiter;
#[cfg(feature = "tokio")]
pub use future::TokioClock;
#[cfg(feature = "keyed")]
#[doc(no_inline)]
pub use keyed::Keyed;
pub use limiter::Limiter;
pub use local::Local;
pub use permit::Permit;
pub use rategate_core::adaptive::{AdaptiveConcurrency, AdaptiveRate};
pub use rategate_core::all_of::AllOf;
pub use rategate_core::any_policy::AnyPolicy;
pub use rategate_core::backfill_pool::BackfillPool;
pub use rategate_core::commit_log::CommitLog;
pub use rategate_core::concurrency::Concurrency;
pub use rategate_core::fixed_window::FixedWindow;
pub use rategate_core::gcra::Gcra;
pub use rategate_core::rate::Rate;
pub use rategate_core::share::Share;
pub use rategate_core::sliding_log::SlidingLog;
pub use rategate_core::slow_start::SlowStart;
pub use rategate_core::two_timeline::TwoTimeline;
pub use rategate_core::warm_up::WarmUp;
pub use reservation::Reservation;
pub use status::Status;

/// Waits: how exactly, by which timer, in what queue, and what ends them.
///
/// A wait goes to an absolute instant, is never early, and ends at once when its cancellation token
/// is raised.
pub mod wait {
    pub use crate::clock::wait::{
        CancelToken, Precision, Sleep, ThreadTimer, Timer, Wait, Wake, assert_may_block,
    };
    #[cfg(feature = "async-io")]
    pub use crate::future::AsyncIoTimer;
    #[cfg(feature = "tokio")]
    pub use crate::future::TokioTimer;
    pub use crate::future::{
        Acquire, AcquireHold, AcquireOwned, AcquireWithin, AsyncReservation, Ready, Timed,
    };
    pub use rategate_core::line::{QueueBounds, WhenFull};
}

/// The examples of the crate's README, run as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

/// The examples of the book and of the repository's README, run as tests: here, since no other
/// crate has all that they use. The package lacks the files, which only tests of them read.
#[cfg(all(doctest, feature = "distributed", feature = "futures", feature = "tokio"))]
mod book;
