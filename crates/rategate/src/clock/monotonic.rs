//! The default clock: real time, read as cheaply as the machine allows.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::counter::Counter;
use super::{Clock, SystemClock};
use crate::clock::wait::{CancelToken, Wait, Wake, assert_may_block, on_real_time};
use rategate_core::span::whole_ns;

/// A clock of real time since it was made, which no change of the wall clock affects.
///
/// 64 bits of nanoseconds last 584 years.
///
/// ```
/// use rategate::{Clock, MonotonicClock};
///
/// let clock = MonotonicClock::new();
/// let before_ns = clock.now_ns();
/// clock.sleep(1_000_000);
/// assert!(clock.now_ns() - before_ns >= 1_000_000);
/// ```
///
/// # Where the time comes from
///
/// With the feature `tsc`, which is on by default, the time comes from the processor's time stamp
/// counter where that runs at one rate on all cores. Elsewhere, and without the feature, it comes
/// from the operating system ([`SystemClock`]). The guarantees are the same:
///
/// * **Never back.** The readings of one thread never decrease. Those of different threads may
///   disagree by some tenths of a microsecond, even where a lock orders them: a processor may
///   read its counter while the lock before that is still in flight. Nothing is earned by an
///   older reading than another's. Where an order is needed,
///   [`now_in_order_ns`](Clock::now_in_order_ns) has it, at the additional cost of the system's
///   clock.
/// * **On time.** The counter is compared with the system's clock about once a second, by a
///   thread that reads the clock then, in some microseconds. Its rate is within 1 ppm of the
///   system's, and its error is corrected by running faster or slower over the next second.
/// * **Nothing to wait for.** The first clock of a process starts one thread, which checks that
///   the counter can be trusted, calibrates it within a second, and ends. Until then, and for
///   good where that thread cannot be started, the time comes from the system.
///
/// # When the counter turns out to be wrong
///
/// After a suspend, or when a virtual machine moves, the counter may be off by more than a
/// millisecond. It is then given up for good, and the time comes from the system from there on,
/// ahead of it by the excess that was shown: a clock never goes back. The clock may have jumped
/// forward by that excess. A jump that was not observed, because no thread read the clock, adds
/// at most a second. Where that is not acceptable, use [`SystemClock`].
#[derive(Clone, Copy, Debug)]
pub struct MonotonicClock {
    process: &'static Process,
    /// The process's time when this clock was made, and the reading that the clock showed then.
    origin_ns: u64,
    started_ns: u64,
}

/// The time of the process, which all its clocks share.
#[derive(Debug)]
struct Process {
    system: SystemClock,
    /// Empty until the counter has been calibrated, and for good where it is not trusted.
    counter: OnceLock<Counter>,
}

static PROCESS: OnceLock<Process> = OnceLock::new();
static IS_PREPARED: AtomicBool = AtomicBool::new(false);

thread_local! {
    static LATEST: Latest = const { Latest { ns: Cell::new(0), repeats: Cell::new(0) } };
}

/// The newest reading of a thread.
///
/// The cores' counters, and the two sources of time, agree only within tenths of a microsecond:
/// without this, a reading could be older than the one before.
struct Latest {
    ns: Cell<u64>,
    repeats: Cell<u32>,
}

/// The number of repeated readings, none newer than the last, that leads to an audit of the
/// counter.
///
/// Fast machines have slow counters, so some such readings are usual.
const MAX_REPEATED_READINGS: u32 = 1_000;

impl MonotonicClock {
    /// Creates a clock that shows zero now.
    #[must_use]
    pub fn new() -> Self {
        Self::starting_at(Duration::ZERO)
    }

    /// Creates a clock that shows `now` now: one that goes on where another was left.
    #[must_use]
    pub fn starting_at(now: Duration) -> Self {
        let process = Process::get();
        Self { process, origin_ns: process.now_ns(), started_ns: whole_ns(now) }
    }

    /// Returns a clock that shows `shown_ns` when this one shows `at_ns`.
    #[cfg(feature = "calendar")]
    pub(crate) const fn showing(self, shown_ns: u64, at_ns: u64) -> Self {
        let passed_ns = at_ns.saturating_sub(self.started_ns);
        let origin_ns = self.origin_ns.saturating_add(passed_ns);
        Self { origin_ns, started_ns: shown_ns, ..self }
    }

    fn wait_really(&self, wait: Wait, cancel: &CancelToken) -> Wake {
        let mut readings = 0_u32;
        on_real_time(wait, cancel, || {
            readings = readings.saturating_add(1);
            // Most of these come after a sleep. Should the counter have stood still meanwhile,
            // this wait would not end.
            if readings > 1 && readings.is_power_of_two() {
                self.process.audit();
            }
            self.now_ns()
        })
    }
}

impl Default for MonotonicClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for MonotonicClock {
    #[inline]
    fn now_ns(&self) -> u64 {
        self.process.now_ns().saturating_sub(self.origin_ns).saturating_add(self.started_ns)
    }

    /// Reads the operating system's clock first, which reads the processor's counter behind all
    /// earlier effects; the counter's own reading then follows it.
    fn now_in_order_ns(&self) -> u64 {
        let _ = self.process.system.now_ns();
        self.now_ns()
    }

    fn may_go_back(&self) -> bool {
        false
    }

    fn wait(&self, until_ns: u64, cancel: &CancelToken) -> Wake {
        self.wait_really(Wait::plainly(until_ns), cancel)
    }

    fn wait_as(&self, wait: Wait, cancel: &CancelToken) -> Wake {
        self.wait_really(wait, cancel)
    }

    fn is_real_time(&self) -> bool {
        true
    }

    fn sleep(&self, requested_ns: u64) {
        assert_may_block();
        thread::sleep(Duration::from_nanos(requested_ns));
    }
}

impl Process {
    fn get() -> &'static Self {
        let fresh = || Self { system: SystemClock::new(), counter: OnceLock::new() };
        let process = PROCESS.get_or_init(fresh);
        // No `Once`: a fork while its thread is started would leave it locked in the child.
        if !IS_PREPARED.swap(true, Ordering::Relaxed) {
            process.prepare();
        }
        process
    }

    /// Starts the thread that calibrates the counter. It ends by itself, and is not joined.
    fn prepare(&'static self) {
        if Counter::IS_POSSIBLE {
            let calibrate = || {
                if let Some(counter) = Counter::calibrated(self.system) {
                    // There is only one such thread, so the cell is empty.
                    let _ = self.counter.set(counter);
                }
            };
            // Without the thread the time comes from the system, as it does until the thread has
            // ended.
            let _ = thread::Builder::new().name("rategate-clock".to_owned()).spawn(calibrate);
        }
    }

    /// Returns the process's time. Small, so that it is inlined into the decision that uses it.
    #[inline]
    fn now_ns(&self) -> u64 {
        let quick_read_ns = self.counter.get().and_then(Counter::quick_read_ns);
        let reading_ns = quick_read_ns.unwrap_or_else(|| self.read_ns());
        LATEST.with(|latest| {
            if latest.repeats.get() >= MAX_REPEATED_READINGS {
                self.audit_after(latest);
            }
            // No branch here: it would wait for the counter, at a tenth of the cost of a try.
            let latest_ns = latest.ns.get();
            let repeats = latest.repeats.get().wrapping_add(u32::from(reading_ns <= latest_ns));
            latest.repeats.set(repeats);
            let now_ns = reading_ns.max(latest_ns);
            latest.ns.set(now_ns);
            now_ns
        })
    }

    /// Returns a reading that one glance at the counter could not give.
    #[cold]
    #[inline(never)]
    fn read_ns(&self) -> u64 {
        self.counter.get().map_or_else(|| self.system.now_ns(), Counter::now_ns)
    }

    /// Audits the counter, which may stand still, and counts repeated readings afresh.
    #[cold]
    #[inline(never)]
    fn audit_after(&self, latest: &Latest) {
        latest.repeats.set(0);
        self.audit();
    }

    fn audit(&self) {
        if let Some(counter) = self.counter.get() {
            counter.audit();
        }
    }
}
