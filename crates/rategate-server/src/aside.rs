//! Work that nobody waits for but whoever asked for it.

use std::panic;
use std::thread;

/// The lowest of the priorities that threads share the processor by.
#[cfg(target_os = "linux")]
const LEAST: i32 = 19;

/// Does work in a thread that steps back for all others, and waits for it. Ten thousand rules take some 0.2 s to read: with one
/// processor for everything, calls would have to share it half and half. While all is busy the work takes longer, and calls do not.
///
/// Only for work that holds nothing others wait for. Without a further thread, and where threads have no priorities of their own,
/// it is done all the same.
pub(crate) fn aside<T: Send>(work: impl Fn() -> T + Sync) -> T {
    thread::scope(|scope| {
        let step_back = || {
            #[cfg(target_os = "linux")]
            if let Err(error) = rustix::process::nice(LEAST) {
                tracing::debug!(%error, "a thread keeps its priority");
            }
            work()
        };
        match thread::Builder::new()
            .name("rategate-aside".to_owned())
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
        // The name is in parentheses and may hold anything; niceness is the 17th after it.
        all.rsplit(')').next().unwrap().split_whitespace().nth(16).unwrap().parse().unwrap()
    }

    #[test]
    fn the_work_steps_back_and_whoever_asked_for_it_does_not() {
        let before = priority();
        assert_eq!((aside(priority), priority()), (LEAST, before));
    }

    #[test]
    #[should_panic(expected = "within")]
    fn a_panic_is_passed_on() {
        aside(|| panic!("within"));
    }
}
