//! The report: its data, and its forms as text, JSON and SVG.

mod json;
mod picture;
mod text;

use super::args::AnalyzeArgs;
use super::callers::Row;
use super::hold::{Effects, Innocent};
use super::lag::{Lag, overshoot};
use super::suggest::{Suggestion, suggest};
use super::tally::{Counts, Tally};
use super::timeline::Timeline;
use rategate_core::span;

/// A complete report.
#[derive(Debug)]
pub(super) struct Report {
    title: String,
    key: String,
    /// The unit of permits: "calls" or "bytes".
    unit: &'static str,
    period: String,
    counts: Counts,
    callers: usize,
    callers_denied: usize,
    /// The callers beyond the capacity: their calls, their denials, and the maximum denials of a
    /// missing one.
    beyond: Option<(u64, u64, u64)>,
    /// The caller with the fullest window.
    fullest: Option<Row>,
    is_exact: bool,
    by_denied: Vec<Row>,
    by_calls: Vec<Row>,
    suggestion: Option<Suggestion>,
    /// The number of callers that the suggested limit would deny at least once, those set aside
    /// included.
    suggestion_denies: usize,
    set_aside: u32,
    spare: u32,
    timeline: Timeline,
    /// The number of callers on the deny list, and of denials that did not fit on it.
    gate: Option<(usize, u64)>,
    follow: Option<Follow>,
    list: Option<ListReport>,
}

/// The effect that a deny list would have had, or had.
#[derive(Clone, Copy, Debug)]
struct ListReport {
    effects: Effects,
    innocent: Innocent,
    hold_ns: u64,
    /// The assumed delay, or the maximum that was measured.
    delay_ns: u64,
    /// The maximum overshoot within that delay, for the fullest second of any caller.
    overshoot_at_most: u64,
    max_in_second: u64,
}

#[derive(Clone, Copy, Debug)]
struct Follow {
    rotations: u64,
    lag: Lag,
    max_in_second: u64,
}

impl Report {
    pub(super) fn of(args: &AnalyzeArgs, tally: &Tally, rotations: Option<u64>) -> Self {
        let (settings, list) = (&tally.settings, tally.callers.list());
        let max = usize::try_from(args.top).unwrap_or(usize::MAX);
        let suggestion = suggest(list, tally.is_exact(), settings.set_aside, settings.spare);
        let over = |limit: Suggestion| {
            list.iter().filter(|caller| caller.peak.min > limit.permits).count()
        };
        let others = tally.callers.others();
        let max_in_second = list.iter().map(|caller| caller.peak.max_in_second).max();
        let max_in_second = max_in_second.unwrap_or(0);
        let list_report = tally.has_list().then(|| list_report(tally, max_in_second));
        let follow = rotations.map(|rotations| Follow { rotations, lag: tally.lag, max_in_second });
        Self {
            title: settings.title.clone(),
            key: args.key.clone(),
            unit: if settings.in_bytes { "bytes" } else { "calls" },
            period: span::Text(settings.period_ns).to_string(),
            counts: tally.counts.clone(),
            callers: list.len(),
            callers_denied: list.iter().filter(|caller| caller.denied > 0).count(),
            beyond: (others.calls > 0).then(|| (others.calls, others.denied, others.floor())),
            fullest: tally.callers.fullest(),
            is_exact: tally.is_exact(),
            by_denied: tally.callers.by_denied(max),
            by_calls: tally.callers.by_calls(max),
            suggestion,
            suggestion_denies: suggestion.map_or(0, over),
            set_aside: settings.set_aside.0,
            spare: settings.spare.0,
            timeline: tally.timeline.clone(),
            gate: tally.gate.as_ref().map(|gate| (gate.len(), gate.left_out())),
            follow,
            list: list_report,
        }
    }

    fn calls(&self) -> u64 {
        self.counts.allowed.saturating_add(self.counts.denied)
    }
}

fn list_report(tally: &Tally, max_in_second: u64) -> ListReport {
    let settings = &tally.settings;
    let delay_ns = settings.delay_ns.unwrap_or_else(|| tally.lag.lead_ns(0));
    let callers = tally.callers.list().iter();
    let callers = callers.map(|caller| (caller.peak.min, caller.denied, &caller.hold));
    ListReport {
        effects: tally.effects,
        innocent: Innocent::among(callers, settings.set_aside),
        hold_ns: settings.hold_ns,
        delay_ns,
        overshoot_at_most: overshoot(max_in_second, delay_ns),
        max_in_second,
    }
}

/// Formats a part of a whole as a percentage, cut to hundredths: `8.33 %`.
fn percent(amount: u64, whole: u64) -> String {
    let hundredths =
        u128::from(amount).saturating_mul(10_000).checked_div(whole.into()).unwrap_or(0);
    format!("{}.{:02} %", hundredths.div_euclid(100), hundredths.rem_euclid(100))
}

/// Formats millionths as a percentage: `0.1%`.
fn share(millionths: u32) -> String {
    let decimals = format!("{:04}", millionths.rem_euclid(10_000));
    let decimals = decimals.trim_end_matches('0');
    let whole = millionths.div_euclid(10_000);
    if decimals.is_empty() { format!("{whole}%") } else { format!("{whole}.{decimals}%") }
}
