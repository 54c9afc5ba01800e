//! Calls: their statuses, and what becomes of panics.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use rategate_ffi::Code;

use crate::failure::Failure;

/// Runs a call. An error or a panic becomes its number, and the text of the thread's last error.
#[inline]
pub(crate) fn run(call: impl FnOnce() -> Result<i32, Failure>) -> i32 {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(status)) => status,
        Ok(Err(failure)) => failure.report(),
        Err(panic) => Failure::Panic(text_of(panic)).report(),
    }
}

/// Runs a call that is right or wrong.
pub(crate) fn run_as_bool(call: impl FnOnce() -> Result<bool, Failure>) -> i32 {
    run(|| call().map(i32::from))
}

#[cold]
fn text_of(panic: Box<dyn Any + Send>) -> String {
    match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => panic.downcast_ref::<&str>().copied().unwrap_or("no text").to_owned(),
    }
}

/// Returns the number of a code.
#[expect(clippy::as_conversions, reason = "the enum is of numbers of this type")]
pub(crate) const fn number(code: Code) -> i32 {
    code as i32
}

#[cfg(test)]
mod tests {
    use super::run;
    use crate::failure::{RATEGATE_FAILED, last_text};

    #[test]
    fn a_panic_is_a_status_with_its_text() {
        assert_eq!(run(|| panic!("{} is wrong", 7)), RATEGATE_FAILED);
        assert_eq!(last_text(), "a defect of rategate: 7 is wrong");
        assert_eq!(run(|| panic!("plain")), RATEGATE_FAILED);
        assert_eq!(last_text(), "a defect of rategate: plain");
    }
}
