//! The report: its data, and its forms as text, JSON and SVG.

mod picture;
mod text;

use rategate_core::span;
use serde::Serialize;

use crate::analysis::Analysis;
use crate::callers::Row;
use crate::fullest::{Suggestion, suggest};
use crate::list_effect::{Effects, NeedlessDenials, overshoot};
use crate::log::SkipReason;
use crate::ns;
use crate::settings::{ListSettings, Share};
use crate::timeline::Timeline;

pub use crate::log::UnixTime;

/// The result of an analysis, as plain data. The JSON form has the same names.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// The limit in words.
    pub limit: String,
    /// The part of a line that identifies the caller.
    pub key: String,
    /// The unit of permits: "calls" or "bytes".
    pub unit: &'static str,
    /// The period of the limit.
    pub period: String,
    /// The instant of the first call.
    pub from: Option<UnixTime>,
    /// The instant of the newest call.
    pub to: Option<UnixTime>,
    /// The numbers of lines and calls.
    #[serde(flatten)]
    pub counts: Counts,
    /// The number of callers that are known by name.
    pub callers: usize,
    /// The number of these that were denied at least once.
    pub callers_denied: usize,
    /// The first lines that were skipped.
    pub first_skipped: Vec<Skipped>,
    /// The callers beyond the capacity.
    pub beyond_keys: Option<CallersBeyond>,
    /// The lower bounds of fullest windows are exact.
    pub fullest_is_exact: bool,
    /// The caller with the fullest window.
    pub fullest: Option<Row>,
    /// The limit that the fullest windows suggest.
    pub suggestion: Option<Suggestion>,
    /// The published deny list.
    pub gate: Option<Published>,
    /// The effect that a deny list would have had, or had.
    pub list: Option<ListReport>,
    /// The delays of a followed log.
    pub follow: Option<Followed>,
    /// The callers with the most denials.
    pub by_denied: Vec<Row>,
    /// The callers with the most calls.
    pub by_calls: Vec<Row>,
    /// The calls over time.
    pub timeline: Timeline,
    #[serde(skip)]
    set_aside: Share,
    #[serde(skip)]
    spare: Share,
}

/// The numbers of lines and calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Counts {
    /// The number of lines.
    pub lines: u64,
    /// The number of empty lines.
    pub blank: u64,
    /// The number of lines whose status was not selected.
    pub filtered: u64,
    /// The number of lines that could not be read.
    pub skipped: u64,
    /// The number of lines older than the newest before them.
    pub late: u64,
    /// The maximum by which a line was older.
    pub latest_ns: u64,
    /// The number of calls decided.
    pub calls: u64,
    /// The number of calls allowed.
    pub allowed: u64,
    /// The number of calls denied.
    pub denied: u64,
    /// The permits of the calls allowed.
    pub allowed_amount: u64,
    /// The permits of the calls denied.
    pub denied_amount: u64,
    /// The number of calls larger than the limit ever passes; they are among the denied.
    pub too_large: u64,
    /// The number of calls that did not fit in the table and passed without a limit; they are
    /// among the allowed.
    pub unlimited: u64,
}

/// A line that was skipped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Skipped {
    /// The name of the input.
    pub file: String,
    /// The number of the line, from 1 on.
    pub line: u64,
    /// The reason.
    pub why: SkipReason,
}

/// The callers beyond the capacity, counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CallersBeyond {
    /// The number of their calls.
    pub calls: u64,
    /// The number of their denials.
    pub denied: u64,
    /// The maximum number of denials of one that no ranking has.
    pub unlisted_denied_at_most: u64,
}

/// The state of a published deny list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Published {
    /// The number of callers that this analysis has on the list.
    pub callers: usize,
    /// The number of denials that did not fit on it.
    pub left_out: u64,
}

/// The effect that a deny list would have had, or had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ListReport {
    /// The time a denial keeps a caller on the list.
    pub hold_ns: u64,
    /// The assumed time until a denial is listed, or the maximum that was measured.
    pub delay_ns: u64,
    /// The outcomes of the calls.
    #[serde(flatten)]
    pub effects: Effects,
    /// The callers that the list denied without need.
    #[serde(flatten)]
    pub needless: NeedlessDenials,
    /// The maximum overshoot within that time, for the fullest second of any caller.
    pub overshoot_at_most: u64,
    #[serde(skip)]
    max_in_second: u64,
}

/// The delays of a followed log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Followed {
    /// The number of times another file took a name, or a file was truncated.
    pub rotations: u64,
    /// The number of lines that came while following.
    pub lines: u64,
    /// The mean time from a call until its line was decided.
    pub delay_mean_ns: u64,
    /// The maximum of these times.
    pub delay_worst_ns: u64,
    /// The maximum time from a denied call until the deny list had its caller.
    pub published_worst_ns: u64,
    /// The amount in the fullest second of any caller.
    #[serde(rename = "most_in_second")]
    pub max_in_second: u64,
    /// The maximum amount of one caller that passed before a denial took hold.
    pub overshoot_at_most: u64,
}

impl Analysis {
    /// Returns the result so far.
    #[must_use]
    pub fn report(&self) -> Report {
        let (settings, callers) = (&self.settings, self.callers.list());
        let is_exact = self.is_exact();
        let others = self.callers.others();
        let max_in_second = callers.iter().map(|caller| caller.peak.max_in_second).max();
        let max_in_second = max_in_second.unwrap_or(0);
        Report {
            limit: settings.limit.title.clone(),
            key: settings.key.to_string(),
            unit: if settings.limit.in_bytes { "bytes" } else { "calls" },
            period: span::Text(settings.limit.period_ns).to_string(),
            from: self.first_ns.map(UnixTime),
            to: self.first_ns.map(|_| UnixTime(self.newest_ns)),
            counts: self.counts,
            callers: callers.len(),
            callers_denied: callers.iter().filter(|caller| caller.denied > 0).count(),
            first_skipped: self.first_skipped.clone(),
            beyond_keys: (others.calls > 0).then(|| CallersBeyond {
                calls: others.calls,
                denied: others.denied,
                unlisted_denied_at_most: others.floor(),
            }),
            fullest_is_exact: is_exact,
            fullest: self.callers.fullest(),
            suggestion: suggest(callers, is_exact, settings.set_aside, settings.spare),
            gate: self.publisher.as_ref().map(|publisher| Published {
                callers: publisher.len(),
                left_out: publisher.left_out(),
            }),
            list: settings.list.map(|list| self.list_report(list, max_in_second)),
            follow: self
                .follows
                .map(|follows| self.follow_report(follows.rotations, max_in_second)),
            by_denied: self.callers.by_denied(settings.top),
            by_calls: self.callers.by_calls(settings.top),
            timeline: self.timeline.clone(),
            set_aside: settings.set_aside,
            spare: settings.spare,
        }
    }

    fn list_report(&self, list: ListSettings, max_in_second: u64) -> ListReport {
        let delay_ns = list.delay.map_or_else(|| self.lag.lead_ns(0), ns);
        let callers = self.callers.list().iter();
        let callers = callers.map(|caller| (caller.peak.min, caller.denied, &caller.hold));
        ListReport {
            hold_ns: ns(list.hold),
            delay_ns,
            effects: self.effects,
            needless: NeedlessDenials::among(callers, self.settings.set_aside),
            overshoot_at_most: overshoot(max_in_second, delay_ns),
            max_in_second,
        }
    }

    fn follow_report(&self, rotations: u64, max_in_second: u64) -> Followed {
        Followed {
            rotations,
            lines: self.lag.lines,
            delay_mean_ns: self.lag.mean_ns(),
            delay_worst_ns: self.lag.worst_ns,
            published_worst_ns: self.lag.worst_published_ns,
            max_in_second,
            overshoot_at_most: self.lag.overshoot(max_in_second),
        }
    }
}

impl Report {
    /// Returns the report as JSON in one line. Names of fields are stable; fields may be added.
    #[must_use]
    pub fn to_json(&self) -> String {
        // Numbers, texts and lists of them are always valid.
        let json = serde_json::to_string(self).unwrap_or_default();
        json + "\n"
    }
}

/// Formats a part of a whole as a percentage, cut to hundredths: `8.33 %`.
fn percent(amount: u64, whole: u64) -> String {
    let hundredths =
        u128::from(amount).saturating_mul(10_000).checked_div(whole.into()).unwrap_or(0);
    format!("{}.{:02} %", hundredths.div_euclid(100), hundredths.rem_euclid(100))
}
