//! Tables of policies read as the policies that they were written from.

use std::time::Duration;

use fastrand::Rng;
use rategate_core::adaptive::{Adaptation, AdaptiveConcurrency, AdaptiveRate, Bounds, Method};
use rategate_core::any_policy::AnyPolicy;
use rategate_core::backfill_pool::BackfillPool;
use rategate_core::commit_log::CommitLog;
use rategate_core::concurrency::Concurrency;
use rategate_core::fixed_window::{Anchor, FixedWindow};
use rategate_core::gcra::Gcra;
use rategate_core::rate::Rate;
use rategate_core::ratio::Ratio;
use rategate_core::schedule::Schedule;
use rategate_core::share::Share;
use rategate_core::sliding_log::SlidingLog;
use rategate_core::slow_start::SlowStart;
use rategate_core::span::whole_ns;
use rategate_core::two_timeline::DampingShift;
use rategate_core::two_timeline::{Mode, TwoTimeline};
use rategate_core::warm_up::WarmUp;
use rategate_testkit::scenario::{Call, policy_body, policy_from};

use crate::scenarios;

fn assert_reads_back(policy: AnyPolicy) {
    let body = policy_body(&policy).unwrap_or_else(|| panic!("no body of {policy:?}"));
    assert_eq!(policy_from(&body), Ok(policy), "{body}");
    // A tape writes the lines between semicolons.
    assert!(body.is_ascii() && !body.contains(';'), "{body}");
}

#[test]
fn every_limit_of_the_suite_reads_back() {
    let mut policies = 0;
    scenarios::each(|_, scenario| {
        let set = scenario.steps.iter().filter_map(|step| match &step.call {
            Call::Set { limits } => Some(limits.as_slice()),
            _ => None,
        });
        for limit in [scenario.limits.as_slice()].into_iter().chain(set).flatten() {
            assert_reads_back(*limit);
            policies += 1;
        }
    });
    assert!(policies > 100, "{policies}");
}

#[test]
fn random_policies_read_back() {
    let mut random = Random(Rng::with_seed(1));
    let mut kinds = [0; 11];
    for _ in 0..20_000 {
        let kind = random.below(11);
        if let Some(policy) = random.policy(kind) {
            assert_reads_back(policy);
            kinds[usize::try_from(kind).unwrap()] += 1;
            if let Some(slow) = random.slow(policy) {
                assert_reads_back(slow);
            }
        }
    }
    assert!(kinds.iter().all(|&count| count > 500), "{kinds:?}");
}

/// The caller may have written an object of another language.
#[test]
fn a_message_about_a_bare_body_names_no_file() {
    let wrong = [
        ("", "needs the key `policy`"),
        ("policy = \"gcra\"", "needs the key `rate`"),
        ("policy = \"gcra\"\nrate = 5", "`rate`: invalid type: integer `5`, expected text"),
        ("policy = \"gcra\"\nrate = \"5/s\"\nbrust = 3", "unknown keys: brust, available keys:"),
        ("policy = \"gcra\"\nrate = \"5/s\"\nburst = 0", "gcra: "),
    ];
    for (body, message) in wrong {
        let error = policy_from(body).unwrap_err();
        assert!(error.message.starts_with(message), "{error}");
        assert!(!error.message.contains("file") && !error.message.contains("[limit]"), "{error}");
    }
}

#[test]
fn what_no_table_describes_has_no_body() {
    let rate = Rate::per_second(5);
    let ramp = Schedule::ramp(Rate::NEVER, rate, 1_000_000_000).unwrap();
    let third = Ratio::new(4, 3).unwrap();
    let policies: [AnyPolicy; 4] = [
        TwoTimeline::on_schedule(ramp, Mode::Average, None).into(),
        TwoTimeline::new(rate, Mode::Burst(third), None).into(),
        BackfillPool::new(5, third, None).unwrap().into(),
        WarmUp::new(rate, Duration::from_secs(1)).unwrap().with_cold_factor(third).unwrap().into(),
    ];
    for policy in policies {
        assert_eq!(policy_body(&policy), None, "{policy:?}");
    }
}

struct Random(Rng);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0.u64(..bound)
    }

    /// Returns a number from 1 on of any length in bits, or one that a person would write.
    fn number(&mut self) -> u64 {
        match self.below(3) {
            0 => 1 + self.below(20),
            1 => 10_u64.pow(u32::try_from(self.below(15)).unwrap()) * (1 + self.below(90)),
            _ => (self.0.u64(..) >> self.below(64)).max(1),
        }
    }

    fn span(&mut self) -> Duration {
        let ns = self.number();
        let unit =
            [1, 1_000, 1_000_000_000, 60_000_000_000][usize::try_from(self.below(4)).unwrap()];
        Duration::from_nanos(ns.checked_mul(unit).unwrap_or(ns))
    }

    fn zero_or(&mut self) -> Duration {
        if self.below(3) == 0 { Duration::ZERO } else { self.span() }
    }

    fn catch_up(&mut self) -> Option<Duration> {
        (self.below(3) > 0).then(|| self.zero_or())
    }

    fn rate(&mut self) -> Rate {
        match self.below(20) {
            0 => Rate::NEVER,
            1 => Rate::UNLIMITED,
            _ => Rate::new(self.number(), self.span()).unwrap(),
        }
    }

    fn ratio(&mut self) -> Ratio {
        let divisor = 10_u64.pow(u32::try_from(self.below(7)).unwrap());
        Ratio::new(divisor + self.below(9 * divisor), divisor).unwrap()
    }

    fn policy(&mut self, kind: u64) -> Option<AnyPolicy> {
        Some(match kind {
            0 => Gcra::new(self.rate(), self.number()).ok()?.into(),
            1 => {
                let log = SlidingLog::try_new(self.number(), self.span()).ok()?;
                let log = log.with_guard(self.zero_or()).ok()?;
                match self.below(2) {
                    0 => log.into(),
                    _ => log.with_resolution(self.span()).ok()?.into(),
                }
            }
            2 => {
                let anchor = [Anchor::Epoch, Anchor::FirstCall][usize::from(self.0.bool())];
                FixedWindow::try_new(self.number(), self.span(), anchor).ok()?.into()
            }
            3 => {
                let min_sleep_ns = whole_ns(self.zero_or());
                let mode = Mode::Batched { min_sleep_ns };
                TwoTimeline::new(self.rate(), mode, self.catch_up()).into()
            }
            4 => {
                let mode = match self.below(4) {
                    0 => Mode::Average,
                    1 => Mode::Strict,
                    2 => {
                        let ratio = 0.5_f64.powi(i32::try_from(1 + self.below(63)).unwrap());
                        Mode::Damped { shift: DampingShift::from_ratio(ratio).unwrap() }
                    }
                    _ => Mode::Burst(self.ratio()),
                };
                TwoTimeline::new(self.rate(), mode, self.catch_up()).into()
            }
            5 => {
                let warm_up = WarmUp::new(self.rate(), self.span()).ok()?;
                let warm_up = warm_up.with_cold_factor(self.ratio()).ok()?;
                warm_up.with_max_request(self.number()).ok()?.into()
            }
            6 => {
                let rate = self.0.bool().then(|| self.rate());
                BackfillPool::new(self.number(), self.ratio(), rate).ok()?.into()
            }
            7 => Concurrency::try_new(self.number()).ok()?.into(),
            8 => {
                let log = CommitLog::try_new(self.number(), self.span()).ok()?;
                log.with_guard(self.zero_or()).ok()?.into()
            }
            9 => {
                let mut bounds = [self.number(), self.number(), self.number()]
                    .map(|bound| u32::try_from(bound).unwrap_or(u32::MAX));
                bounds.sort_unstable();
                let [floor, first, ceiling] = bounds;
                let methods = [Method::Knee, Method::Aimd];
                let adaptation = Adaptation::new(Bounds::try_new(floor, first, ceiling).ok()?)
                    .with_method(methods[usize::from(self.0.bool())])
                    .with_seed(self.0.u32(..));
                AdaptiveConcurrency::following(adaptation).into()
            }
            _ => {
                let limit = AdaptiveRate::try_new(self.rate(), self.rate()).ok()?;
                limit.burst(self.number()).into()
            }
        })
    }

    fn slow(&mut self, policy: AnyPolicy) -> Option<AnyPolicy> {
        let slow = SlowStart::new(policy, self.span()).ok()?;
        let percent = u8::try_from(1 + self.below(100)).unwrap();
        Some(slow.with_first_share(Share::percent(percent)).into())
    }
}
