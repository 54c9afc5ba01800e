//! How much of the machine's processors others took while something was measured.

use std::fs;

/// Times in the system's ticks, as they were at the beginning.
pub(crate) struct Share {
    server: u32,
    all: u64,
    busy: u64,
    own: u64,
}

impl Share {
    /// From now on, beside this process and a server.
    pub(crate) fn begin(server: u32) -> Self {
        let (all, busy) = machine();
        Self { server, all, busy, own: own(server) }
    }

    /// What neither of the two took, in percent of all processors.
    pub(crate) fn of_others(&self) -> f64 {
        let (all, busy) = machine();
        let own = own(self.server).saturating_sub(self.own);
        let others = busy.saturating_sub(self.busy).saturating_sub(own);
        others as f64 * 100.0 / all.saturating_sub(self.all).max(1) as f64
    }
}

/// All ticks of all processors, and those in which they were not idle.
fn machine() -> (u64, u64) {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let fields = stat.lines().next().unwrap_or("").split_ascii_whitespace().skip(1);
    // What guests took is in what users took.
    let ticks: Vec<u64> = fields.take(8).filter_map(|field| field.parse().ok()).collect();
    let all: u64 = ticks.iter().sum();
    let idle: u64 = ticks.iter().skip(3).take(2).sum();
    (all, all.saturating_sub(idle))
}

fn own(server: u32) -> u64 {
    ticks_of("self") + ticks_of(&server.to_string())
}

fn ticks_of(process: &str) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let after = stat.rsplit(')').next().unwrap_or("");
    let fields = after.split_ascii_whitespace().skip(11).take(2);
    fields.filter_map(|field| field.parse::<u64>().ok()).sum()
}
