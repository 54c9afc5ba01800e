//! Who had the machine's processors while something was measured: a server, this process with its nodes, and others.

use std::fs;
use std::thread;

/// Times in the system's ticks, as they were at the beginning.
pub(crate) struct Share {
    server: u32,
    begun: Ticks,
}

struct Ticks {
    all: u64,
    busy: u64,
    own: u64,
    server: u64,
}

impl Share {
    /// From now on, beside this process and a server.
    pub(crate) fn begin(server: u32) -> Self {
        Self { server, begun: Ticks::read(server) }
    }

    /// Returns what neither this process nor the server took, in percent of all processors. What the host took is in it.
    pub(crate) fn of_others(&self) -> f64 {
        let now = self.since();
        now.busy.saturating_sub(now.own + now.server) as f64 * 100.0 / now.all.max(1) as f64
    }

    /// Returns for how much of the time the server was at work, in percent of one processor.
    pub(crate) fn of_server(&self) -> f64 {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        let now = self.since();
        (now.server * 100) as f64 * processors as f64 / now.all.max(1) as f64
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
    fn read(server: u32) -> Self {
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        let fields = stat.lines().next().unwrap_or("").split_ascii_whitespace().skip(1);
        // What guests took is in what users took.
        let ticks: Vec<u64> = fields.take(8).filter_map(|field| field.parse().ok()).collect();
        let all: u64 = ticks.iter().sum();
        let idle: u64 = ticks.iter().skip(3).take(2).sum();
        // Nodes that have ended are in what this process waited for.
        let (own, server) = (of_process("self", 4), of_process(&server.to_string(), 2));
        Self { all, busy: all.saturating_sub(idle), own, server }
    }
}

/// User and system time of a process, and as the third and fourth field those of the children that it waited for.
fn of_process(process: &str, fields: usize) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let after = stat.rsplit(')').next().unwrap_or("");
    let fields = after.split_ascii_whitespace().skip(11).take(fields);
    fields.filter_map(|field| field.parse::<u64>().ok()).sum()
}
