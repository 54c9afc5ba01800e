//! Errors: their numbers, and the text of the last one of each thread.

#![allow(unsafe_code, reason = "names are exported")]

use std::cell::Cell;
use std::ffi::c_char;
use std::fmt::{self, Write};
use std::io;

use rategate::error::PolicyTextError;
use rategate_ffi::{Code, RestoreError, ReturnError, SnapshotError};

use crate::status::number;

/// A denial for now: nothing was taken.
pub const RATEGATE_DENIED: i32 = 0;
/// A grant: the permits are the caller's. Also the status of any other call that did its work.
pub const RATEGATE_GRANTED: i32 = 1;
/// A wait has begun, and its hub will deliver its end.
pub const RATEGATE_WAITS: i32 = 2;
/// The start lies past the timeout. Nothing was taken; later calls may pass.
pub const RATEGATE_TOO_LONG: i32 = -1;
/// The wait queue, or the table of keys, is full.
pub const RATEGATE_FULL: i32 = -2;
/// The limiter has been closed.
pub const RATEGATE_CLOSED: i32 = -3;
/// No time and no retry makes this call pass.
pub const RATEGATE_NEVER: i32 = -4;
/// The caller ended the wait.
pub const RATEGATE_CANCELLED: i32 = -5;
/// A store did not reply.
pub const RATEGATE_UNAVAILABLE: i32 = -6;
/// An argument or a text that has no meaning, such as a null pointer.
pub const RATEGATE_INVALID: i32 = -7;
/// The system refused what a call needs, or the library has a defect.
pub const RATEGATE_FAILED: i32 = -8;

const _: () = {
    assert!(RATEGATE_TOO_LONG == number(Code::TooLong));
    assert!(RATEGATE_FULL == number(Code::Full));
    assert!(RATEGATE_CLOSED == number(Code::Closed));
    assert!(RATEGATE_NEVER == number(Code::Never));
    assert!(RATEGATE_CANCELLED == number(Code::Cancelled));
    assert!(RATEGATE_UNAVAILABLE == number(Code::Unavailable));
    assert!(RATEGATE_INVALID == number(Code::Invalid));
    assert!(RATEGATE_FAILED == number(Code::Failed));
};

/// The longest text, with the zero at its end. The rest of a longer one is cut off.
const BYTES: usize = 512;

thread_local! {
    /// Without a drop and made at compile time, so that it takes no memory when it is first used.
    static LAST: Cell<[u8; BYTES]> = const { Cell::new([0; BYTES]) };
}

/// Returns the text of the last error that a call in this thread has returned, or an empty text.
///
/// The text is valid until the next error in this thread, or the end of the thread. A call that
/// succeeds leaves it as it is.
#[unsafe(no_mangle)]
pub extern "C" fn rategate_last_error() -> *const c_char {
    LAST.with(|last| last.as_ptr().cast::<c_char>().cast_const())
}

#[cfg(test)]
pub(crate) fn last_text() -> String {
    let bytes = LAST.get();
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// The error of a call.
#[derive(Debug)]
pub(crate) enum Failure {
    /// An error of the library.
    Error(rategate::Error),
    /// An argument that is null.
    Null(&'static str),
    /// An argument that is no UTF-8 from this byte on.
    NoText(&'static str, usize),
    /// A structure of a size that none of its versions has.
    Size { name: &'static str, size: usize, min: usize },
    /// Bytes that are longer than memory.
    Length(&'static str, usize),
    /// A number outside of 1 to this maximum.
    Range(&'static str, usize, usize),
    /// A number that stands for nothing to do with new keys.
    WhenFull(i32),
    /// A number that stands for no outcome.
    Outcome(i32),
    /// A text that is no policy.
    Policy(String, PolicyTextError),
    /// A table of a limit that is wrong.
    Table(String),
    /// A decision that grants nothing.
    NoGrant(i32),
    /// A grant that cannot be returned.
    Return(ReturnError),
    /// A limiter that is too long to be saved.
    Save(SnapshotError),
    /// Bytes that no limiter of the policies given continues from.
    Restore(RestoreError),
    /// Several limits for each key.
    SeveralForAKey(usize),
    /// A hub of another process.
    Forked,
    /// An error of the system.
    System(io::Error),
    /// A defect of the library.
    Panic(String),
}

impl<E: Into<rategate::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Error(error.into())
    }
}

impl Failure {
    /// Stores the text for the caller. Returns the number.
    #[cold]
    pub(crate) fn report(&self) -> i32 {
        let mut text = Text { bytes: [0; BYTES], len: 0 };
        // It fails where the text is cut off.
        let _ = write!(text, "{self}");
        LAST.with(|last| last.set(text.bytes));
        self.number()
    }

    pub(crate) fn number(&self) -> i32 {
        number(match self {
            Self::Error(error) => Code::of(error),
            Self::System(_) | Self::Panic(_) => Code::Failed,
            _ => Code::Invalid,
        })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Error(error) => error.fmt(f),
            Self::Null(name) => write!(f, "`{name}` is null"),
            Self::NoText(name, at) => write!(f, "`{name}` is not UTF-8 from byte {at} on"),
            Self::Size { name, size, min } => write!(
                f,
                "`size` of {name} is {size}: set it to sizeof({name}), which is at least {min}"
            ),
            Self::Length(name, len) => {
                write!(f, "the length of `{name}` is {len}: that is longer than memory")
            }
            Self::Range(name, value, max) => {
                write!(f, "`{name}` is {value}: it must be 1 to {max}")
            }
            Self::WhenFull(value) => write!(
                f,
                "`when_full` is {value}: it must be RATEGATE_SHARE, RATEGATE_REFUSE or RATEGATE_ADMIT"
            ),
            Self::Outcome(value) => write!(
                f,
                "`outcome` is {value}: it must be RATEGATE_SERVED, RATEGATE_DROPPED or RATEGATE_IGNORED"
            ),
            Self::Policy(text, error) => write!(f, "\"{text}\": {error}"),
            Self::Table(text) => f.write_str(text),
            Self::NoGrant(status) => {
                write!(f, "the decision grants nothing: its status is {status}, not 1")
            }
            Self::Return(error) => error.fmt(f),
            Self::Save(error) => error.fmt(f),
            Self::Restore(error) => error.fmt(f),
            Self::SeveralForAKey(count) => {
                write!(f, "{count} policies: a table of keys has one for each key")
            }
            Self::Forked => f.write_str("the hub is of the process before the fork: create one"),
            Self::System(error) => error.fmt(f),
            Self::Panic(text) => write!(f, "a defect of rategate: {text}"),
        }
    }
}

/// A text that is cut off where its space ends, with a zero at its end.
struct Text {
    bytes: [u8; BYTES],
    len: usize,
}

impl Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let free = BYTES.saturating_sub(1).saturating_sub(self.len);
        // No character is cut.
        let cut = (0..=free.min(text.len())).rev().find_map(|end| text.get(..end));
        let part = cut.unwrap_or("");
        let end = self.len.saturating_add(part.len());
        if let Some(space) = self.bytes.get_mut(self.len..end) {
            space.copy_from_slice(part.as_bytes());
            self.len = end;
        }
        if part.len() == text.len() { Ok(()) } else { Err(fmt::Error) }
    }
}
