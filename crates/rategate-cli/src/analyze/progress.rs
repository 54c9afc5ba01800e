//! A progress bar, in one line on a terminal's stderr.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use super::input::Bytes;

const TICK: Duration = Duration::from_millis(200);
const WIDTH: u64 = 30;

/// A progress bar, drawn only on a terminal.
#[derive(Debug)]
pub(super) struct Progress {
    bytes: Bytes,
    total: Option<u64>,
    began: Instant,
    /// The instant of the last drawing; `None` without a terminal.
    drawn: Option<Instant>,
}

impl Progress {
    pub(super) fn start(bytes: &Bytes, total: Option<u64>) -> Self {
        let now = Instant::now();
        let drawn = io::stderr().is_terminal().then_some(now);
        Self { bytes: Bytes::clone(bytes), total, began: now, drawn }
    }

    /// Draws the bar at a fixed interval.
    pub(super) fn tick(&mut self) {
        let now = Instant::now();
        if self.drawn.is_some_and(|drawn| now.saturating_duration_since(drawn) >= TICK) {
            self.drawn = Some(now);
            let elapsed = now.saturating_duration_since(self.began);
            show(&format!("\r{}\x1b[K", line(self.bytes.get(), self.total, elapsed)));
        }
    }

    /// Clears the line.
    pub(super) fn finish(&self) {
        if self.drawn.is_some() {
            show("\r\x1b[K");
        }
    }
}

fn line(bytes: u64, total: Option<u64>, elapsed: Duration) -> String {
    let megabytes = bytes.div_euclid(1_000_000);
    let per_s = u128::from(bytes).checked_div(elapsed.as_millis()).unwrap_or(0).div_euclid(1_000);
    let Some(total) = total.filter(|total| *total > 0) else {
        return format!("{megabytes} MB, {per_s} MB/s");
    };
    let scaled = |of: u64| {
        let scaled =
            u128::from(bytes.min(total)).saturating_mul(of.into()).checked_div(total.into());
        scaled.and_then(|scaled| usize::try_from(scaled).ok()).unwrap_or(0)
    };
    let (full, all) = (scaled(WIDTH), usize::try_from(WIDTH).unwrap_or(0));
    let bar = ["#".repeat(full), ".".repeat(all.saturating_sub(full))].concat();
    format!("[{bar}] {} %, {megabytes} MB, {per_s} MB/s", scaled(100))
}

fn show(text: &str) {
    // A closed terminal needs no bar.
    let _ = io::stderr().write_all(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::line;
    use std::time::Duration;

    #[test]
    fn a_bar_is_as_long_as_what_is_done() {
        let two = Duration::from_secs(2);
        assert_eq!(
            line(5_000_000, Some(10_000_000), two),
            "[###############...............] 50 %, 5 MB, 2 MB/s"
        );
        assert_eq!(line(5_000_000, None, Duration::ZERO), "5 MB, 0 MB/s");
        assert!(line(9, Some(3), two).contains("100 %"));
        assert!(!line(0, Some(0), two).contains('['));
    }
}
