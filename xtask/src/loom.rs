//! Runs the models of the lock-free states and of the waiters in the model checker.

use anyhow::Result;

use crate::tools::Workspace;

/// The packages with models, and the features that these need.
const PACKAGES: [&str; 2] =
    ["rategate-core", "rategate --no-default-features --features distributed"];

/// The maximum number of preemptions in the full models of the waiters. The models of the
/// lock-free states set their own.
const FULL_PREEMPTIONS: &str = "4";

/// Runs the quick models or all of them. Each prints how many schedules it tried.
///
/// In release mode, since a model is arithmetic. They have their own folder, because the flag
/// would make cargo build everything else anew.
pub(crate) fn run(at: &Workspace, full: bool) -> Result<()> {
    let flags = std::env::var("RUSTFLAGS").unwrap_or_default();
    for package in PACKAGES {
        let words =
            format!("test --release --target-dir target/loom --test loom --package {package}");
        let only = if full { "" } else { "quick_" };
        let mut models = at.cargo(&format!("{words} -- --nocapture {only}"));
        if full {
            models = models.env("LOOM_MAX_PREEMPTIONS", FULL_PREEMPTIONS);
        }
        // A model's trace is in its own panic, not in the checker's stack.
        models = models.env("RUST_BACKTRACE", "0").env("RUSTFLAGS", format!("{flags} --cfg loom"));
        models.run()?;
    }
    Ok(())
}
