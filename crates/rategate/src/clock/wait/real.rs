//! Waits on real time, with each [`Precision`].

use std::hint;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::{CancelToken, Precision, Wait, Wake};

/// The length of the spin before a start: longer than a precise wake is usually late.
const SPIN_NS: u64 = 60_000;

/// Waits until a clock that shows `now_ns` has reached the end of `wait`, or the token is raised.
///
/// The clock is read after every wake, so nothing ends early, and a late wake is late once.
pub(crate) fn on_real_time(
    wait: Wait,
    cancel: &CancelToken,
    mut now_ns: impl FnMut() -> u64,
) -> Wake {
    let wake_ns = wait.wake_ns();
    match wait.precision() {
        Precision::Auto | Precision::Coalesced => asleep(wake_ns, cancel, now_ns),
        Precision::Precise => match wait.early_ns() {
            Some(margin_ns) => early_awake(wake_ns, margin_ns, cancel, now_ns),
            None => sharply_asleep(wake_ns, cancel, now_ns),
        },
        Precision::Spin => {
            match sharply_asleep(wake_ns.saturating_sub(SPIN_NS), cancel, &mut now_ns) {
                Wake::Due => {
                    let margin_ns = wait.early_ns().unwrap_or(0);
                    spin_until(wake_ns.saturating_add(margin_ns), cancel, now_ns)
                }
                Wake::Cancelled => Wake::Cancelled,
            }
        }
    }
}

fn asleep(until_ns: u64, cancel: &CancelToken, mut now_ns: impl FnMut() -> u64) -> Wake {
    cancel.wait_on(|| {
        let left_ns = until_ns.saturating_sub(now_ns());
        (left_ns > 0).then(|| Duration::from_nanos(left_ns))
    })
}

/// Sleeps as [`asleep`] does, with the least delay of the wake by the kernel.
fn sharply_asleep(until_ns: u64, cancel: &CancelToken, mut now_ns: impl FnMut() -> u64) -> Wake {
    // A wait that is due, as many spinning waits are, is not worth the system calls.
    let _slack = (now_ns() < until_ns).then(Slack::minimal);
    asleep(until_ns, cancel, now_ns)
}

/// The mean lateness of recent sleeps of this process; at most [`SPIN_NS`].
///
/// It is a hint, which orders nothing.
static LATE_NS: AtomicU64 = AtomicU64::new(0);

/// Sleeps as much shorter as sleeps have been late, and spins the rest, and `margin_ns` more.
fn early_awake(
    until_ns: u64,
    margin_ns: u64,
    cancel: &CancelToken,
    mut now_ns: impl FnMut() -> u64,
) -> Wake {
    let late_ns = LATE_NS.load(Ordering::Relaxed);
    let wake_ns = until_ns.saturating_sub(late_ns);
    if now_ns() < wake_ns {
        if sharply_asleep(wake_ns, cancel, &mut now_ns) == Wake::Cancelled {
            return Wake::Cancelled;
        }
        let seen_ns = now_ns().saturating_sub(wake_ns).min(SPIN_NS);
        let learnt_ns = late_ns.saturating_mul(15).saturating_add(seen_ns) >> 4;
        LATE_NS.store(learnt_ns, Ordering::Relaxed);
    }
    spin_until(until_ns.saturating_add(margin_ns), cancel, now_ns)
}

/// The longest margin.
const MAX_MARGIN_NS: u64 = 4_000;

/// Returns the time that an early wait leaves its caller to read its clock.
///
/// The limit counts a start for `span_ns`. Starts that follow each other to the nanosecond would
/// be too close by the readings of callers. They read their clocks some hundred nanoseconds after
/// the limiter, and some microseconds on a busy machine.
pub(crate) const fn margin_ns(span_ns: u64) -> u64 {
    let share_ns = span_ns >> 7;
    if share_ns < MAX_MARGIN_NS { share_ns } else { MAX_MARGIN_NS }
}

/// Reads a clock that advances by itself until it shows `until_ns`, or the token is raised.
pub(crate) fn spin_until(
    until_ns: u64,
    cancel: &CancelToken,
    mut now_ns: impl FnMut() -> u64,
) -> Wake {
    loop {
        if cancel.is_cancelled() {
            return Wake::Cancelled;
        }
        if now_ns() >= until_ns {
            return Wake::Due;
        }
        hint::spin_loop();
    }
}

/// The thread's timer slack at its minimum, until this is dropped.
///
/// Best effort: where the kernel refuses, waits are as late as before.
#[cfg(all(feature = "timer-slack", target_os = "linux"))]
pub(super) struct Slack {
    before_ns: Option<std::num::NonZeroU64>,
}

#[cfg(all(feature = "timer-slack", target_os = "linux"))]
impl Slack {
    pub(super) fn minimal() -> Self {
        use rustix::thread::{current_timer_slack, set_current_timer_slack};
        use std::num::NonZeroU64;

        let before_ns = current_timer_slack().ok().and_then(NonZeroU64::new);
        // A program that chose the minimum itself keeps it, now and at the end.
        let before_ns = before_ns.filter(|&before_ns| before_ns > NonZeroU64::MIN);
        let set = before_ns.map(|_| set_current_timer_slack(Some(NonZeroU64::MIN)));
        Self { before_ns: before_ns.filter(|_| set.is_some_and(|set| set.is_ok())) }
    }
}

#[cfg(all(feature = "timer-slack", target_os = "linux"))]
impl Drop for Slack {
    fn drop(&mut self) {
        if self.before_ns.is_some() {
            // It could be changed a moment ago, so it can be changed back.
            let _ = rustix::thread::set_current_timer_slack(self.before_ns);
        }
    }
}

/// The replacement on systems without timer slack, and without the feature that sets it.
#[cfg(not(all(feature = "timer-slack", target_os = "linux")))]
pub(super) struct Slack;

#[cfg(not(all(feature = "timer-slack", target_os = "linux")))]
impl Slack {
    pub(super) fn minimal() -> Self {
        Self
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// Callers are left a 128th of what the limit allows, and no more than 4 us.
    #[test]
    fn the_margin_follows_the_time_for_which_a_start_counts() {
        let of = [0, 10_000, 500_000, 1_000_000, u64::MAX].map(margin_ns);
        assert_eq!(of, [0, 78, 3_906, 4_000, 4_000]);
    }

    /// An early wait ends after its start by the margin, and no more than one reading later.
    #[test]
    fn an_early_wait_ends_after_its_margin() {
        for precision in [Precision::Precise, Precision::Spin] {
            let now_ns = AtomicU64::new(0);
            let wait = Wait::exactly(50_000, precision).early(Some(700));
            let read_clock = || now_ns.fetch_add(10, Ordering::Relaxed);
            assert_eq!(on_real_time(wait, &CancelToken::new(), read_clock), Wake::Due);
            let ended_ns = now_ns.into_inner();
            assert!((50_700..50_720).contains(&ended_ns), "{ended_ns}");
        }
    }

    /// A precise wait restores the thread's timer slack.
    #[cfg(all(feature = "timer-slack", target_os = "linux"))]
    #[test]
    fn the_slack_is_restored() {
        use rustix::thread::current_timer_slack;

        let before_ns = current_timer_slack().unwrap();
        let wake = on_real_time(Wait::exactly(1, Precision::Precise), &CancelToken::new(), || {
            u64::from(current_timer_slack().unwrap() == 1)
        });
        assert_eq!(wake, Wake::Due, "once the slack was at its minimum");
        assert_eq!(current_timer_slack().unwrap(), before_ns);
    }

    /// The last part of a spinning wait reads the clock, and checks the token.
    #[test]
    fn a_spinning_wait_ends_on_cancellation() {
        let (cancel, readings) = (CancelToken::new(), AtomicU64::new(0));
        let wait = Wait::exactly(SPIN_NS, Precision::Spin);
        let wake = on_real_time(wait, &cancel, || {
            if readings.fetch_add(1, Ordering::Relaxed) == 1_000 {
                cancel.cancel();
            }
            0
        });
        assert_eq!(wake, Wake::Cancelled);
        let wake =
            on_real_time(wait, &CancelToken::new(), || readings.fetch_add(1, Ordering::Relaxed));
        assert_eq!(wake, Wake::Due);
        assert_eq!(readings.into_inner(), SPIN_NS + 1, "not a reading too few or too many");
    }
}
