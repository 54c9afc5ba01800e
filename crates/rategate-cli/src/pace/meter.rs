//! The meter, one line on a terminal's stderr: the rate, the permits passed, and the last wait.

use std::ffi::OsStr;
use std::fmt::{self, Write as _};
use std::io::{self, IsTerminal as _, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rategate_core::verdict::Grant;

use super::limits::Unit;

const TICK: Duration = Duration::from_millis(200);
/// The number of ticks that the sparkline shows: four seconds.
const SPARKS: usize = 20;
const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Statistics of the permits that have passed the gate.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    seen: Mutex<Seen>,
    finished: AtomicBool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    permits: u64,
    /// The number of permits in the first grant. The rate counts those after it.
    first_permits: u64,
    first_ns: u64,
    last_ns: u64,
    wait_ns: u64,
    /// The number of commands that may run at once, where it follows them.
    max_jobs: Option<u64>,
}

/// The thread that draws the meter, if there is a terminal to draw on.
#[derive(Debug)]
pub(crate) struct Meter {
    tally: Arc<Tally>,
    thread: Option<JoinHandle<()>>,
}

impl Tally {
    pub(crate) fn add(&self, permits: u64, grant: &Grant, max_jobs: Option<u64>) {
        let mut seen = self.lock();
        if seen.permits == 0 {
            seen.first_permits = permits;
            seen.first_ns = grant.start_ns;
        }
        seen.permits = seen.permits.saturating_add(permits);
        seen.last_ns = grant.start_ns;
        seen.wait_ns = grant.wait_ns();
        seen.max_jobs = max_jobs;
    }

    /// Locks the numbers, which are consistent even after a panic.
    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seen {
    /// Returns the rate from the first grant to the last: for 11 permits in 2 s, the first at
    /// once, 5/s.
    fn tenths_per_second(&self) -> u64 {
        let later = self.permits.saturating_sub(self.first_permits);
        let span_ns = self.last_ns.saturating_sub(self.first_ns);
        if later == 0 { 0 } else { tenths_per_second(later, Duration::from_nanos(span_ns)) }
    }
}

impl Meter {
    pub(crate) fn start(unit: Unit) -> Self {
        let tally = Arc::new(Tally::default());
        let term = std::env::var_os("TERM");
        let drawn = wanted(io::stderr().is_terminal(), io::stdout().is_terminal(), term.as_deref());
        let thread = if drawn {
            let tally = Arc::clone(&tally);
            // If the thread cannot be started there is no meter, which is no error.
            thread::Builder::new().name("meter".to_owned()).spawn(move || draw(&tally, unit)).ok()
        } else {
            None
        };
        Self { tally, thread }
    }

    pub(crate) fn tally(&self) -> Arc<Tally> {
        Arc::clone(&self.tally)
    }

    /// Draws a last time and leaves the line on the screen.
    pub(crate) fn finish(self) {
        self.tally.finished.store(true, Ordering::Release);
        if let Some(thread) = self.thread {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

/// Returns `true` if the meter can be drawn. Data on a terminal, this command's or its
/// children's, would be torn by it, and a dumb terminal cannot clear a line.
fn wanted(stderr_shows: bool, stdout_shows: bool, term: Option<&OsStr>) -> bool {
    stderr_shows && !stdout_shows && term.is_none_or(|term| term != "dumb")
}

fn draw(tally: &Tally, unit: Unit) {
    let (mut last_drawn, mut last_permits) = (Instant::now(), 0);
    let mut history: Vec<u64> = Vec::with_capacity(SPARKS);
    loop {
        thread::park_timeout(TICK);
        let finished = tally.finished.load(Ordering::Acquire);
        let now = Instant::now();
        let seen = *tally.lock();
        let passed = seen.permits.saturating_sub(last_permits);
        if history.len() == SPARKS {
            history.remove(0);
        }
        history.push(tenths_per_second(passed, now.duration_since(last_drawn)));
        (last_drawn, last_permits) = (now, seen.permits);

        let line = line(unit, seen, &history);
        let end = if finished { "\n" } else { "" };
        let _ = write!(io::stderr(), "\r\x1b[K{line}{end}");
        if finished {
            return;
        }
    }
}

fn line(unit: Unit, seen: Seen, history: &[u64]) -> String {
    let mut line = String::new();
    let (permits, tenths) = (seen.permits, seen.tenths_per_second());
    let wait = Tenths(seen.wait_ns.wrapping_div(100_000_000));
    let _ = match unit {
        Unit::Lines => write!(line, "{permits} lines  {}/s  wait {wait} s  ", Tenths(tenths)),
        Unit::Bytes => {
            let (count, rate) = (Bytes(permits.saturating_mul(10)), Bytes(tenths));
            write!(line, "{count}  {rate}/s  wait {wait} s  ")
        }
    };
    if let Some(max_jobs) = seen.max_jobs {
        let _ = write!(line, "up to {max_jobs} jobs  ");
    }
    line.extend(sparks(history));
    line
}

/// Returns a bar for each tick, the highest of them full.
fn sparks(history: &[u64]) -> impl Iterator<Item = char> {
    let highest = history.iter().copied().max().unwrap_or(0).max(1);
    history.iter().map(move |height| {
        let level = height.saturating_mul(7).checked_div(highest).unwrap_or(0);
        let level = usize::try_from(level).unwrap_or(0);
        LEVELS.get(level).copied().unwrap_or('█')
    })
}

fn tenths_per_second(permits: u64, elapsed: Duration) -> u64 {
    let elapsed_ns = elapsed.as_nanos().max(1);
    let tenths = u128::from(permits).saturating_mul(10_000_000_000).checked_div(elapsed_ns);
    tenths.and_then(|tenths| u64::try_from(tenths).ok()).unwrap_or(u64::MAX)
}

/// A number of tenths, displayed as a decimal.
struct Tenths(u64);

impl fmt::Display for Tenths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0.wrapping_div(10), self.0.wrapping_rem(10))
    }
}

/// Tenths of a byte, displayed in the largest unit that keeps the number at one or above.
struct Bytes(u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut tenths = self.0;
        for unit in ["B", "KiB", "MiB", "GiB"] {
            if tenths < 10_240 {
                return write!(f, "{} {unit}", Tenths(tenths));
            }
            tenths = tenths.wrapping_div(1_024);
        }
        write!(f, "{} TiB", Tenths(tenths))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Seen, Unit, line, tenths_per_second, wanted};

    #[test]
    fn the_line_tells_count_rate_wait_and_history() {
        let lines =
            Seen { permits: 50, first_permits: 1, last_ns: 10_000_000_000, ..Seen::default() };
        let lines = Seen { wait_ns: 250_000_000, ..lines };
        assert_eq!(line(Unit::Lines, lines, &[0, 25, 50]), "50 lines  4.9/s  wait 0.2 s  ▁▄█");
        let following = Seen { max_jobs: Some(12), ..lines };
        assert_eq!(
            line(Unit::Lines, following, &[7]),
            "50 lines  4.9/s  wait 0.2 s  up to 12 jobs  █"
        );
        let (permits, last_ns) = (1_572_864, 768_000_000_000);
        let bytes = Seen { permits, last_ns, ..Seen::default() };
        assert_eq!(line(Unit::Bytes, bytes, &[7]), "1.5 MiB  2.0 KiB/s  wait 0.0 s  █");
    }

    #[test]
    fn rates_are_per_second() {
        assert_eq!(tenths_per_second(1, Duration::from_millis(200)), 50);
        assert_eq!(tenths_per_second(u64::MAX, Duration::ZERO), u64::MAX);
    }

    #[test]
    fn the_first_permit_came_in_no_time() {
        let mut seen = Seen { permits: 1, first_permits: 1, ..Seen::default() };
        assert_eq!(seen.tenths_per_second(), 0);
        seen = Seen { permits: 2, last_ns: 200_000_000, ..seen };
        assert_eq!(seen.tenths_per_second(), 50);
        seen = Seen { permits: 11, last_ns: 2_000_000_000, ..seen };
        assert_eq!(seen.tenths_per_second(), 50);
    }

    #[test]
    fn a_meter_is_for_a_terminal_that_shows_nothing_else() {
        assert!(wanted(true, false, None) && wanted(true, false, Some("xterm".as_ref())));
        assert!(!wanted(false, false, None) && !wanted(true, true, None));
        assert!(!wanted(true, false, Some("dumb".as_ref())));
    }
}
