//! A forked child that runs one phase of a test, and always ends.

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook};
use std::process::{Command, exit};
use std::thread;
use std::time::{Duration, Instant};

use fork::{Fork, fork, waitpid_nohang};

/// The maximum duration of a phase.
const MAX_RUN: Duration = Duration::from_secs(5);

/// Forks, runs `body` in the child, and panics here if it panics or hangs there.
pub fn in_child(body: impl FnOnce()) {
    let Fork::Parent(pid) = fork().unwrap() else { run(body) };
    let start = Instant::now();
    let status = loop {
        if let Some(status) = waitpid_nohang(pid).unwrap() {
            break status;
        }
        if start.elapsed() > MAX_RUN {
            let _ = Command::new("kill").args(["-KILL", &pid.to_string()]).status();
            let _ = fork::waitpid(pid);
            panic!("the child hangs");
        }
        thread::sleep(Duration::from_millis(2));
    };
    assert_eq!(status, 0, "the child failed");
}

fn run(body: impl FnOnce()) -> ! {
    // The captured output of a test is in memory, which here ends with the child.
    set_hook(Box::new(|panic| {
        let _ = writeln!(std::io::stderr().lock(), "in the child: {panic}");
    }));
    // Children of a child end by themselves too, since their parent may have ended.
    let _ = thread::Builder::new().spawn(|| {
        thread::sleep(MAX_RUN);
        exit(2);
    });
    exit(i32::from(catch_unwind(AssertUnwindSafe(body)).is_err()));
}
