//! What came out of a run, in the fields and names of the scenario contract.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// All permits were granted or promised.
    Granted,
    /// Nothing was taken.
    Denied,
    /// More permits than could ever pass at one instant.
    Never,
    /// A cancel that gave permits back.
    Cancelled,
    /// A cancel that did not, and whatever else came too late.
    TooLate,
    /// The limit, or what is in it, was changed from outside.
    Set,
    /// Nothing was asked for.
    Peeked,
    /// A wait that had not ended when nothing happened any more.
    Waiting,
    /// As many waited as may.
    Full,
    /// A wait whose place went to somebody newer.
    Evicted,
    /// A wait whose deadline came, or could no longer be met.
    DeadlinePassed,
    /// A wait that was given up, and the call that did so.
    Left,
    /// An estimate was made good for.
    Settled,
    /// What had no effect was given back, as much of it as could be.
    Refunded,
    /// There is no grant to settle or to refund: not yet, not any more, or there never was.
    Ungranted,
    /// A debt of more than one call may owe, or that time alone does not pay.
    Unpayable,
}

const OUTCOMES: [(Outcome, &str); 16] = [
    (Outcome::Granted, "granted"),
    (Outcome::Denied, "denied"),
    (Outcome::Never, "never"),
    (Outcome::Cancelled, "cancelled"),
    (Outcome::TooLate, "too-late"),
    (Outcome::Set, "set"),
    (Outcome::Peeked, "peeked"),
    (Outcome::Waiting, "waiting"),
    (Outcome::Full, "full"),
    (Outcome::Evicted, "evicted"),
    (Outcome::DeadlinePassed, "deadline-passed"),
    (Outcome::Left, "left"),
    (Outcome::Settled, "settled"),
    (Outcome::Refunded, "refunded"),
    (Outcome::Ungranted, "ungranted"),
    (Outcome::Unpayable, "unpayable"),
];

/// A run on the virtual clock. All instants are nanoseconds since the clock's start.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// What it was about.
    pub title: Option<String>,
    /// The clock's last reading.
    pub elapsed_ns: u64,
    /// How many permits were granted.
    pub granted: u64,
    /// Operations and sleeps in the order of their beginnings.
    pub tape: String,
    /// The explicit calls, in file order.
    pub steps: Vec<StepReport>,
    /// The operations of callers and arrivals, in the order of asking.
    pub operations: Vec<Operation>,
    /// What callers slept.
    pub sleeps: Vec<Sleep>,
    /// What the window oracles saw.
    pub checks: Vec<CheckReport>,
    /// What was expected and did not come.
    pub mismatches: Vec<String>,
    /// What the picture needs besides.
    #[serde(skip)]
    pub picture: Picture,
}

/// An explicit call and its answer.
#[derive(Clone, Debug, Serialize)]
pub struct StepReport {
    /// The reading of the clock that the file names.
    pub at_ns: u64,
    /// The call's name.
    pub call: &'static str,
    /// The permits it was about, where it was about a number of them.
    pub permits: Option<u64>,
    /// How it ended.
    pub outcome: Outcome,
    /// When a granted call may start, rounded up.
    pub start_ns: Option<u64>,
    /// When it would have started had all before it started on time, rounded down.
    pub scheduled_ns: Option<u64>,
    /// Start less scheduled time.
    pub wait_ns: Option<u64>,
    /// How long until the same call would pass.
    pub retry_after_ns: Option<u64>,
    /// How many permits a try could still take; for a peek, before anything is taken.
    pub remaining: u64,
    /// Of a wait: when it ended, be it in a grant or not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_ns: Option<u64>,
    /// Of a refund, or of an estimate that was too high: how many permits went back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub back: Option<u64>,
    /// Of an estimate that was too low: how many permits are owed, behind which later calls wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owed: Option<u64>,
}

/// One operation of a caller's thread, or one arrival.
#[derive(Clone, Debug, Serialize)]
pub struct Operation {
    /// The thread, counted over all callers; each table of arrivals counts as one more.
    pub caller: u64,
    /// When it asked.
    pub arrival_ns: u64,
    /// When it would have started had all before it started on time.
    pub scheduled_ns: Option<u64>,
    /// The start that it was told before it woke.
    pub promised_ns: Option<u64>,
    /// When it really started.
    pub start_ns: Option<u64>,
    /// When its work was done.
    pub end_ns: Option<u64>,
    /// How many permits it asked for.
    pub permits: u64,
    /// How its asking ended.
    pub outcome: Outcome,
}

/// One sleep of a caller.
#[derive(Clone, Debug, Serialize)]
pub struct Sleep {
    /// The thread.
    pub caller: u64,
    /// When it began.
    pub at_ns: u64,
    /// How long it was meant to take.
    pub asked_ns: u64,
    /// How long it took.
    pub slept_ns: u64,
}

/// The fullest window that an oracle saw.
#[derive(Clone, Debug, Serialize)]
pub struct CheckReport {
    /// The length of the windows.
    pub window_ns: u64,
    /// The most permits allowed in any.
    pub at_most: u64,
    /// The most seen in any.
    pub seen: u64,
    /// Where the first such window begins.
    pub from_ns: u64,
}

/// What is drawn but not printed.
#[derive(Clone, Debug, Default)]
pub struct Picture {
    /// Permits granted, by the instant of their start.
    pub grants: Vec<(u64, u64)>,
    /// The limit in words.
    pub limits: Vec<String>,
    /// Permits that the limits allow by some instants, where a curve can be drawn.
    pub allowance: Option<Allowance>,
}

/// The most permits that can have started by an instant.
#[derive(Clone, Copy, Debug)]
pub enum Allowance {
    /// So many at once, and then a rate of permits per nanoseconds.
    Line {
        /// At the start.
        burst: u64,
        /// Permits of the rate.
        permits: u64,
        /// Nanoseconds of the rate.
        period_ns: u64,
    },
    /// So many at the start of each period.
    Stairs {
        /// Permits per period.
        permits: u64,
        /// The period.
        period_ns: u64,
    },
}

impl Report {
    /// Whether everything expected came out and every check held.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.mismatches.is_empty() && self.checks.iter().all(|check| check.seen <= check.at_most)
    }

    /// The report as one JSON object and a line end.
    #[must_use]
    pub fn to_json(&self) -> String {
        // Plain structs of numbers and strings always serialize.
        let mut json = serde_json::to_string_pretty(self).unwrap_or_default();
        json.push('\n');
        json
    }
}

impl Outcome {
    /// The word of the contract.
    #[must_use]
    pub fn word(self) -> &'static str {
        OUTCOMES.iter().find(|(outcome, _)| *outcome == self).map_or("", |(_, word)| word)
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

impl FromStr for Outcome {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        OUTCOMES.iter().find(|(_, word)| *word == text).map(|(outcome, _)| *outcome).ok_or_else(
            || format!("no outcome; it is one of {}", OUTCOMES.map(|(_, word)| word).join(", ")),
        )
    }
}
