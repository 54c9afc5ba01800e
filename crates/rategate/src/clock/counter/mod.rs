//! Real time from the processor's counter, kept to the system's clock.
//!
//! ```text
//!   ticks ── one line: ns = ns0 + (ticks - ticks0) * scale ──> nanoseconds
//!                ^ published whole by the latch
//!                |
//!           discipline: once a second, compares both clocks and draws the next line
//! ```
//!
//! A line is good for a second's worth of ticks. The first reader who finds it used up draws the
//! next one before it answers, so no reading is ever extrapolated over an idle hour. Readers who
//! come meanwhile take the system's time. Nobody waits for anybody: should the one who draws be
//! suspended, or be lost in the child of a fork, the others read the system's clock.

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

/// A process that ends sooner does not pay for a calibration.
const GRACE: Duration = Duration::from_millis(100);

/// Between the first two anchors. Each is known to some tens of nanoseconds, so the first line is
/// good to some tenths of 1 ppm.
const FIRST_BASELINE: Duration = Duration::from_millis(500);

/// The machine's counter.
pub(super) type Counter = Disciplined<Machine>;

/// The two clocks that are compared.
pub(in crate::clock) trait Times {
    /// The counter, at a steady rate that nobody knows.
    fn ticks(&self) -> u64;

    /// The clock that is right: nanoseconds, never going back.
    fn system_ns(&self) -> u64;
}

/// A counter whose readings are nanoseconds of the system's clock.
#[derive(Debug)]
pub(super) struct Disciplined<T> {
    times: T,
    latch: Latch,
    /// Whoever holds this draws the next line; nobody waits for it.
    discipline: Mutex<Discipline>,
}

impl Counter {
    /// Whether a machine like this may have one at all.
    pub(super) const IS_POSSIBLE: bool = true;

    /// The counter, once it has been calibrated against `system`, which takes most of a second;
    /// `None` if it is not to be trusted.
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
    /// A counter whose first line leads from an anchor of some time ago to now, and on.
    fn begun(times: T, first: Anchor) -> Option<Self> {
        let discipline = Discipline::between(first, Anchor::of(&times)?)?;
        let latch = Latch::new(discipline.line());
        Some(Self { times, latch, discipline: Mutex::new(discipline) })
    }

    /// The time, where one look at the line tells it: that is all but always.
    ///
    /// Should the thread stand still after it has read the ticks, the newest line begins after them,
    /// and does not tell.
    #[inline]
    pub(super) fn glance_ns(&self) -> Option<u64> {
        let ticks = self.times.ticks();
        self.latch.at(ticks)
    }

    pub(super) fn now_ns(&self) -> u64 {
        let (line, ticks) = self.latch.read(|| self.times.ticks());
        match line.at(ticks) {
            Some(now_ns) => now_ns,
            None => self.off_the_line(line, ticks),
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

    /// What a reader does whose `ticks` are past the end of the line, or before its beginning.
    #[cold]
    fn off_the_line(&self, line: Line, ticks: u64) -> u64 {
        if let Some(now_ns) = line.tells(ticks) {
            return now_ns;
        }
        if !line.is_given_up()
            && let Ok(mut discipline) = self.discipline.try_lock()
        {
            // Another reader may have been here since the line was read, and drawn one that begins
            // a little after this core's counter: to draw again would skip all of it.
            if let Some(now_ns) = discipline.line().tells(self.times.ticks()) {
                return now_ns;
            }
            discipline.draw(Anchor::of(&self.times), self.times.system_ns());
            self.latch.publish(discipline.line());
            if let Some(now_ns) = discipline.line().tells(self.times.ticks()) {
                return now_ns;
            }
        }
        // Read again: there may be a new line just now, or it may have been given up.
        let (line, ticks) = self.latch.read(|| self.times.ticks());
        line.tells(ticks)
            .unwrap_or_else(|| line.goes_on_at(Anchor { ticks, system_ns: self.times.system_ns() }))
    }
}
