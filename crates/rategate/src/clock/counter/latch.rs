//! A latch that publishes one line whole, to readers that never wait.
//!
//! There are two slots and a version. Readers read the slot of the version's parity; a writer
//! fills the other slot and then increments the version. A reader that finds the version
//! unchanged has read a whole line, because its slot is written to only after the version has
//! moved on. So a writer that is suspended half-way blocks no reader, and a reader tries again
//! only if a new line came meanwhile.
//!
//! The orderings suffice, because:
//!
//! * A reader's first load of the version acquires what the writer's store of it released, so the
//!   fields are those of that version or of a later one.
//! * If a field is of a later one, its writer had passed the release fence after the version that
//!   made this slot the idle one. The reader's acquire fence, after the fields, meets that fence:
//!   the second load of the version sees at least that version, differs, and the reader tries
//!   again.
//! * The fields themselves are relaxed: they are ordered by the version and the fences alone.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use super::discipline::Line;

/// A latch that holds the newest line.
#[derive(Debug)]
pub(super) struct Latch {
    version: AtomicU64,
    even: Slot,
    odd: Slot,
}

#[derive(Debug)]
struct Slot {
    ticks0: AtomicU64,
    ns0: AtomicU64,
    scale: AtomicU64,
    length_ticks: AtomicU64,
    lead_ns: AtomicU64,
}

impl Latch {
    pub(super) fn new(line: Line) -> Self {
        Self { version: AtomicU64::new(0), even: Slot::new(line), odd: Slot::new(line) }
    }

    /// Returns the newest line, and the result of `meanwhile` while that line was the newest.
    pub(super) fn read<R>(&self, meanwhile: impl Fn() -> R) -> (Line, R) {
        loop {
            let version = self.version.load(Ordering::Acquire);
            let line = self.slot(version).read();
            let answer = meanwhile();
            if self.is_still(version) {
                return (line, answer);
            }
        }
    }

    /// Returns the time at `ticks`, which have just been read.
    ///
    /// Returns `None` where the newest line does not cover them, or a newer one has come
    /// meanwhile.
    #[inline]
    pub(super) fn at(&self, ticks: u64) -> Option<u64> {
        let version = self.version.load(Ordering::Acquire);
        let line = self.slot(version).read_without_lead();
        if self.is_still(version) { line.at(ticks) } else { None }
    }

    #[inline]
    fn is_still(&self, version: u64) -> bool {
        fence(Ordering::Acquire);
        self.version.load(Ordering::Relaxed) == version
    }

    /// Replaces the line. Only the thread that has the discipline's lock may call this.
    pub(super) fn publish(&self, line: Line) {
        // The writers' lock orders them, so this is the newest version.
        let next = self.version.load(Ordering::Relaxed).wrapping_add(1);
        fence(Ordering::Release);
        self.slot(next).write(line);
        self.version.store(next, Ordering::Release);
    }

    #[inline]
    const fn slot(&self, version: u64) -> &Slot {
        if version & 1 == 0 { &self.even } else { &self.odd }
    }
}

impl Slot {
    fn new(line: Line) -> Self {
        Self {
            ticks0: AtomicU64::new(line.ticks0),
            ns0: AtomicU64::new(line.ns0),
            scale: AtomicU64::new(line.scale),
            length_ticks: AtomicU64::new(line.length_ticks),
            lead_ns: AtomicU64::new(line.lead_ns),
        }
    }

    fn read(&self) -> Line {
        Line { lead_ns: self.lead_ns.load(Ordering::Relaxed), ..self.read_without_lead() }
    }

    /// Reads all fields that a time on the line needs.
    ///
    /// The load of another field would not be optimized away, because it is atomic.
    #[inline]
    fn read_without_lead(&self) -> Line {
        Line {
            ticks0: self.ticks0.load(Ordering::Relaxed),
            ns0: self.ns0.load(Ordering::Relaxed),
            scale: self.scale.load(Ordering::Relaxed),
            length_ticks: self.length_ticks.load(Ordering::Relaxed),
            lead_ns: 0,
        }
    }

    fn write(&self, line: Line) {
        self.ticks0.store(line.ticks0, Ordering::Relaxed);
        self.ns0.store(line.ns0, Ordering::Relaxed);
        self.scale.store(line.scale, Ordering::Relaxed);
        self.length_ticks.store(line.length_ticks, Ordering::Relaxed);
        self.lead_ns.store(line.lead_ns, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(n: u64) -> Line {
        Line { ticks0: n, ns0: n, scale: n, length_ticks: n, lead_ns: n }
    }

    /// Whatever the writer does, a reader sees whole lines, and no older one than before.
    #[test]
    fn lines_are_read_whole() {
        let latch = Latch::new(line(0));
        std::thread::scope(|scope| {
            scope.spawn(|| (1..200_000).for_each(|n| latch.publish(line(n))));
            let mut newest = 0;
            while newest < 199_999 {
                let (read, ()) = latch.read(|| ());
                assert_eq!(read, line(read.ns0));
                assert!(read.ns0 >= newest);
                newest = read.ns0;
            }
        });
    }
}
