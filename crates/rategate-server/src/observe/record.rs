//! The record of one rule: its watcher on the path of each decision, and its readers.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use arc_swap::ArcSwapOption;
use rategate::keyed::{Hashing, Seeds};

#[cfg(feature = "dashboard")]
use super::dashboard::Recorder;
use super::denials::{Denial, Denials, Events};
use super::holds::Holds;
use super::series::Series;
use super::tally::{Kind, Tally, Waits, increase, is_near};
use super::top_keys::{Ranking, TopKeys, Weight};
use super::{lock, name, summary};
use crate::engine::{HoldChange, ItemResult, Verdict, Watch};
use crate::rule::{Over, Rule};

/// The length of a window of waits. The previous window is kept too.
const WAIT_WINDOW_S: u64 = 60;

/// The record of a rule.
#[derive(Debug)]
pub(super) struct Record {
    /// The name of the rule, or of the record for inline limits or for all further rules.
    pub(super) name: Arc<str>,
    /// The rule. `None` in a record of several.
    pub(super) rule: ArcSwapOption<Rule>,
    pub(super) tally: Tally,
    pub(super) top_keys: TopKeys,
    #[cfg(feature = "dashboard")]
    pub(super) recorder: Recorder,
    pub(super) denials: Denials,
    /// The figures of its reservations, if there were any.
    pub(super) holds: OnceLock<Box<Holds>>,
    series: Mutex<Series>,
    waits: Mutex<WaitWindow>,
    sentence: Mutex<(u64, Arc<str>)>,
    seeds: Seeds,
    events: Arc<Events>,
}

/// The waits of the last one to two minutes, as differences of counters that only grow.
#[derive(Clone, Copy, Debug, Default)]
struct WaitWindow {
    began_s: u64,
    /// The counters at the beginning of the current window, and of the previous one.
    last: Waits,
    before: Waits,
}

impl Record {
    pub(super) fn new(
        name: Arc<str>,
        rule: Option<Arc<Rule>>,
        #[cfg(feature = "dashboard")] recorder: Recorder,
        events: Arc<Events>,
        now_ns: u64,
    ) -> Self {
        Self {
            name,
            rule: ArcSwapOption::from(rule),
            tally: Tally::new(),
            top_keys: TopKeys::new(super::seconds(now_ns)),
            #[cfg(feature = "dashboard")]
            recorder,
            denials: Denials::default(),
            holds: OnceLock::new(),
            series: Mutex::default(),
            waits: Mutex::default(),
            sentence: Mutex::new((0, Arc::from(""))),
            seeds: Seeds::random(Hashing::Fast),
            events,
        }
    }

    /// Ends a second.
    pub(super) fn tick(&self, now_ns: u64) {
        let second = super::seconds(now_ns);
        let calls = {
            let mut series = self.series();
            series.tick(second, &self.tally.sum());
            series.newest().calls()
        };
        self.top_keys.tick(second, calls);
        #[cfg(feature = "dashboard")]
        self.recorder.tick(now_ns);
        let mut waits = lock(&self.waits);
        if second.saturating_sub(waits.began_s) >= WAIT_WINDOW_S {
            *waits = WaitWindow { began_s: second, last: self.tally.waits().0, before: waits.last };
        }
    }

    /// Returns the figures of its last quarter of an hour.
    pub(super) fn series(&self) -> MutexGuard<'_, Series> {
        lock(&self.series)
    }

    /// Returns the waits of items that were denied in the last one to two minutes.
    pub(super) fn recent_waits(&self) -> Waits {
        let before = lock(&self.waits).before;
        increase(self.tally.waits().0, &before)
    }

    /// Returns a sentence about its last minute, which is formatted at most once a second.
    pub(super) fn sentence(&self) -> Arc<str> {
        let (end_s, minute) = {
            let series = self.series();
            (series.end_s(), series.newest_sum(60))
        };
        let mut sentence = lock(&self.sentence);
        if sentence.0 != end_s || sentence.1.is_empty() {
            let has_denied = minute.denied_calls.saturating_add(minute.shadow_calls) > 0;
            let denied =
                if has_denied { self.top_keys.read().1.denied() } else { Ranking::default() };
            *sentence = (end_s, summary::of_minute(&minute, &denied).into());
        }
        Arc::clone(&sentence.1)
    }

    fn name_of(&self, key: &[u8]) -> String {
        let values = self.rule.load().as_deref().map_or(1, Rule::values_counted);
        name::of_key(key, values)
    }

    #[cold]
    fn note_denial(&self, now_ns: u64, key: &[u8], permits: u64, verdict: Verdict) {
        let (why, enforced) = match verdict {
            Verdict::Denied { retry_after_ns: Some(_), enforced } => ("over-the-limit", enforced),
            Verdict::Denied { retry_after_ns: None, enforced } => ("never-fits", enforced),
            _ => ("store-unreachable", true),
        };
        let wait = match verdict {
            Verdict::Denied { retry_after_ns, .. } => retry_after_ns,
            _ => None,
        };
        self.denials.note(now_ns, &self.name, key, &self.events, || Denial {
            at_ms: now_ns / 1_000_000,
            name: self.name_of(key).into(),
            permits,
            why,
            retry_after_ms: wait.map(|wait| wait.get().div_ceil(1_000_000)),
            enforced,
        });
    }
}

impl Watch for Record {
    fn decided(&self, now_ns: u64, key: &[u8], permits: u64, result: &ItemResult) {
        let Some(kind) = Kind::of(result) else { return };
        let is_denial = matches!(kind, Kind::Denied | Kind::ShadowDenied | Kind::UnreachableDenied);
        // Of requests for 0 permits, only denials count: one that passes takes nothing.
        if permits == 0 && !is_denial {
            return;
        }
        if let Verdict::Charged(counted) = result.verdict
            && counted < permits
            && !matches!(result.limit, 0 | u64::MAX)
        {
            // Where nothing is counted, no debt is forgiven.
            self.tally.add(Kind::Forgiven, permits.saturating_sub(counted));
        }
        let charges = |rule: &Arc<Rule>| rule.over == Over::Charge;
        let may_exceed = match kind {
            Kind::Charged => true,
            Kind::Refunded => false,
            _ => permits > 0 && result.rule.as_ref().is_some_and(charges),
        };
        let permits = match result.verdict {
            Verdict::Refunded(counted) | Verdict::Charged(counted) => counted,
            _ => permits,
        };
        if result.debt > 0 && may_exceed {
            self.tally.add(Kind::ChargedOver, permits);
        }
        let number = self.tally.add(kind, permits);
        if matches!(kind, Kind::Uncounted | Kind::Refunded) {
            return;
        }
        let [id, _] = self.seeds.hashed(key).words();
        #[cfg(feature = "dashboard")]
        if permits > 0 {
            self.recorder.note(now_ns, id, permits);
        }
        let weight = if is_denial { Weight::Denied } else { Weight::Used(permits) };
        self.top_keys.note(number, id, weight, || self.name_of(key));
        match result.verdict {
            Verdict::Denied { retry_after_ns, enforced } => {
                if enforced {
                    self.tally.add_wait(retry_after_ns);
                }
                self.note_denial(now_ns, key, permits, result.verdict);
            }
            Verdict::Unavailable { admitted: false, .. } => {
                self.note_denial(now_ns, key, permits, result.verdict);
            }
            _ if is_near(result) => {
                self.tally.add(Kind::Near, permits);
                let left = result.remaining.unwrap_or(0);
                self.denials.near(now_ns, &self.name, &self.events, left, result.limit);
            }
            _ => {}
        }
    }

    fn reservation(&self, change: &HoldChange) {
        if change.forgiven > 0 {
            self.tally.add(Kind::Forgiven, change.forgiven);
        }
        self.holds.get_or_init(Box::default).note(change);
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use super::*;
    use crate::config::settings::LogKeys;

    fn denied(record: &Record, now_ns: u64, enforced: bool) {
        let verdict = Verdict::Denied { retry_after_ns: NonZeroU64::new(5), enforced };
        let result = ItemResult { verdict, ..ItemResult::WITHOUT_CAPACITY };
        record.decided(now_ns, b"key", 1, &result);
    }

    #[test]
    fn waits_are_those_of_the_last_one_to_two_minutes() {
        const SECOND_NS: u64 = 1_000_000_000;
        let events = Arc::new(Events::new(10, 50, LogKeys::Hashed));
        #[cfg(feature = "dashboard")]
        let recorder = Recorder::new(super::super::dashboard::Budget::new(0), 0);
        let record = Record::new(
            "rule".into(),
            None,
            #[cfg(feature = "dashboard")]
            recorder,
            events,
            0,
        );
        let waits = || record.recent_waits().iter().sum::<u64>();
        record.tick(1_000 * SECOND_NS);
        denied(&record, 1_000 * SECOND_NS, false);
        assert_eq!(waits(), 0, "a shadow rule makes no caller wait");
        denied(&record, 1_000 * SECOND_NS, true);
        for (second, expected) in [(1_059, 1), (1_060, 1), (1_119, 1), (1_120, 0)] {
            record.tick(second * SECOND_NS);
            assert_eq!(waits(), expected, "{second}");
        }
    }
}
