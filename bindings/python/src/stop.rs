//! The end of an await that has a value.

use pyo3::ffi;
use pyo3::prelude::*;

use crate::decision::Grant;

/// Raises `StopIteration` with a grant: `__next__` then returns `None`, and the await this grant.
///
/// An error of PyO3 would be an exception object at once, which the interpreter takes apart again:
/// more than half the time of an await whose permits are free. This leaves the bare value.
#[allow(unsafe_code, reason = "PyO3 has no such call; record 0091 says why it is worth one")]
pub(crate) fn set(grant: &Bound<'_, Grant>) {
    // SAFETY: a `Bound` shows that this thread is attached to the interpreter, which keeps the type
    // for as long as it runs. The call takes references of its own to both.
    unsafe { ffi::PyErr_SetObject(ffi::PyExc_StopIteration, grant.as_ptr()) }
}
