//! Simulations: recorded arrivals, replayed against the limit in force and another one.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use rategate::keyed::{Replay, ReplayOutcome};
use rategate::policy::Anchor;
use rategate::{AnyPolicy, FixedWindow, Gcra, Rate, SlidingLog};
use serde::{Deserialize, Serialize};

use super::recorder::{Arrival, Recorded};
use crate::observe::admin::{MAX_BODY_BYTES, Shared};
use crate::observe::{seconds, summary};
use crate::protocol::http::{Refused, WITHIN, read};
use crate::protocol::json;
use crate::rule::Limit;

/// The maximum number of decisions for one limit.
const MAX_DECISIONS: u64 = 4_000_000;
/// The maximum number of bars in the chart.
const MAX_BARS: u64 = 120;
const SECOND_NS: u64 = 1_000_000_000;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SimulationRequest {
    rule: String,
    /// The limit to be tried.
    limit: json::Object<Candidate>,
}

/// A limit of a number of permits in each period.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Candidate {
    permits: u64,
    period_ms: u64,
    /// The maximum number of permits at once. Defaults to `permits`. For `gcra` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    burst: Option<u64>,
    /// The algorithm. Defaults to that of the rule.
    #[serde(default, deserialize_with = "json::word")]
    algorithm: Algorithm,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
enum Algorithm {
    #[default]
    Same,
    Gcra,
    SlidingLog,
    FixedWindow,
}

#[derive(Debug, Serialize)]
pub(in crate::observe) struct Simulated {
    rule: String,
    from_ms: u64,
    until_ms: u64,
    /// The sampling: one key in this many was recorded, with all its arrivals.
    one_key_in: u64,
    /// The resolution of instants: arrivals of a key within it count as simultaneous.
    grain_ms: u64,
    arrivals: u64,
    keys: usize,
    /// The number of arrivals that were not replayed, since that would have taken too long.
    left_out: u64,
    /// The result of the limit in force. `None` if the rule allows everything or nothing.
    in_force: Option<Outcome>,
    candidate: Outcome,
    sentence: String,
    bars: Bars,
}

/// The result of a limit. Both limits begin fresh, so that they can be compared.
#[derive(Clone, Debug, Default, Serialize)]
struct Outcome {
    allowed: u64,
    denied: u64,
    keys_denied: usize,
    #[serde(skip)]
    denied_by_bar: Vec<u64>,
}

#[derive(Debug, Serialize)]
struct Bars {
    from_s: u64,
    width_s: u64,
    arrivals: Vec<u64>,
    in_force_denied: Vec<u64>,
    candidate_denied: Vec<u64>,
}

/// Answers `POST /v1/simulate`. Only one replay runs at a time.
pub(in crate::observe) async fn call(
    State(shared): State<Arc<Shared>>,
    body: Body,
) -> Result<Json<Simulated>, Refused> {
    let body = read(body, MAX_BODY_BYTES, WITHIN).await?;
    let request: SimulationRequest = json::read(&body)?;
    let record = shared.record(&request.rule)?;
    let rule = record.rule.load_full();
    let rule = rule.ok_or_else(|| {
        Refused::invalid("/rule", "it stands for several limits: there is none to compare with")
    })?;
    if rule.limit.counts_in_flight() {
        return Err(Refused::invalid(
            "/rule",
            "it counts calls in flight, and arrivals do not say when calls end; \
             only limits over time can be replayed",
        ));
    }
    let in_force = match rule.limit {
        Limit::Policy(policy) => Some(policy),
        Limit::Counted(window) => window.granting(),
        Limit::Unlimited | Limit::Exempt | Limit::Nothing => None,
    };
    let candidate = request.limit.0.policy(in_force.as_ref())?;
    let permit = Arc::clone(&shared.replays).try_acquire_owned().map_err(|_| Refused::Busy)?;
    let name = record.name.to_string();
    let simulated = tokio::task::spawn_blocking(move || {
        // The permit is held while the replay runs, even if the client disconnects.
        let _permit = permit;
        Simulated::of(name, record.recorder.read(), in_force.as_ref(), &candidate)
    });
    let simulated = simulated.await.map_err(|error| Refused::invalid("", error.to_string()))?;
    Ok(Json(simulated))
}

impl Candidate {
    /// Returns the limit, by default with the algorithm in force.
    fn policy(&self, in_force: Option<&AnyPolicy>) -> Result<AnyPolicy, Refused> {
        let bad = |error: &dyn std::fmt::Display| Refused::invalid("/limit", error.to_string());
        let period_ns = self.period_ms.saturating_mul(1_000_000);
        let algorithm = match (self.algorithm, in_force) {
            (Algorithm::Same, Some(AnyPolicy::SlidingLog(_))) => Algorithm::SlidingLog,
            // What-if windows have one length.
            (Algorithm::Same, Some(AnyPolicy::FixedWindow(_))) => Algorithm::FixedWindow,
            (Algorithm::Same, _) => Algorithm::Gcra,
            (other, _) => other,
        };
        if self.burst.is_some() && algorithm != Algorithm::Gcra {
            return Err(Refused::invalid("/limit", "only `gcra` has a burst"));
        }
        match algorithm {
            Algorithm::SlidingLog => {
                SlidingLog::try_new(self.permits, Duration::from_nanos(period_ns))
                    .map(AnyPolicy::from)
                    .map_err(|error| bad(&error))
            }
            Algorithm::FixedWindow => {
                FixedWindow::try_new(self.permits, Duration::from_nanos(period_ns), Anchor::Epoch)
                    .map(AnyPolicy::from)
                    .map_err(|error| bad(&error))
            }
            Algorithm::Gcra | Algorithm::Same => {
                let period = Duration::from_nanos(period_ns);
                let rate = Rate::new(self.permits, period).map_err(|error| bad(&error))?;
                let burst = self.burst.unwrap_or(self.permits);
                Gcra::new(rate, burst).map(AnyPolicy::from).map_err(|error| bad(&error))
            }
        }
    }
}

impl Simulated {
    fn of(
        rule: String,
        recorded: Recorded,
        in_force: Option<&AnyPolicy>,
        candidate: &AnyPolicy,
    ) -> Self {
        let Recorded { from_ns, every, grain_ns, arrivals } = recorded;
        let keys: HashSet<u64> = arrivals.iter().map(|arrival| arrival.id).collect();
        let calls = |arrival: &Arrival| u64::from(arrival.calls);
        let total = arrivals.iter().map(calls).fold(0, u64::saturating_add);
        let first_ns = arrivals.first().map_or(from_ns, |first| first.at_ns);
        let until_ns = arrivals.last().map_or(first_ns, |last| last.at_ns);
        let grid = Grid::new(first_ns, until_ns);
        let mut by_bar = grid.bars();
        for arrival in &arrivals {
            grid.add(&mut by_bar, arrival.at_ns, calls(arrival));
        }
        let now =
            in_force.map(|policy| replay(policy, &arrivals, keys.len(), &grid, MAX_DECISIONS));
        let then = replay(candidate, &arrivals, keys.len(), &grid, MAX_DECISIONS);
        let left_out = total.saturating_sub(then.allowed.saturating_add(then.denied));
        let sentence = sentence(total, keys.len(), now.as_ref(), &then);
        let bars = Bars {
            from_s: grid.from_s,
            width_s: grid.width_s,
            arrivals: by_bar,
            in_force_denied: now.as_ref().map(|now| now.denied_by_bar.clone()).unwrap_or_default(),
            candidate_denied: then.denied_by_bar.clone(),
        };
        Self {
            rule,
            from_ms: from_ns / 1_000_000,
            until_ms: until_ns / 1_000_000,
            one_key_in: every,
            grain_ms: grain_ns / 1_000_000,
            arrivals: total,
            keys: keys.len(),
            left_out,
            in_force: now,
            candidate: then,
            sentence,
            bars,
        }
    }
}

/// Replays arrivals against a limit that begins fresh.
fn replay(
    policy: &AnyPolicy,
    arrivals: &[Arrival],
    keys: usize,
    grid: &Grid,
    max_decisions: u64,
) -> Outcome {
    let table: Replay<u64> = Replay::new(&[*policy], keys.max(1));
    let mut outcome = Outcome { denied_by_bar: grid.bars(), ..Outcome::default() };
    let mut denied_keys = HashSet::new();
    let mut decisions = 0_u64;
    for arrival in arrivals {
        table.set(Duration::from_nanos(arrival.at_ns));
        let calls = u64::from(arrival.calls);
        let mut allowed = 0_u64;
        // Once one is denied at an instant, all others of the same key at that instant are.
        while allowed < calls
            && table.attempt(&arrival.id, u64::from(arrival.permits)) == ReplayOutcome::Allowed
        {
            allowed = allowed.saturating_add(1);
        }
        let denied = calls.saturating_sub(allowed);
        outcome.allowed = outcome.allowed.saturating_add(allowed);
        outcome.denied = outcome.denied.saturating_add(denied);
        if denied > 0 {
            denied_keys.insert(arrival.id);
            grid.add(&mut outcome.denied_by_bar, arrival.at_ns, denied);
        }
        decisions = decisions.saturating_add(allowed.saturating_add(1));
        if decisions > max_decisions {
            break;
        }
    }
    outcome.keys_denied = denied_keys.len();
    outcome
}

fn sentence(arrivals: u64, keys: usize, now: Option<&Outcome>, then: &Outcome) -> String {
    if arrivals == 0 {
        return "No arrivals are recorded yet.".to_owned();
    }
    let described = |outcome: &Outcome| {
        let all = outcome.allowed.saturating_add(outcome.denied);
        let keys = summary::number(u64::try_from(outcome.keys_denied).unwrap_or(u64::MAX), "key");
        match outcome.denied {
            0 => "none".to_owned(),
            denied => {
                format!("{} ({}), of {keys}", summary::grouped(denied), summary::share(denied, all))
            }
        }
    };
    let calls = summary::number(arrivals, "arrival");
    let of_keys = summary::number(u64::try_from(keys).unwrap_or(u64::MAX), "key");
    let compared = now
        .map_or_else(String::new, |now| format!(" The limit in force denies {}.", described(now)));
    format!("Of {calls} of {of_keys}, this limit denies {}.{compared}", described(then))
}

/// The bars of the chart: wide enough not to exceed their number, in whole seconds.
struct Grid {
    from_s: u64,
    width_s: u64,
    count: usize,
}

impl Grid {
    fn new(from_ns: u64, until_ns: u64) -> Self {
        let first_s = seconds(from_ns);
        let span_s = seconds(until_ns).saturating_sub(first_s).saturating_add(1);
        let width_s = span_s.div_ceil(MAX_BARS);
        let count = usize::try_from(span_s.div_ceil(width_s)).unwrap_or(0);
        Self { from_s: first_s, width_s, count }
    }

    fn bars(&self) -> Vec<u64> {
        vec![0; self.count]
    }

    fn add(&self, bars: &mut [u64], at_ns: u64, more: u64) {
        let second = at_ns.checked_div(SECOND_NS).unwrap_or(0).saturating_sub(self.from_s);
        let at =
            usize::try_from(second.checked_div(self.width_s).unwrap_or(0)).unwrap_or(usize::MAX);
        if let Some(bar) = bars.get_mut(at) {
            *bar = bar.saturating_add(more);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Replays against a limit of three at once, one back in a day, with a maximum of decisions.
    fn replayed(arrivals: &[Arrival], max_decisions: u64) -> Outcome {
        let day = Rate::new(1, Duration::from_secs(86_400)).unwrap();
        let policy = AnyPolicy::from(Gcra::new(day, 3).unwrap());
        replay(&policy, arrivals, 10, &Grid::new(0, 9 * SECOND_NS), max_decisions)
    }

    const fn arrival(second: u64, id: u64, calls: u32) -> Arrival {
        Arrival { at_ns: second * SECOND_NS, id, permits: 1, calls }
    }

    #[test]
    fn calls_that_are_one_entry_are_decided_one_by_one() {
        let outcome = replayed(&[arrival(0, 1, 10), arrival(1, 2, 2), arrival(2, 1, 5)], u64::MAX);
        assert_eq!((outcome.allowed, outcome.denied, outcome.keys_denied), (5, 12, 1));
        assert_eq!(outcome.denied_by_bar[..3], [7, 0, 5]);
    }

    #[test]
    fn a_replay_ends_with_the_entry_that_was_one_decision_too_many() {
        let arrivals: Vec<_> = (0..9).map(|nth| arrival(nth, nth, 2)).collect();
        let all = replayed(&arrivals, u64::MAX);
        assert_eq!((all.allowed, all.denied), (18, 0));
        // Each takes two, and one more decision to see that there are no more.
        let some = replayed(&arrivals, 9);
        assert_eq!((some.allowed, some.denied), (8, 0));
    }
}
