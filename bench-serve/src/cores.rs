//! One core for the server, another for the load, and what else the machine does meanwhile.

use std::fs;
use std::thread;
use std::time::Duration;

use rategate_bench::engines::Made;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::common::clock::now_ns;

/// Which core whose is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cores {
    pub(crate) server: usize,
    pub(crate) load: usize,
}

impl Cores {
    /// The last of ours for the server, the first for the load: interrupts come to the first.
    pub(crate) fn ours() -> Made<Self> {
        let set = sched_getaffinity(None)?;
        let mut ours = (0..CpuSet::MAX_CPU).filter(|&core| set.is_set(core));
        let load = ours.next().ok_or("no core")?;
        let server =
            ours.next_back().ok_or("two cores are needed: one for the server, one for the load")?;
        Ok(Self { server, load })
    }
}

/// Holds this thread to a core.
pub(crate) fn hold_to(core: usize) -> Made<()> {
    let mut set = CpuSet::new();
    set.set(core);
    Ok(sched_setaffinity(None, &set)?)
}

/// The longest pause of a bare loop on that core: what the machine does to everybody.
pub(crate) fn longest_pause_ns(core: usize, lasts: Duration) -> Made<u64> {
    let watch = thread::spawn(move || {
        let _ = hold_to(core);
        let begun_ns = now_ns();
        let until_ns = begun_ns.saturating_add(lasts.as_nanos() as u64);
        let (mut last_ns, mut longest_ns) = (begun_ns, 0);
        while last_ns < until_ns {
            let at_ns = now_ns();
            longest_ns = at_ns.saturating_sub(last_ns).max(longest_ns);
            last_ns = at_ns;
        }
        longest_ns
    });
    watch.join().map_err(|_| "the watch failed".into())
}

/// What all cores together have worked since the machine was started, for anybody. What the host took away is part of it.
pub(crate) fn busy_ns() -> Made<u64> {
    let told = fs::read_to_string("/proc/stat")?;
    let line = told.lines().next().ok_or("nothing in /proc/stat")?;
    let ticks: Vec<u64> =
        line.split_whitespace().skip(1).map_while(|word| word.parse().ok()).collect();
    // User, nice, system, idle, waiting for a disk, two kinds of interrupts, stolen.
    let of = |place: usize| ticks.get(place).copied().unwrap_or(0);
    Ok((of(0) + of(1) + of(2) + of(5) + of(6) + of(7)) * tick_ns())
}

/// Linux tells times in hundredths of a second, whatever it counts in.
pub(crate) const fn tick_ns() -> u64 {
    10_000_000
}
