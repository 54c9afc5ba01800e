//! Processor time and memory, as Linux reports them.

#![allow(
    clippy::as_conversions,
    clippy::cast_precision_loss,
    reason = "figures for people to read"
)]

use std::fs;
use std::ops::Range;
use std::thread;

/// The length of a tick, in nanoseconds. Linux reports times in hundredths of a second, whatever
/// it counts in.
pub const TICK_NS: u64 = 10_000_000;

/// The fields of a process's own time in its `stat`, counted from the end of its name.
pub const OWN: Range<usize> = 11..13;
/// The fields of the time of children that it has waited for.
pub const CHILDREN: Range<usize> = 13..15;

/// Returns the ticks of all processors since the machine was started: all of them, and the busy
/// ones, including those that the host took away.
#[must_use]
pub fn machine_ticks() -> Option<[u64; 2]> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    let fields = stat.lines().next()?.split_ascii_whitespace().skip(1);
    // The time of guests is included in that of users. The fourth and fifth are idle.
    let ticks: Vec<u64> = fields.take(8).filter_map(|field| field.parse().ok()).collect();
    let [all, idle] = [ticks.iter().sum(), ticks.iter().skip(3).take(2).sum::<u64>()];
    Some([all, all.saturating_sub(idle)])
}

/// Returns the ticks of the process of this id, or of `self`, by the fields of its `stat`.
#[must_use]
pub fn process_ticks(process: &str, fields: Range<usize>) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // A name may contain spaces and brackets.
    let (_, after) = stat.rsplit_once(')')?;
    let ticks = after.split_ascii_whitespace().skip(fields.start).take(fields.len());
    ticks.map(|field| field.parse::<u64>().ok()).sum()
}

/// Returns the memory of a process by a field of its `status`, such as `VmRSS`.
#[must_use]
pub fn memory_bytes(process: &str, field: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    let kilobytes: u64 = line.split_ascii_whitespace().next()?.parse().ok()?;
    kilobytes.checked_mul(1_024)
}

/// The shares of the machine's processors since the beginning of a measurement: a server's, those
/// of this process and its children, and others'.
#[derive(Debug)]
pub struct Share {
    server: Option<u32>,
    begun: Ticks,
}

#[derive(Debug)]
struct Ticks {
    all: u64,
    busy: u64,
    own: u64,
    server: u64,
}

impl Share {
    /// Begins a measurement of this process, of a server if there is one, and of others.
    #[must_use]
    pub fn begin(server: Option<u32>) -> Self {
        Self { server, begun: Ticks::read(server) }
    }

    /// Returns the time taken by neither this process nor the server, in percent of all
    /// processors. It includes the time that the host took.
    #[must_use]
    pub fn of_others(&self) -> f64 {
        let now = self.since();
        let others = now.busy.saturating_sub(now.own.saturating_add(now.server));
        others as f64 * 100.0 / now.all.max(1) as f64
    }

    /// Returns the server's processor time, in percent of one processor.
    #[must_use]
    pub fn of_server(&self) -> f64 {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        let now = self.since();
        now.server as f64 * 100.0 * processors as f64 / now.all.max(1) as f64
    }

    fn since(&self) -> Ticks {
        let (now, then) = (Ticks::read(self.server), &self.begun);
        Ticks {
            all: now.all.saturating_sub(then.all),
            busy: now.busy.saturating_sub(then.busy),
            own: now.own.saturating_sub(then.own),
            server: now.server.saturating_sub(then.server),
        }
    }
}

impl Ticks {
    fn read(server: Option<u32>) -> Self {
        let [all, busy] = machine_ticks().unwrap_or_default();
        // The children that have ended are those that this process waited for.
        let own = process_ticks("self", OWN.start..CHILDREN.end).unwrap_or(0);
        let server = server.and_then(|server| process_ticks(&server.to_string(), OWN));
        Self { all, busy, own, server: server.unwrap_or(0) }
    }
}
