//! Work on a low-priority thread, so that requests keep the processor.

use std::panic;
use std::thread;

/// The lowest priority (niceness) that a thread can have.
#[cfg(target_os = "linux")]
const LOWEST_PRIORITY: i32 = 19;

/// Runs `work` on a thread of the lowest priority and waits for it. Reading ten thousand rules
/// takes some 0.2 s; on a single processor, requests would otherwise get half of it during that
/// time. On a busy machine the work takes longer and requests do not.
///
/// The work must hold nothing that other threads wait for. Without a further thread, or where
/// threads have no priorities of their own, it still runs.
pub(crate) fn low_priority<T: Send>(work: impl Fn() -> T + Sync) -> T {
    thread::scope(|scope| {
        let step_back = || {
            #[cfg(target_os = "linux")]
            if let Err(error) = rustix::process::nice(LOWEST_PRIORITY) {
                tracing::debug!(%error, "cannot lower the priority of its thread");
            }
            work()
        };
        match thread::Builder::new()
            .name("rategate-low-priority".to_owned())
            .spawn_scoped(scope, step_back)
        {
            Ok(thread) => thread.join().unwrap_or_else(|panic| panic::resume_unwind(panic)),
            Err(_) => work(),
        }
    })
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    fn priority() -> i32 {
        let all = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        // The thread's name is in parentheses and may hold any character; niceness is the 17th
        // field after it.
        all.rsplit(')').next().unwrap().split_whitespace().nth(16).unwrap().parse().unwrap()
    }

    #[test]
    fn only_the_work_runs_at_low_priority() {
        let before = priority();
        assert_eq!((low_priority(priority), priority()), (LOWEST_PRIORITY, before));
    }

    #[test]
    #[should_panic(expected = "within")]
    fn a_panic_is_passed_on() {
        low_priority(|| panic!("within"));
    }
}
