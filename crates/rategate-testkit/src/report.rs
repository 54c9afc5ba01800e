//! The report of a run, also as JSON, in the fields and names of the scenario contract.

use serde::{Deserialize, Serialize};
use strum::{Display, IntoStaticStr};

/// The outcome of a call.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, Display, IntoStaticStr,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Outcome {
    /// A grant or promise of all permits.
    #[default]
    Granted,
    /// A denial, with nothing taken.
    Denied,
    /// A request for more permits than could ever pass at one instant.
    Never,
    /// A cancel in time, after which the permits are free.
    Cancelled,
    /// A cancel, or any other step, that came too late.
    TooLate,
    /// A change of the limit, or of its contents, from outside.
    Set,
    /// A peek, which takes nothing.
    Peeked,
    /// A wait that had not ended when the run was over.
    Waiting,
    /// A wait refused because the queue was full.
    Full,
    /// A wait whose slot was taken by a newer waiter.
    Evicted,
    /// A wait whose deadline came, or could no longer be met.
    DeadlinePassed,
    /// A wait that was withdrawn, and the call that withdrew it.
    Left,
    /// A step about a grant or a hold that there is not: not granted yet, no longer held, or never
    /// granted.
    Ungranted,
    /// A charge, whether it fit or not.
    Charged,
    /// A charge to a limit that counts operations in flight.
    NotForThisLimit,
    /// A hold, whose permits are kept until it ends.
    Held,
    /// A commit of a hold that had not ended.
    Committed,
    /// A commit of a hold that had ended, so everything used was charged.
    Late,
}

/// The report of a run on the virtual clock. All instants are nanoseconds since its start.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The title of the scenario.
    pub title: Option<String>,
    /// The clock's last reading.
    pub elapsed_ns: u64,
    /// The number of permits granted.
    pub granted: u64,
    /// Operations and sleeps, in the order in which they began.
    pub tape: String,
    /// The reports of the explicit calls, in file order.
    pub steps: Vec<StepReport>,
    /// The operations of callers and arrivals, in the order of their requests.
    pub operations: Vec<Operation>,
    /// The sleeps of callers.
    pub sleeps: Vec<Sleep>,
    /// The results of the window oracles.
    pub checks: Vec<CheckReport>,
    /// The expectations that were not met.
    pub mismatches: Vec<String>,
    /// Data that only the picture needs.
    #[serde(skip)]
    pub picture: Picture,
}

/// An explicit call and its result.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StepReport {
    /// The clock's reading that the file names.
    pub at_ns: u64,
    /// The call's name.
    pub call: &'static str,
    /// The number of permits, for calls that name one.
    pub permits: Option<u64>,
    /// The outcome of the call.
    pub outcome: Outcome,
    /// The instant at which a granted call may start, rounded up.
    pub start_ns: Option<u64>,
    /// The instant at which it would have started had all earlier calls started on time, rounded
    /// down.
    pub scheduled_ns: Option<u64>,
    /// The start less the scheduled time.
    pub wait_ns: Option<u64>,
    /// The time until the same call would pass.
    pub retry_after_ns: Option<u64>,
    /// The number of permits that a try could still take; for a peek, before anything is taken.
    pub remaining: u64,
    /// The instant at which a wait ended, in a grant or otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_ns: Option<u64>,
    /// The number of permits that came back from an estimate that was too high.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub back: Option<u64>,
    /// The number of permits owed for an estimate that was too low, behind which later calls
    /// wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owed: Option<u64>,
    /// The number of permits by which the limit is exceeded after a charge.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub debt: Option<u64>,
    /// The number of permits not charged, because a debt has a bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forgiven: Option<u64>,
}

/// An operation of a caller's thread, or an arrival.
#[derive(Clone, Debug, Serialize)]
pub struct Operation {
    /// The index of the thread over all callers; each `[[arrivals]]` table counts as one more.
    pub caller: u64,
    /// The instant of the request.
    pub arrival_ns: u64,
    /// The instant at which it would have started had all earlier operations started on time.
    pub scheduled_ns: Option<u64>,
    /// The start that was promised to it before it woke.
    pub promised_ns: Option<u64>,
    /// The instant at which it really started.
    pub start_ns: Option<u64>,
    /// The instant at which its work was done.
    pub end_ns: Option<u64>,
    /// The number of permits requested.
    pub permits: u64,
    /// The outcome of the request.
    pub outcome: Outcome,
}

/// A sleep of a caller.
#[derive(Clone, Debug, Serialize)]
pub struct Sleep {
    /// The index of the thread.
    pub caller: u64,
    /// The instant at which the sleep began.
    pub at_ns: u64,
    /// The intended length.
    pub requested_ns: u64,
    /// The actual length.
    pub slept_ns: u64,
}

/// The fullest window that an oracle saw.
#[derive(Clone, Debug, Serialize)]
pub struct CheckReport {
    /// The length of the windows.
    pub window_ns: u64,
    /// The maximum of permits allowed in any window.
    pub at_most: u64,
    /// The most permits seen in any window.
    pub seen: u64,
    /// The instant at which the first such window begins.
    pub from_ns: u64,
}

/// Data that is drawn but not printed.
#[derive(Clone, Debug, Default)]
pub struct Picture {
    /// Permits granted, by the instant of their start.
    pub grants: Vec<(u64, u64)>,
    /// The limits in words.
    pub limits: Vec<String>,
    /// The permits that the limits allow by each instant, if a curve can be drawn.
    pub allowance: Option<Allowance>,
}

/// The most permits that can have started by an instant.
#[derive(Clone, Copy, Debug)]
pub enum Allowance {
    /// A burst at once, followed by a rate.
    Line {
        /// The permits available at the start.
        burst: u64,
        /// The permits of the rate.
        permits: u64,
        /// The nanoseconds of the rate.
        period_ns: u64,
    },
    /// A number of permits at the start of each period.
    Stairs {
        /// The permits per period.
        permits: u64,
        /// The length of a period.
        period_ns: u64,
    },
}

impl Report {
    /// Returns `true` if every expectation was met and every check held.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.mismatches.is_empty() && self.checks.iter().all(|check| check.seen <= check.at_most)
    }

    /// Returns the report as one JSON object, followed by a line end.
    #[must_use]
    pub fn to_json(&self) -> String {
        // Plain structs of numbers and strings always serialize.
        let mut json = serde_json::to_string_pretty(self).unwrap_or_default();
        json.push('\n');
        json
    }
}

impl Outcome {
    /// Returns the word of the scenario contract for this outcome.
    #[must_use]
    pub fn word(self) -> &'static str {
        self.into()
    }
}
