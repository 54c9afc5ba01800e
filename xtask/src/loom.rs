//! Runs the models of the lock-free states and of the waiters in the model checker.

use anyhow::Result;

use crate::tools::Workspace;

/// The packages with models, and the features that these need. One command builds what both use
/// once, and each model has a process of its own: threads of one would wait for each other where
/// the checker maps the stacks of its threads.
const MODELS: &str = "nextest run --cargo-profile models --target-dir target/loom --test loom \
     --package rategate-core --package rategate --no-default-features \
     --features rategate/distributed --profile long";

/// The maximum number of preemptions in the full models of the waiters. The models of the
/// lock-free states set their own.
const FULL_PREEMPTIONS: &str = "4";

/// Runs the quick models or all of them. Each prints how many schedules it tried.
///
/// They are optimized, since a model is arithmetic. They have their own folder, because the flag
/// would make cargo build everything else anew.
pub(crate) fn run(at: &Workspace, full: bool) -> Result<()> {
    let flags = std::env::var("RUSTFLAGS").unwrap_or_default();
    let only = if full { "all()" } else { "test(/::quick_/)" };
    let mut models = at.cargo(&format!("{MODELS} -E {only}"));
    if full {
        models = models.env("LOOM_MAX_PREEMPTIONS", FULL_PREEMPTIONS);
    }
    // A model's trace is in its own panic, not in the checker's stack.
    models = models.env("RUST_BACKTRACE", "0").env("RUSTFLAGS", format!("{flags} --cfg loom"));
    Ok(models.run()?)
}
