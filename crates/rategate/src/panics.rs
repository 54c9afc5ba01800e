//! Foreign code that panics: a waker, a task, or what they own.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs what must not stop us, whatever it does.
pub(crate) fn quietly(action: impl FnOnce()) {
    let outcome: Result<(), Box<dyn Any + Send>> = catch_unwind(AssertUnwindSafe(action));
    if let Err(payload) = outcome {
        let again = catch_unwind(AssertUnwindSafe(move || drop(payload)));
        if let Err(again) = again {
            // Whoever throws something that throws again is not asked a third time.
            std::mem::forget(again);
        }
    }
}
