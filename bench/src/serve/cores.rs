//! Assigns one core to the server and another to the load, and measures what else the machine does.

use std::thread;
use std::time::Duration;

use rategate_bench::clock::now_ns;
use rategate_bench::engines::Made;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The cores of the server and of the load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cores {
    pub(crate) server: usize,
    pub(crate) load: usize,
}

impl Cores {
    /// Returns the last available core for the server, and the first for the load, since
    /// interrupts come to the first.
    pub(crate) fn ours() -> Made<Self> {
        let set = sched_getaffinity(None)?;
        let mut ours = (0..CpuSet::MAX_CPU).filter(|&core| set.is_set(core));
        let load = ours.next().ok_or("no core")?;
        let server =
            ours.next_back().ok_or("only one core: the server and the load need one each")?;
        Ok(Self { server, load })
    }
}

/// Pins this thread to a core.
pub(crate) fn pin_to(core: usize) -> Made<()> {
    let mut set = CpuSet::new();
    set.set(core);
    Ok(sched_setaffinity(None, &set)?)
}

/// Returns the longest pause of a bare loop on a core: what the machine does to every process.
pub(crate) fn max_pause_ns(core: usize, lasts: Duration) -> Made<u64> {
    let watch = thread::spawn(move || {
        let _ = pin_to(core);
        let begun_ns = now_ns();
        let until_ns = begun_ns.saturating_add(lasts.as_nanos() as u64);
        let (mut last_ns, mut max_ns) = (begun_ns, 0);
        while last_ns < until_ns {
            let at_ns = now_ns();
            max_ns = at_ns.saturating_sub(last_ns).max(max_ns);
            last_ns = at_ns;
        }
        max_ns
    });
    watch.join().map_err(|_| "the watch failed".into())
}
