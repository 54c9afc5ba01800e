//! Scenario files: a limit, a clock, what is asked, and what must come out.
//!
//! One suite of such files drives every engine; `rategate simulate` runs them for people. The file
//! is TOML; unknown keys, wrong types and numbers that make no sense are errors that name the line
//! and the key and say what would be right.
//!
//! ```
//! use rategate_sim::scenario::Scenario;
//!
//! let error = Scenario::parse("[limit]\npolicy = \"gcra\"\nrate = \"5\"\n").unwrap_err();
//! assert_eq!(error.line, Some(3));
//! assert!(error.to_string().contains("N/PERIOD"));
//! ```
//!
//! # Waiting in line
//!
//! Who *reserves* is promised a start at once, and keeps it. Who *waits* stands in the one
//! [line](rategate_core::queue) before the limits: nobody overtakes him, he moves up when somebody before
//! him leaves, new numbers hold for him, and permits that come back by an act are waited for.
//!
//! | in the file | what it does |
//! |---|---|
//! | `call = "wait"` of a `[[step]]` | stands in line; `permits`, `name`, and `max_wait`, the longest wait that is accepted |
//! | `call = "leave"` | gives the wait of that `name` up: `left`, or `too-late` if it has ended |
//! | `call = "release"` | ends operations of `permits`, which hold places of `concurrency` or slots of a `commit-log` |
//! | `call = "wait"` of `[[arrivals]]`, `[[caller]]` | each operation waits in the same line |
//! | `[queue]` | how much may wait, in the line of each class: `waiters`, `permits`, and `on_full = "refuse"` (the default) or `"evict-newest"` |
//! | `classes = { slow = 1, fast = 3 }` of `[queue]` | classes of those who wait, with a line each and these weights, by which they share the permits while several wait |
//! | `class = "fast"` of who waits | in which line; without it in that of the first class, which has no name and weight 1 |
//!
//! What a wait comes to is known later, and stands at its own step: in the report, and in `expect`, which is
//! compared when the run is over. `start` is when the limits let it start, `ended` when its wait was over, be
//! it in a grant or not.
//!
//! | `outcome` of a wait | how it ended |
//! |---|---|
//! | `granted` | it started |
//! | `denied` | at once: it could not start within `max_wait`, and after `retry_after` it could; without one, time alone cannot help |
//! | `never` | more permits than could ever pass at one instant |
//! | `full` | as many waited as may |
//! | `evicted` | its place went to somebody newer |
//! | `deadline-passed` | its deadline came, or a change put it out of reach |
//! | `left` | it was given up |
//! | `waiting` | it had not, when nothing happened any more |
//!
//! Tries, peeks and reservations stand behind all who wait, and `remaining` is 0 while somebody does.
//!
//! # What comes back
//!
//! A `try`, `reserve` or `wait` with a `name` can be made good for, once it has been granted: by the class that
//! waited, and for the good of all who wait.
//!
//! | in the file | what it does |
//! |---|---|
//! | `call = "settle"` | what was granted took `actual` permits: what was too much goes back, what was too little is owed, and later calls wait behind it; once for each grant |
//! | `call = "refund"` | `permits` of it had no effect and go back, as many as [can](rategate_core::limit::Limit::refund); each of them once |
//!
//! Whoever does either with a reservation keeps it: it can be cancelled no more.
//!
//! | `outcome` | what came of it |
//! |---|---|
//! | `settled` | the estimate is made good for: `back` says how many permits went back, `owed` how many are owed |
//! | `refunded` | `back` says how many permits went back, which may be none |
//! | `ungranted` | there is no grant of that name: not yet, not any more, or there never was |
//! | `too-late` | it has been settled, or has gone back, before |
//! | `unpayable` | more than one call may owe, with nothing taken; or time alone does not pay it, with `owed` taken |
//!
//! What went back counts as never granted, in `granted` and for the checks. What is owed has been used, and counts from the
//! start of its grant: windows hold at most what the limits allow and what was estimated too low.
//!
//! ```
//! use rategate_sim::scenario::Scenario;
//! use rategate_sim::world;
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
//! # Ok::<(), rategate_sim::scenario::ScenarioError>(())
//! ```

use std::fmt;
use std::num::NonZeroU64;

use rategate_core::any_policy::AnyPolicy;
use rategate_core::fair::{ClassId, MAX_CLASSES};
use rategate_core::queue::Bounds;

mod calls;
mod classes;
mod fields;
mod limits;
mod read;
mod step;

pub use limits::policy_from;
pub use step::{Call, Step, StepExpect};

/// The largest file that is read, in bytes.
pub const MAX_BYTES: u64 = 16 * 1024 * 1024;
/// The most operations, arrivals and steps together.
pub const MAX_CALLS: u64 = 5_000_000;
/// The most threads of all callers together.
pub const MAX_THREADS: u64 = 100_000;
/// The most classes with a name, besides that of all who name none.
pub const MAX_NAMED_CLASSES: usize = MAX_CLASSES - 1;

/// What a scenario file says.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// What it is about.
    pub title: Option<String>,
    /// The limits that every call has to pass.
    pub limits: Vec<AnyPolicy>,
    /// The clock's first reading.
    pub clock_start_ns: u64,
    /// What each sleep adds to what it was asked, cycled. In a file a list, or one duration for all sleeps.
    pub sleep_error_ns: Vec<i128>,
    /// How much may stand in line.
    pub queue: Bounds,
    /// The classes with a name, each with its own line. The first comes after that of all who name none.
    pub classes: Vec<Class>,
    /// Closed loops.
    pub callers: Vec<Caller>,
    /// Open loops.
    pub arrivals: Vec<Arrivals>,
    /// Explicit calls.
    pub steps: Vec<Step>,
    /// Oracles over all granted permits.
    pub checks: Vec<Check>,
    /// What must come out of the run.
    pub expect: Expect,
}

/// Callers with a line of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Class {
    /// As those who wait call it.
    pub name: String,
    /// Its share, while others wait too.
    pub weight: NonZeroU64,
}

/// Threads that each ask, work, and ask again.
#[derive(Clone, Debug)]
pub struct Caller {
    /// How many.
    pub threads: u64,
    /// How many operations each.
    pub operations: u64,
    /// How long an operation takes, cycled over a thread's operations. Never empty.
    pub latency_ns: Vec<u64>,
    /// Whether they ask before or after the work.
    pub gate: Gate,
    /// How many permits each operation takes.
    pub permits: u64,
    /// When they begin, from the clock's start.
    pub start_ns: u64,
    /// How they ask; they do not try.
    pub asks: Asks,
    /// In whose line they wait.
    pub class: ClassId,
}

/// How somebody asks for permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asks {
    /// For now or not at all.
    Try,
    /// For a promise of the first start there is, which is then waited for.
    Reserve,
    /// For a place in line.
    Wait,
}

/// On which side of the work the limit stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// Ask, then work.
    Before,
    /// Work, then ask: the form of the operation throttle.
    After,
}

/// Calls that come whether or not earlier ones were granted.
#[derive(Clone, Debug)]
pub struct Arrivals {
    /// Poisson with a seed, or equal gaps.
    pub poisson_seed: Option<u64>,
    /// The rate of coming, as permits per nanoseconds.
    pub rate: (u64, u64),
    /// How many come.
    pub count: u64,
    /// How many permits each takes.
    pub permits: u64,
    /// How they ask.
    pub asks: Asks,
    /// In whose line they wait.
    pub class: ClassId,
}

/// An oracle over all granted permits.
#[derive(Clone, Copy, Debug)]
pub struct Check {
    /// The length of the window.
    pub window_ns: u64,
    /// The most permits in any of them.
    pub at_most: u64,
}

/// What must come out of the run; only what is given is compared.
#[derive(Clone, Debug, Default)]
pub struct Expect {
    /// Operations and sleeps, as the tape shows them.
    pub tape: Option<String>,
    /// The clock's last reading, from its start.
    pub elapsed_ns: Option<u64>,
    /// How many permits were granted.
    pub granted: Option<u64>,
}

/// Why a file is no scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScenarioError {
    /// The line, from 1, where one is to blame.
    pub line: Option<usize>,
    /// What is wrong, where, and what would be right.
    pub message: String,
}

impl Scenario {
    /// Reads a scenario.
    ///
    /// # Errors
    ///
    /// The first [`ScenarioError`] in the order of reading.
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
