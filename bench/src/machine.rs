//! The machine that the figures are from.

use std::env;
use std::thread;

/// Returns the processor's name as the system reports it, and the number of cores available.
#[must_use]
pub fn name() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let name = name.map_or(env::consts::ARCH, |(_, name)| name);
    let cores = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    format!("{name}, {cores} cores, {}", env::consts::OS)
}
