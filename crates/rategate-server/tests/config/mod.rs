//! Configurations: the rules and settings that files load to, the problems of wrong ones, and
//! changes of files.

mod calendar;
mod ceilings;
mod envoy;
mod envoy_env;
mod faults;
mod files;
mod fuzz;
mod hold_bounds;
mod laws;
mod layers;
mod metadata;
mod metadata_values;
mod names;
mod native;
mod ratelimit_format;
mod several;
mod values;
mod watch;

use std::time::{Duration, Instant};

/// Runs a function, and returns how long a processor was busy with it.
///
/// Where the system does not say, that is how long it took, also while other programs ran.
fn busy<T>(run: impl FnOnce() -> T) -> (T, Duration) {
    let busy = || {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
        text.split(' ').next()?.parse().ok().map(Duration::from_nanos)
    };
    let (since, before) = (Instant::now(), busy());
    let result = run();
    let took =
        busy().zip(before).map_or(since.elapsed(), |(now, before)| now.saturating_sub(before));
    (result, took)
}
