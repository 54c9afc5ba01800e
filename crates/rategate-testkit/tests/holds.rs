//! Holds, judged by a list of what was used. Each decision of a run is computed anew from the whole
//! list, in which a hold counts its estimate until it ends, and from then on its cost.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use fastrand::Rng;
use rategate_core::any_policy::AnyPolicy;
use rategate_testkit::report::{Outcome, StepReport};
use rategate_testkit::scenario::{Call, Scenario};
use rategate_testkit::world;

/// Permits that were taken at one instant. A hold that has not ended ends at `end_ns`.
#[derive(Clone, Copy, Debug)]
struct Used {
    at_ns: u64,
    permits: u64,
    end_ns: u64,
}

impl Used {
    const fn permits_at(&self, now_ns: u64) -> u64 {
        if self.end_ns <= now_ns { 0 } else { self.permits }
    }
}

/// Returns `true` if a limit lets `permits` pass at `now_ns`: by its definition.
fn passes(limit: &AnyPolicy, list: &[Used], now_ns: u64, permits: u64) -> bool {
    let used_since = |first_ns: u64| -> u64 {
        let counted = list.iter().filter(|used| used.at_ns >= first_ns);
        counted.map(|used| used.permits_at(now_ns)).sum()
    };
    match limit {
        AnyPolicy::Gcra(bucket) => {
            let (rate, period_ns) = bucket.rate().fraction().unwrap();
            // In parts of a nanosecond, of which a permit takes `period_ns`.
            let (instant, span) = (
                |at_ns: u64| u128::from(at_ns) * u128::from(rate),
                |permits: u64| u128::from(permits) * u128::from(period_ns),
            );
            let full_at =
                list.iter().fold(0, |full_at: u128, used| match used.permits_at(now_ns) {
                    0 => full_at,
                    permits => full_at.max(instant(used.at_ns)) + span(permits),
                });
            full_at.max(instant(now_ns)) + span(permits)
                <= instant(now_ns) + span(bucket.burst_size().get())
        }
        AnyPolicy::FixedWindow(window) => {
            let first_ns = now_ns - now_ns % window.period_ns().unwrap();
            used_since(first_ns) + permits <= window.permits()
        }
        AnyPolicy::SlidingLog(log) => {
            let first_ns = (now_ns + 1).saturating_sub(log.held_for_ns());
            used_since(first_ns) + permits <= log.permits()
        }
        other => panic!("{other:?}"),
    }
}

/// The list of a run, and the limits by which it is judged.
struct Judge<'s> {
    scenario: &'s Scenario,
    list: Vec<Used>,
    /// The holds by step, each with its place in the list until a call has ended it.
    held: BTreeMap<usize, Option<usize>>,
}

impl Judge<'_> {
    fn passes(&self, now_ns: u64, permits: u64) -> bool {
        self.scenario.limits.iter().all(|limit| passes(limit, &self.list, now_ns, permits))
    }

    /// Returns how long until `permits` pass if nothing else happens, as those who wait see it.
    fn wait_ns(&self, now_ns: u64, permits: u64) -> u64 {
        let (mut low, mut high) = (0, 1 << 50);
        // What passes once goes on to pass.
        while low < high {
            let middle = u64::midpoint(low, high);
            if self.passes(now_ns + middle, permits) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        high
    }

    /// Returns how long until `permits` pass if nothing that is held comes back.
    fn wait_while_held_ns(&self, now_ns: u64, permits: u64) -> u64 {
        let kept = self.list.iter().filter(|used| used.end_ns > now_ns);
        let list = kept.map(|used| Used { end_ns: u64::MAX, ..*used }).collect();
        let (scenario, held) = (self.scenario, BTreeMap::new());
        Judge { scenario, list, held }.wait_ns(now_ns, permits)
    }

    /// Returns what a denial says: that wait, or the time until the first hold ends.
    fn told_ns(&self, now_ns: u64, permits: u64) -> u64 {
        let ends = self.list.iter().filter(|used| used.permits > 0).map(|used| used.end_ns);
        let ends = ends.filter(|&end_ns| end_ns > now_ns && end_ns < u64::MAX);
        let wait_ns = self.wait_while_held_ns(now_ns, permits);
        ends.map(|end_ns| end_ns - now_ns).fold(wait_ns, u64::min)
    }

    fn remaining(&self, now_ns: u64) -> u64 {
        (1..1_000).take_while(|&permits| self.passes(now_ns, permits)).last().unwrap_or(0)
    }

    fn take(&mut self, at_ns: u64, permits: u64, end_ns: u64) {
        self.list.push(Used { at_ns, permits, end_ns });
    }

    /// Compares a request, and takes what it was granted.
    fn request(&mut self, about: &str, now_ns: u64, seen: &StepReport, end_ns: Option<u64>) {
        let permits = seen.permits.unwrap();
        if seen.outcome == Outcome::Never {
            assert!(self.wait_while_held_ns(now_ns, permits) > 1 << 49, "{about}");
            return;
        }
        let is_denied = self.wait_ns(now_ns, permits) > 0;
        let told_ns = is_denied.then(|| self.told_ns(now_ns, permits));
        assert_eq!(seen.retry_after_ns, told_ns, "{about}");
        assert_eq!(seen.outcome == Outcome::Denied, is_denied, "{about}");
        if !is_denied {
            self.take(now_ns, permits, end_ns.unwrap_or(u64::MAX));
        }
    }

    /// Ends the hold of a step, of which `actual` permits were used. Returns what was used too
    /// much, and the expected outcome.
    fn end(&mut self, of: usize, now_ns: u64, actual: u64) -> (u64, Outcome) {
        let Some(place) = self.held.get_mut(&of) else { return (0, Outcome::Ungranted) };
        let Some(at) = place.take() else { return (0, Outcome::TooLate) };
        let held = &mut self.list[at];
        if held.end_ns <= now_ns {
            return (actual, Outcome::Late);
        }
        let short = actual.saturating_sub(held.permits);
        *held = Used { permits: actual.min(held.permits), end_ns: u64::MAX, ..*held };
        (short, Outcome::Committed)
    }

    fn step(&mut self, about: &str, own: usize, now_ns: u64, seen: &StepReport) {
        let step = &self.scenario.steps[own];
        match &step.call {
            Call::Try { .. } => self.request(about, now_ns, seen, None),
            Call::Hold { ttl, .. } => {
                let before = self.list.len();
                self.request(about, now_ns, seen, Some(now_ns + ttl.0));
                let was_held = seen.outcome == Outcome::Held;
                self.held.extend(was_held.then_some((own, Some(before))));
            }
            Call::Commit { actual } => {
                let (more, outcome) = self.end(step.of, now_ns, *actual);
                assert_eq!(seen.outcome, outcome, "{about}");
                self.take(now_ns, more, u64::MAX);
            }
            Call::Cancel {} => {
                let outcome = match self.end(step.of, now_ns, 0).1 {
                    Outcome::Committed => Outcome::Cancelled,
                    Outcome::Late => Outcome::TooLate,
                    other => other,
                };
                assert_eq!(seen.outcome, outcome, "{about}");
            }
            Call::Charge { permits } => self.take(now_ns, *permits, u64::MAX),
            Call::Peek { permits } => {
                let is_denied = self.wait_ns(now_ns, *permits) > 0;
                let told_ns = is_denied.then(|| self.told_ns(now_ns, *permits));
                assert_eq!(seen.retry_after_ns, told_ns, "{about}");
            }
            // Nothing else happens before the wait is over.
            Call::Wait { permits, .. } => {
                let waited_ns = self.wait_ns(now_ns, *permits);
                assert_eq!(seen.start_ns, Some(seen.at_ns + waited_ns), "{about}");
                assert_eq!(seen.remaining, 0, "{about}: behind a waiter");
                self.take(now_ns + waited_ns, *permits, u64::MAX);
                return;
            }
            other => panic!("{about}: {other:?}"),
        }
        assert_eq!(seen.remaining, self.remaining(now_ns), "{about}: remaining");
    }
}

/// Plays a file and judges each of its steps, and the sum of all that was used.
fn judge(about: &str, text: &str) -> Vec<StepReport> {
    let scenario = Scenario::parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let report = world::run(&scenario);
    let mut judge = Judge { scenario: &scenario, list: Vec::new(), held: BTreeMap::new() };
    for (own, seen) in report.steps.iter().enumerate() {
        let now_ns = scenario.clock_start_ns + seen.at_ns;
        judge.step(&format!("{about}, step {}", own + 1), own, now_ns, seen);
    }
    let end_ns = scenario.clock_start_ns + report.elapsed_ns;
    let used: u64 = judge.list.iter().map(|used| used.permits_at(end_ns)).sum();
    assert_eq!(report.granted, used, "{about}");
    report.steps
}

#[test]
fn the_files_of_holds_agree_with_the_list() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata/scenarios");
    let mut judged = 0;
    for file in fs::read_dir(folder).unwrap() {
        let file = file.unwrap().path();
        let name = file.file_stem().unwrap().to_string_lossy().into_owned();
        if name.starts_with("hold-") {
            judge(&name, &fs::read_to_string(&file).unwrap());
            judged += 1;
        }
    }
    assert!(judged > 5, "{judged}");
}

const BUCKET: &str = "policy = \"gcra\"\nrate = \"3/ms\"\nburst = 20\n";
const LOG: &str = "policy = \"sliding-log\"\npermits = 20\nperiod = \"5ms\"\n";
const WINDOW: &str = "policy = \"fixed-window\"\npermits = 20\nperiod = \"5ms\"\n";

/// Returns a file of holds, tries and charges, which all end in different ways.
fn random_file(seed: u64, limits: &[&str]) -> String {
    let mut rng = Rng::with_seed(seed);
    let mut text = String::new();
    for limit in limits {
        writeln!(text, "[[limit]]\n{limit}").unwrap();
    }
    let (mut at_us, mut holds, span_us) = (0, 0, rng.u64(10..2_000));
    for _ in 0..60 {
        at_us += if rng.bool() { 0 } else { rng.u64(0..span_us) };
        let permits = rng.u64(1..=10);
        let name = holds - rng.u64(0..=holds.min(5));
        let call = match rng.u32(0..11) {
            0..=1 => format!("try\"\npermits = {permits}"),
            2..=5 => {
                holds += 1;
                let ttl_us = rng.u64(0..4 * span_us);
                format!("hold\"\npermits = {permits}\nttl = \"{ttl_us}us\"\nname = \"{holds}\"")
            }
            6..=8 if name > 0 => {
                format!("commit\"\nname = \"{name}\"\nactual = {}", rng.u64(0..=22))
            }
            9 if name > 0 => format!("cancel\"\nname = \"{name}\""),
            10 if rng.u32(0..4) == 0 => format!("charge\"\npermits = {permits}"),
            _ => format!("peek\"\npermits = {permits}"),
        };
        writeln!(text, "[[step]]\nat = \"{at_us}us\"\ncall = \"{call}").unwrap();
    }
    text
}

#[test]
fn random_holds_agree_with_the_list() {
    let kinds = [Outcome::Held, Outcome::Denied, Outcome::Committed, Outcome::Late];
    for limits in [&[BUCKET][..], &[LOG], &[WINDOW], &[BUCKET, LOG], &[WINDOW, BUCKET]] {
        let mut seen = [0; 4];
        for seed in 0..200 {
            let steps = judge(&format!("{limits:?}, seed {seed}"), &random_file(seed, limits));
            for (count, kind) in seen.iter_mut().zip(kinds) {
                *count += steps.iter().filter(|step| step.outcome == kind).count();
            }
        }
        assert!(seen.iter().all(|&count| count > 150), "{limits:?}: {seen:?}");
    }
}
