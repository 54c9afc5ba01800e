//! Containment of panics in foreign code: a waker, a task, or what they own.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs an action whose panic must not unwind into the caller.
pub(crate) fn quietly(action: impl FnOnce()) {
    let outcome: Result<(), Box<dyn Any + Send>> = catch_unwind(AssertUnwindSafe(action));
    if let Err(payload) = outcome {
        let again = catch_unwind(AssertUnwindSafe(move || drop(payload)));
        if let Err(again) = again {
            // A payload that panics on drop with another payload is leaked, because that could
            // panic again.
            std::mem::forget(again);
        }
    }
}
