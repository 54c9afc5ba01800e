//! Tests of thousands of holds in one bucket: every wait is that of the whole story's rule, in
//! whatever order the holds end.

use std::num::NonZeroU64;

use crate::common::S;
use fastrand::Rng;
use rategate_core::debt::Debt;
use rategate_core::gcra::Gcra;
use rategate_core::holds::{Committed, Hold, HoldVerdict};
use rategate_core::ledger::Ledger;
use rategate_core::verdict::Verdict;

/// A permit takes this long.
const PERMIT_NS: u64 = 1_000;
const BURST: u64 = 200_000;

/// Permits that were taken at one instant. A hold that has not ended ends at `end_ns`.
#[derive(Clone, Copy)]
struct Event {
    at_ns: u64,
    permits: u64,
    end_ns: Option<u64>,
}

#[derive(Default)]
struct Story(Vec<Event>);

impl Story {
    fn tat_ns(&self, now_ns: u64) -> u64 {
        let counts = |event: &&Event| event.end_ns.is_none_or(|end_ns| end_ns > now_ns);
        self.0.iter().filter(counts).fold(0, |tat_ns: u64, event| {
            if event.permits == 0 {
                return tat_ns;
            }
            tat_ns.max(event.at_ns) + event.permits * PERMIT_NS
        })
    }

    fn passes(&self, now_ns: u64, permits: u64) -> bool {
        self.tat_ns(now_ns).max(now_ns) + permits * PERMIT_NS <= now_ns + BURST * PERMIT_NS
    }

    /// Returns the story in which nothing that is held at `now_ns` comes back.
    fn without_ends(&self, now_ns: u64) -> Self {
        let counts = |event: &&Event| event.end_ns.is_none_or(|end_ns| end_ns > now_ns);
        let counted = self.0.iter().filter(counts);
        Self(counted.map(|event| Event { end_ns: None, ..*event }).collect())
    }

    /// Returns what a denial says: the wait, or the time until the first hold ends, if that is
    /// shorter.
    fn told_ns(&self, now_ns: u64, permits: u64) -> u64 {
        let ends = self.0.iter().filter_map(|event| event.end_ns?.checked_sub(now_ns));
        let wait_ns = self.wait_ns(now_ns, permits);
        ends.filter(|&left_ns| left_ns > 0).fold(wait_ns, u64::min)
    }

    fn wait_ns(&self, now_ns: u64, permits: u64) -> u64 {
        let story = self.without_ends(now_ns);
        if story.passes(now_ns, permits) {
            return 0;
        }
        // What passes once goes on to pass.
        let (mut low, mut high) = (0, 1 << 40);
        while high - low > 1 {
            let middle = u64::midpoint(low, high);
            if story.passes(now_ns + middle, permits) { high = middle } else { low = middle }
        }
        high
    }

    /// Returns when nothing is used any more.
    fn fresh_ns(&self, now_ns: u64) -> u64 {
        let story = self.without_ends(now_ns);
        let is_fresh = |then_ns| story.tat_ns(then_ns) <= then_ns;
        let (mut low, mut high) = (now_ns, now_ns + (1 << 40));
        while low < high {
            let middle = u64::midpoint(low, high);
            if is_fresh(middle) { high = middle } else { low = middle + 1 }
        }
        high
    }

    fn remaining(&self, now_ns: u64) -> u64 {
        BURST - (self.tat_ns(now_ns).max(now_ns) - now_ns).div_ceil(PERMIT_NS)
    }
}

fn bucket() -> Ledger {
    Ledger::new(Gcra::per_second(S / PERMIT_NS).burst(BURST), 0)
}

/// Plays a story of `steps` with holds that end after a time that `ttl_ns` chooses for the present.
fn agrees(steps: u32, seed: u64, ttl_ns: impl Fn(&mut Rng, u64) -> u64) {
    let mut rng = Rng::with_seed(seed);
    let (mut limit, mut story, mut now_ns) = (bucket(), Story::default(), 0);
    let mut open: Vec<(Hold, usize)> = Vec::new();
    let (mut most, mut denied) = (0, 0);
    for step in 0..steps {
        now_ns += rng.u64(0..40_000);
        let permits = rng.u64(1..60);
        match rng.u32(0..10) {
            0..=5 => {
                let ttl_ns = ttl_ns(&mut rng, now_ns);
                if let HoldVerdict::Held(hold) = limit.try_hold(now_ns, permits, ttl_ns).unwrap() {
                    open.push((hold, story.0.len()));
                    story.0.push(Event { at_ns: now_ns, permits, end_ns: Some(now_ns + ttl_ns) });
                }
            }
            6 if !open.is_empty() => {
                let (hold, at) = open.swap_remove(rng.usize(..open.len()));
                let actual = rng.u64(0..=hold.permits);
                let committed = limit.commit(now_ns, hold, actual, Debt::FORGOTTEN);
                let event = &mut story.0[at];
                if hold.end_ns > now_ns {
                    assert!(matches!(committed, Committed::InTime(_)), "{committed:?}");
                    *event = Event { permits: actual, end_ns: None, ..*event };
                } else {
                    let Committed::Late(charged) = committed else { panic!("{committed:?}") };
                    let (permits, end_ns) = (charged.booked, None);
                    story.0.push(Event { at_ns: now_ns, permits, end_ns });
                }
            }
            _ => {
                if let Verdict::Granted(_) = limit.try_acquire(now_ns, permits).unwrap() {
                    story.0.push(Event { at_ns: now_ns, permits, end_ns: None });
                }
            }
        }
        let held = open.iter().filter(|(hold, _)| hold.end_ns > now_ns).count();
        most = most.max(held);
        if step % 31 == 0 {
            assert_eq!(limit.remaining(now_ns), story.remaining(now_ns), "step {step}");
            let wanted = rng.u64(BURST / 10 * 9..=BURST);
            let wait_ns = limit.peek(now_ns, wanted).unwrap();
            let told_ns = story.told_ns(now_ns, wanted);
            assert_eq!(wait_ns, Some(told_ns), "{wanted} at step {step}");
            denied += u32::from(wait_ns > Some(0));
            assert_eq!(limit.fresh_at_ns(now_ns), Some(story.fresh_ns(now_ns)), "step {step}");
        }
        if step % 97 == 0 {
            // A look ahead takes nothing, and sees the ends.
            let then_ns = now_ns + rng.u64(0..S);
            let one = NonZeroU64::MIN;
            let opens = limit.opening(then_ns, one).map(|opening| opening.opens_ns);
            assert_eq!(opens, Ok(then_ns + story.wait_ns(then_ns, 1)), "step {step}");
            assert_eq!(limit.debt(then_ns), 0);
        }
    }
    assert!(most > 700 && denied > steps / 100, "{most} held, {denied} denied");
}

#[test]
fn holds_that_end_in_their_order() {
    agrees(6_000, 1, |_, _| S / 30);
}

#[test]
fn holds_that_end_in_any_order() {
    agrees(6_000, 2, |rng, _| rng.u64(1..S / 10));
}

#[test]
fn holds_that_end_at_few_instants() {
    agrees(6_000, 3, |_, now_ns| (now_ns / (S / 20) + 1) * (S / 20) - now_ns);
}

#[test]
fn holds_that_end_long_before_a_few_others() {
    agrees(6_000, 4, |rng, _| if rng.u32(0..50) == 0 { 10 * S } else { S / 30 });
}
