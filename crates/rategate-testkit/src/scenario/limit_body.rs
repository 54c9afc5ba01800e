//! Bodies of `[limit]` tables, written from policies: the inverse of [`policy_from`].
//!
//! [`policy_from`]: super::policy_from

use std::fmt::{Display, Write as _};

use rategate_core::adaptive::{AdaptiveConcurrency, AdaptiveRate};
use rategate_core::any_policy::AnyPolicy;
use rategate_core::backfill_pool::BackfillPool;
use rategate_core::commit_log::CommitLog;
use rategate_core::compensation::DampingShift;
use rategate_core::concurrency::Concurrency;
use rategate_core::fixed_window::{Anchor, FixedWindow};
use rategate_core::gcra::Gcra;
use rategate_core::pacer::Pacer;
use rategate_core::ratio::Ratio;
use rategate_core::sliding_log::SlidingLog;
use rategate_core::span::Text;
use rategate_core::two_timeline::{Mode, TwoTimeline};
use rategate_core::warm_up::WarmUp;

use super::limits::{ADAPTIVE, ADAPTIVE_RATE, METHODS, SLOW, SLOW_FROM};

/// Writes a policy as the body of a `[limit]` table, one key on each line, in ASCII.
/// [`policy_from`](super::policy_from) reads the same policy back.
///
/// Returns `None` for what no table describes: calendars, compact logs, schedules that ramp, and
/// ratios without a decimal form, such as 4/3.
///
/// ```
/// use rategate_core::gcra::Gcra;
/// use rategate_testkit::scenario::{policy_body, policy_from};
///
/// let policy = Gcra::per_second(5).burst(3).into();
/// let body = policy_body(&policy).unwrap_or_default();
/// assert_eq!(body, "policy = \"gcra\"\nrate = \"5/s\"\nburst = 3");
/// assert_eq!(policy_from(&body), Ok(policy));
/// ```
#[must_use]
pub fn policy_body(policy: &AnyPolicy) -> Option<String> {
    match policy {
        AnyPolicy::SlowStart(slow) => {
            let mut body = body(&(*slow.policy()).into())?;
            body.span(SLOW, slow.period_ns());
            body.text(SLOW_FROM, slow.first_share());
            Some(body.0)
        }
        policy => body(policy).map(|body| body.0),
    }
}

/// Writes a policy without a slow start.
fn body(policy: &AnyPolicy) -> Option<Body> {
    match policy {
        AnyPolicy::Gcra(bucket) => Some(gcra(bucket)),
        AnyPolicy::SlidingLog(log) => Some(sliding_log(log)),
        AnyPolicy::FixedWindow(window) => Some(fixed_window(window)),
        AnyPolicy::Pacer(pacer) => Some(paced(pacer)),
        AnyPolicy::TwoTimeline(schedule) => two_timeline(schedule),
        AnyPolicy::WarmUp(warm_up) => warming(warm_up),
        AnyPolicy::BackfillPool(pool) => backfill_pool(pool),
        AnyPolicy::AdaptiveConcurrency(adaptive) => adaptive_concurrency(*adaptive),
        AnyPolicy::AdaptiveRate(adaptive) => Some(adaptive_rate(*adaptive)),
        AnyPolicy::Concurrency(in_flight) => Some(concurrency(*in_flight)),
        AnyPolicy::CommitLog(log) => Some(commit_log(log)),
        _ => None,
    }
}

fn gcra(bucket: &Gcra) -> Body {
    let mut body = Body::of("gcra");
    body.text("rate", bucket.rate());
    body.bare("burst", bucket.burst_size());
    body
}

fn sliding_log(log: &SlidingLog) -> Body {
    let mut body = Body::of("sliding-log");
    body.bare("permits", log.permits());
    body.span("period", log.held_for_ns().saturating_sub(log.guard_ns()));
    body.span("guard", log.guard_ns());
    body.span("resolution", log.resolution_ns());
    body
}

fn fixed_window(window: &FixedWindow) -> Body {
    let mut body = Body::of("fixed-window");
    body.bare("permits", window.permits());
    body.span("period", window.period_ns());
    let anchor = match window.anchor() {
        Anchor::Epoch => "epoch",
        Anchor::FirstCall => "first-call",
    };
    body.text("anchor", anchor);
    body
}

fn paced(pacer: &Pacer) -> Body {
    let mut body = Body::of("pacer");
    body.text("rate", pacer.rate());
    body.span("min_sleep", pacer.min_sleep_ns());
    body.catch_up(pacer.catch_up_ns());
    body
}

fn two_timeline(policy: &TwoTimeline) -> Option<Body> {
    let (rate, mode, catch_up_ns) = (policy.rate(), policy.mode(), policy.catch_up_ns());
    let catch_up = catch_up_ns.map(std::time::Duration::from_nanos);
    if TwoTimeline::new(rate, mode, catch_up) != *policy {
        return None;
    }
    let mut body = Body::of("two-timeline");
    body.text("rate", rate);
    match mode {
        Mode::Average => body.text("mode", "average"),
        Mode::Strict => body.text("mode", "strict"),
        Mode::Damped { shift } => body.bare("mode", format_args!("{{ damped = {} }}", half(shift))),
        Mode::Burst(ratio) => {
            body.bare("mode", format_args!("{{ burst = {} }}", decimal(ratio)?));
        }
        _ => return None,
    }
    body.catch_up(catch_up_ns);
    Some(body)
}

fn warming(warm_up: &WarmUp) -> Option<Body> {
    let mut body = Body::of("warm-up");
    body.text("rate", warm_up.rate());
    body.span("period", warm_up.period_ns());
    body.bare("cold_factor", decimal(warm_up.cold_factor())?);
    body.bare("max_request", warm_up.max_request());
    Some(body)
}

fn backfill_pool(pool: &BackfillPool) -> Option<Body> {
    let mut body = Body::of("backfill-pool");
    body.bare("pool", pool.pool());
    body.bare("burst_ratio", decimal(pool.burst_ratio())?);
    if let Some(rate) = pool.rate() {
        body.text("rate", rate);
    }
    Some(body)
}

fn concurrency(in_flight: Concurrency) -> Body {
    let mut body = Body::of("concurrency");
    body.bare("permits", in_flight.permits());
    body
}

fn commit_log(log: &CommitLog) -> Body {
    let mut body = Body::of("commit-log");
    body.bare("permits", log.permits());
    body.span("period", log.cools_for_ns().saturating_sub(log.guard_ns()));
    body.span("guard", log.guard_ns());
    body
}

fn adaptive_concurrency(adaptive: AdaptiveConcurrency) -> Option<Body> {
    let adaptation = adaptive.adaptation();
    let mut body = Body::of(ADAPTIVE);
    body.bare("floor", adaptation.bounds().floor());
    body.bare("first", adaptation.bounds().first());
    body.bare("ceiling", adaptation.bounds().ceiling());
    body.text("method", word(&METHODS, &adaptation.method())?);
    body.bare("seed", adaptation.seed());
    Some(body)
}

fn adaptive_rate(adaptive: AdaptiveRate) -> Body {
    let mut body = Body::of(ADAPTIVE_RATE);
    body.text("floor", adaptive.floor());
    body.text("ceiling", adaptive.ceiling());
    body.bare("burst", adaptive.burst_size());
    body
}

/// Lines of keys and values.
struct Body(String);

impl Body {
    fn of(policy: &str) -> Self {
        Self(format!("policy = \"{policy}\""))
    }

    /// Adds a value without quotes.
    fn bare(&mut self, key: &str, value: impl Display) {
        // A string takes whatever is written.
        let _ = write!(self.0, "\n{key} = {value}");
    }

    fn text(&mut self, key: &str, value: impl Display) {
        self.bare(key, format_args!("\"{value}\""));
    }

    fn span(&mut self, key: &str, ns: u64) {
        self.text(key, Text(ns));
    }

    fn catch_up(&mut self, catch_up_ns: Option<u64>) {
        match catch_up_ns {
            Some(ns) => self.span("catch_up", ns),
            None => self.text("catch_up", "unbounded"),
        }
    }
}

fn word<T: PartialEq>(words: &[(&'static str, T)], meaning: &T) -> Option<&'static str> {
    words.iter().find(|(_, known)| known == meaning).map(|(word, _)| *word)
}

/// Returns the power of two of a damping. A float has it exactly.
fn half(shift: DampingShift) -> f64 {
    (0..shift.get()).fold(1.0, |power, _| power / 2.0)
}

/// Writes a ratio as a decimal, if that is exact and can be read.
fn decimal(ratio: Ratio) -> Option<String> {
    let denominator = u128::from(ratio.denominator().get());
    let (whole, mut rest) = divided(ratio.numerator().get().into(), denominator)?;
    let mut text = whole.to_string();
    if rest > 0 {
        text.push('.');
    }
    while rest > 0 && text.len() < 40 {
        let digit;
        (digit, rest) = divided(rest.checked_mul(10)?, denominator)?;
        let _ = write!(text, "{digit}");
    }
    (text.parse() == Ok(ratio)).then_some(text)
}

fn divided(number: u128, by: u128) -> Option<(u128, u128)> {
    number.checked_div(by).zip(number.checked_rem(by))
}
