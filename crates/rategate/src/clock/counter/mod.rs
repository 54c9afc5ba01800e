//! Real time from the processor's counter, kept to the system's clock.
//!
//! ```text
//!   ticks ── one line: ns = ns0 + (ticks - ticks0) * scale ──> nanoseconds
//!                ^ published whole by the latch
//!                |
//!           discipline: once a second, compares both clocks and computes the next line
//! ```
//!
//! A line covers a second's worth of ticks. The first reader that finds it used up computes the
//! next one before it returns a time, so no reading is ever extrapolated over an idle hour.
//! Readers that come meanwhile use the system's time. No reader waits for another: should the one
//! that computes the line be suspended, or be lost in the child of a fork, the others read the
//! system's clock.

mod discipline;
mod latch;
mod machine;
#[cfg(test)]
mod tests;

use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use self::discipline::{Anchor, Discipline, Line};
use self::latch::Latch;
use self::machine::Machine;
use super::SystemClock;

/// The delay before the calibration; a process that ends sooner does not pay for it.
const GRACE: Duration = Duration::from_millis(100);

/// The time between the first two anchors.
///
/// Each is known to some tens of nanoseconds, so the first line is good to some tenths of 1 ppm.
const FIRST_BASELINE: Duration = Duration::from_millis(500);

/// The machine's counter.
pub(super) type Counter = Disciplined<Machine>;

/// The two clocks that are compared.
pub(in crate::clock) trait Times {
    /// Returns the counter's ticks, which run at a steady but unknown rate.
    fn ticks(&self) -> u64;

    /// Returns the reference time: nanoseconds, never going back.
    fn system_ns(&self) -> u64;
}

/// A counter whose readings are nanoseconds of the system's clock.
#[derive(Debug)]
pub(super) struct Disciplined<T> {
    times: T,
    latch: Latch,
    /// The thread that locks this computes the next line; no thread waits for the lock.
    discipline: Mutex<Discipline>,
}

impl Counter {
    /// `true` where the machine may have such a counter at all.
    pub(super) const IS_POSSIBLE: bool = true;

    /// Calibrates the counter against `system`, which takes most of a second.
    ///
    /// Returns `None` if the counter cannot be trusted.
    pub(super) fn calibrated(system: SystemClock) -> Option<Self> {
        thread::sleep(GRACE);
        if !machine::is_trusted() {
            return None;
        }
        let times = Machine::new(system);
        let first = Anchor::of(&times)?;
        thread::sleep(FIRST_BASELINE);
        Self::begun(times, first)
    }
}

impl<T: Times> Disciplined<T> {
    /// Creates a counter whose first line leads from an earlier anchor to now, and on.
    fn begun(times: T, first: Anchor) -> Option<Self> {
        let discipline = Discipline::between(first, Anchor::of(&times)?)?;
        let latch = Latch::new(discipline.line());
        Some(Self { times, latch, discipline: Mutex::new(discipline) })
    }

    /// Returns the time if one read of the line gives it, which is nearly always so.
    ///
    /// If the thread is suspended after it has read the ticks, the newest line starts after them,
    /// and does not cover them.
    #[inline]
    pub(super) fn quick_read_ns(&self) -> Option<u64> {
        let ticks = self.times.ticks();
        self.latch.at(ticks)
    }

    pub(super) fn now_ns(&self) -> u64 {
        let (line, ticks) = self.latch.read(|| self.times.ticks());
        match line.at(ticks) {
            Some(now_ns) => now_ns,
            None => self.outside_line(line, ticks),
        }
    }

    /// Gives the counter up if it is off by more than it may, or stands still.
    pub(super) fn audit(&self) {
        let Ok(mut discipline) = self.discipline.try_lock() else { return };
        let (system_ns, ticks) = (self.times.system_ns(), self.times.ticks());
        if !discipline.line().is_given_up() && discipline.is_off(Anchor { ticks, system_ns }) {
            // The thread may have been interrupted between those two readings. Not so twice.
            discipline.audit(Anchor::of(&self.times), system_ns);
            self.latch.publish(discipline.line());
        }
    }

    /// Returns the time for a reader whose `ticks` are past the end of the line, or before it.
    #[cold]
    fn outside_line(&self, line: Line, ticks: u64) -> u64 {
        if let Some(now_ns) = line.at_or_start(ticks) {
            return now_ns;
        }
        if !line.is_given_up()
            && let Ok(mut discipline) = self.discipline.try_lock()
        {
            // Another reader may have been here since the line was read, and have computed one
            // that starts a little after this core's counter: another new line would skip all of
            // it.
            if let Some(now_ns) = discipline.line().at_or_start(self.times.ticks()) {
                return now_ns;
            }
            discipline.draw(Anchor::of(&self.times), self.times.system_ns());
            self.latch.publish(discipline.line());
            if let Some(now_ns) = discipline.line().at_or_start(self.times.ticks()) {
                return now_ns;
            }
        }
        // Read again: there may be a new line just now, or it may have been given up.
        let (line, ticks) = self.latch.read(|| self.times.ticks());
        line.at_or_start(ticks)
            .unwrap_or_else(|| line.resume_ns(Anchor { ticks, system_ns: self.times.system_ns() }))
    }
}
