//! The shares of the machine's processors during a measurement: a server's, those of this process
//! and its nodes, and others'.

#![allow(
    clippy::as_conversions,
    clippy::cast_precision_loss,
    reason = "figures for people to read"
)]

use std::fs;
use std::thread;

/// The processor times at the beginning, in the system's ticks.
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
        now.busy.saturating_sub(now.own.saturating_add(now.server)) as f64 * 100.0
            / now.all.max(1) as f64
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
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        let fields = stat.lines().next().unwrap_or("").split_ascii_whitespace().skip(1);
        // The time of guests is included in that of users.
        let ticks: Vec<u64> = fields.take(8).filter_map(|field| field.parse().ok()).collect();
        let all: u64 = ticks.iter().sum();
        let idle: u64 = ticks.iter().skip(3).take(2).sum();
        // The nodes that have ended are children that this process waited for.
        let own = of_process("self", 4);
        let server = server.map_or(0, |server| of_process(&server.to_string(), 2));
        Self { all, busy: all.saturating_sub(idle), own, server }
    }
}

/// Returns the user and system time of a process; with four fields, also those of the children
/// that it waited for.
fn of_process(process: &str, fields: usize) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let after = stat.rsplit(')').next().unwrap_or("");
    let fields = after.split_ascii_whitespace().skip(11).take(fields);
    fields.filter_map(|field| field.parse::<u64>().ok()).sum()
}
