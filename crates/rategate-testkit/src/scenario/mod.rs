//! Scenario files: a limit, a clock, the calls, and the expected results.
//!
//! One suite of such files drives every engine; `rategate simulate` runs them for people. The
//! file is TOML. Unknown keys, wrong types and senseless numbers are errors that name the line,
//! the key and a value that would be accepted.
//!
//! ```
//! use rategate_testkit::scenario::Scenario;
//!
//! let error = Scenario::parse("[limit]\npolicy = \"gcra\"\nrate = \"5\"\n").unwrap_err();
//! assert_eq!(error.line, Some(3));
//! assert!(error.to_string().contains("N/PERIOD"));
//! ```
//!
//! # Arrivals
//!
//! `[[arrivals]]` come whether or not earlier ones were granted. They have a `rate` and a `count`,
//! in equal gaps or with `shape = "poisson"` and a `seed` at random. A `shape` can also be a whole
//! [load](rategate_core::shape), which has the rate and the seed itself, as in
//! `shape = "ramp:0/s>100/s@10s then constant:100/s@1min"`. Without a `count` all of it comes.
//!
//! # Waiting
//!
//! A caller that *reserves* is promised a start at once, and keeps it. A caller that *waits*
//! joins the one [wait queue](rategate_core::line) of the limits. No other call overtakes it, it
//! moves up when a waiter before it leaves, and new limit numbers apply to it. It can also wait
//! for permits that only an act returns.
//!
//! In the file:
//!
//! - `call = "wait"` of a `[[step]]` joins the queue. It takes `permits`, `name`, and `max_wait`,
//!   the maximum wait that is accepted.
//! - `call = "leave"` withdraws the wait of that `name`. Its outcome is `left`, or `too-late` if
//!   the wait has ended.
//! - `call = "release"` ends operations of `permits`, which hold permits of `concurrency` or
//!   slots of a `commit-log`.
//! - `call = "wait"` of `[[arrivals]]` or `[[caller]]` makes each operation wait in the same
//!   queue.
//! - `[queue]` bounds the queue of each class by `waiters` and `permits`, with
//!   `on_full = "refuse"` (the default) or `"evict-newest"`.
//! - `classes = { slow = 1, fast = 3 }` of `[queue]` declares classes of waiters, each with its
//!   own queue and weight. While several classes wait, they share the permits by weight.
//! - `class = "fast"` of a waiter names the class whose queue it joins. Without it, a waiter
//!   joins the first class, which has no name and weight 1.
//!
//! The outcome of a wait is known later. It is reported at its own step, and compared with
//! `expect` when the run is over. `start` is the instant at which the limits let it start,
//! `ended` the instant at which the wait was over, in a grant or otherwise.
//!
//! The `outcome` of a wait is one of:
//!
//! - `granted`: it started.
//! - `denied`, at once: it could not start within `max_wait`, but could after `retry_after`.
//!   Without `retry_after`, time alone cannot help.
//! - `never`: more permits than could ever pass at one instant.
//! - `full`: the queue was full.
//! - `evicted`: a newer waiter took its slot.
//! - `deadline-passed`: its deadline came, or a change put it out of reach.
//! - `left`: it was withdrawn.
//! - `waiting`: it had not ended when the run was over.
//!
//! Tries, holds, peeks and reservations are decided behind all waiters, and `remaining` is 0 while
//! there are any.
//!
//! # Outcomes
//!
//! `policy = "adaptive"` is a bound on operations in flight that
//! [follows](rategate_core::adaptive) how they end. It has a `ceiling`, and may have a `floor`, the
//! limit at `first`, a `method` (`knee` or `aimd`) and a `seed`.
//! `policy = "adaptive-rate"` is a rate that follows refusals, from a `floor` to a `ceiling`, with
//! a `burst`.
//!
//! `call = "release"` with an `outcome` ends the operations of the grant of that `name`, all of its
//! permits: `served`, `dropped`, or `ignored` if it says nothing about the server. The `outcome` of
//! this call itself is `set`, `ungranted` if there is no grant of that name, or `too-late` if it
//! has ended before.
//!
//! # Charging
//!
//! `call = "charge"` books `permits` that have been used already, whether they fit or not. Its
//! outcome is `charged` or `not-for-this-limit`. `debt` is the number of permits by which the
//! limit is exceeded afterwards, and `forgiven` the number that was not booked. A debt of a window
//! or a log ends by itself, or with `debt = "carry"` at the top of the file it is paid by later
//! windows; `most_debt = "10min"` bounds it. Both hold for what a commit charges, too.
//!
//! # Holding
//!
//! A [hold](rategate_core::holds) keeps an estimate until the true cost is known, or until its time
//! is over.
//!
//! In the file:
//!
//! - `call = "hold"` takes an estimate of `permits`, as a try does. It ends by itself after `ttl`.
//! - `call = "wait"` with a `ttl` holds what it is granted, for so long. Whatever comes back of it
//!   is credited to its class, and all waiters gain by it.
//! - `call = "commit"` ends the hold of that `name`, of which `actual` permits were used.
//! - `call = "cancel"` ends the hold of that `name`, of which nothing was used. Where a reservation
//!   has the name too, the later of the two is meant.
//!
//! The `outcome` of these calls is one of:
//!
//! - `held`: the permits are kept from `start` on. A hold that does not fit is `denied` or `never`,
//!   as a try is; its `retry_after` is the time until the first hold ends, if that is sooner.
//! - `committed`: the hold had not ended. `back` is the number of permits that came back, `owed`
//!   the number charged because the estimate was too low.
//! - `cancelled`: the hold had not ended.
//! - `late`: a commit after the end. All of `actual` is charged, and `debt` and `forgiven` are
//!   those of a charge.
//! - `too-late`: a second commit or cancel, or a cancel after the end.
//! - `ungranted`: the hold was denied, or has not been granted yet.
//!
//! In `granted` and in the checks, a hold counts its estimate from its start. After a commit in
//! time it counts what was used, and after any other end nothing. What a commit charges counts
//! from the commit.
//!
//! # Counting
//!
//! Charged permits count when they were charged, so windows hold at most what the limits allow and
//! what was charged.
//!
//! ```
//! use rategate_testkit::scenario::Scenario;
//! use rategate_testkit::world;
//!
//! let scenario = Scenario::parse(
//!     r#"
//!     [limit]
//!     policy = "gcra"
//!     rate = "1/s"
//!
//!     [[step]]
//!     at = "0s"
//!     call = "try"
//!
//!     [[step]]
//!     at = "0s"
//!     call = "wait"
//!     name = "a"
//!     expect = { outcome = "left", ended = "0.5s" }
//!
//!     [[step]]
//!     at = "0.1s"
//!     call = "wait"
//!     expect = { outcome = "granted", start = "1s", wait = "0.9s" }
//!
//!     [[step]]
//!     at = "0.5s"
//!     call = "leave"
//!     name = "a"
//!     "#,
//! )?;
//! assert!(world::run(&scenario).passed());
//! # Ok::<(), rategate_testkit::scenario::ScenarioError>(())
//! ```

use std::fmt;
use std::num::NonZeroU64;

use rategate_core::any_policy::AnyPolicy;
use rategate_core::debt::Debt;
use rategate_core::fair::{ClassId, MAX_CLASSES};
use rategate_core::line::QueueBounds;
use rategate_core::shape::Operations;
use serde::Deserialize;

mod calls;
mod classes;
mod limits;
mod read;
mod step;
pub(crate) mod table;

pub use limits::{policy_body, policy_from};
pub use step::{Call, Step, StepExpect};
pub use table::Ns;

/// The maximum size of a file, in bytes.
pub const MAX_BYTES: u64 = 16 * 1024 * 1024;
/// The maximum number of operations, arrivals and steps together.
pub const MAX_CALLS: u64 = 5_000_000;
/// The maximum number of threads of all callers together.
pub const MAX_THREADS: u64 = 100_000;
/// The maximum number of named classes, besides the class of callers that name none.
pub const MAX_NAMED_CLASSES: usize = MAX_CLASSES - 1;

/// A scenario, as its file describes it.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The title of the scenario.
    pub title: Option<String>,
    /// The limits that every call has to pass.
    pub limits: Vec<AnyPolicy>,
    /// The clock's first reading.
    pub clock_start_ns: u64,
    /// The errors added to each sleep's intended length, used in a cycle. A file gives a list, or
    /// one duration for all sleeps.
    pub sleep_error_ns: Vec<i128>,
    /// The bounds of the wait queue.
    pub queue: QueueBounds,
    /// The named classes, each with its own queue. They follow the class of callers that name
    /// none.
    pub classes: Vec<Class>,
    /// The closed loops.
    pub callers: Vec<Caller>,
    /// The open loops.
    pub arrivals: Vec<Arrivals>,
    /// The explicit calls.
    pub steps: Vec<Step>,
    /// The way in which debts end.
    pub debt: Debt,
    /// The oracles over all granted permits.
    pub checks: Vec<Check>,
    /// The expected results of the run.
    pub expect: Expect,
}

/// A class of callers, with a wait queue of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Class {
    /// The name by which waiters refer to the class.
    pub name: String,
    /// The share of the class while other classes wait too.
    pub weight: NonZeroU64,
}

/// A group of threads that each request, work, and request again.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Caller {
    /// The number of threads.
    #[serde(default = "one")]
    pub threads: u64,
    /// The number of operations of each thread.
    pub operations: u64,
    /// The length of an operation, in a cycle over a thread's operations. Never empty.
    #[serde(default, deserialize_with = "table::later")]
    pub latency: Vec<Ns>,
    /// The side of the work on which the threads wait.
    #[serde(default)]
    pub gate: Gate,
    /// The number of permits that each operation takes.
    #[serde(default = "one")]
    pub permits: u64,
    /// The instant at which they begin, since the clock's start.
    #[serde(default)]
    pub start: Ns,
    /// The kind of request, which is never a try.
    #[serde(default)]
    pub call: CallMode,
    /// The class in whose queue they wait.
    #[serde(skip, default = "first_class")]
    pub class: ClassId,
}

/// The kind of a request for permits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CallMode {
    /// A request for now or not at all.
    Try,
    /// A request for a promise of the first possible start, which is then waited for.
    #[default]
    Reserve,
    /// A request to join the wait queue.
    Wait,
}

/// The side of the work on which the limit is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Gate {
    /// The limit first, then the work.
    #[default]
    Before,
    /// The work first, then the limit: the form of the operation throttle.
    After,
}

/// Calls that come whether or not earlier ones were granted.
#[derive(Clone, Debug)]
pub struct Arrivals {
    /// The instants at which the calls come.
    pub times: Times,
    /// The maximum number of calls.
    pub count: u64,
    /// The number of permits that each call takes.
    pub permits: u64,
    /// The kind of request.
    pub call: CallMode,
    /// The class in whose queue the calls wait.
    pub class: ClassId,
}

/// The instants of arrivals.
#[derive(Clone, Debug)]
pub enum Times {
    /// A constant rate, or a Poisson process.
    Rate {
        /// The rate, as calls per nanoseconds.
        rate: (u64, u64),
        /// The seed of a Poisson process, or `None` for equal gaps.
        poisson_seed: Option<u64>,
    },
    /// A load.
    Load(Operations),
}

/// An oracle over all granted permits.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// The length of the window.
    pub window: Ns,
    /// The maximum of permits in any window.
    pub at_most: u64,
}

/// The expected results of a run; only fields that are given are compared.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Expect {
    /// The operations and sleeps, as the tape shows them.
    pub tape: Option<String>,
    /// The clock's last reading, since its start.
    pub elapsed: Option<Ns>,
    /// The number of permits granted.
    pub granted: Option<u64>,
}

const fn one() -> u64 {
    1
}

const fn first_class() -> ClassId {
    ClassId::FIRST
}

/// A reason why a file is no scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScenarioError {
    /// The line of the error, counted from 1, if there is one.
    pub line: Option<usize>,
    /// The description of the error: what is wrong, where, and what would be accepted.
    pub message: String,
}

impl Scenario {
    /// Reads a scenario.
    ///
    /// # Errors
    ///
    /// Returns the first [`ScenarioError`] in the order of reading.
    pub fn parse(text: &str) -> Result<Self, ScenarioError> {
        read::scenario(text)
    }
}

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

impl std::error::Error for ScenarioError {}
