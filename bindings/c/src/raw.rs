//! Pointers from C, and all `unsafe` blocks of the crate.
//!
//! Only C makes values of these types, by the rules that the header states: a pointer is null or
//! points to what its type says, for as long as the call lasts. Null is never read or written.

#![allow(unsafe_code, reason = "what C's pointers point to is for its callers to keep")]

use std::ffi::{CStr, c_char, c_void};
use std::fmt;
use std::mem::{MaybeUninit, offset_of};
use std::slice;

use crate::failure::Failure;

/// A text of C, which ends with a zero.
#[repr(transparent)]
pub struct Text(*const c_char);

/// The start of some bytes.
#[repr(transparent)]
pub struct Start(*const c_void);

/// The start of space for some bytes.
#[repr(transparent)]
pub struct Space(*mut c_void);

/// A structure of the caller that begins with its size.
#[repr(transparent)]
pub struct Filled<T>(*mut T);

/// A structure that begins with a `usize`: its size, as the caller was compiled.
///
/// Versions add fields at the end, so that a smaller structure is the beginning of ours.
///
/// # Safety
///
/// It is `repr(C)`, its first field is that `usize`, and any bytes are a value of it.
pub unsafe trait Layout: Copy {
    /// The name in the header.
    const NAME: &str;
    /// The bytes up to the end of the first field behind the size.
    const MIN_SIZE: usize;
}

/// A place for a result, which C may never have written.
pub type Out<'c, T> = Option<&'c mut MaybeUninit<T>>;

/// Writes a result, unless the caller does not want it.
pub(crate) fn put<T>(out: Out<'_, T>, value: T) {
    if let Some(out) = out {
        out.write(value);
    }
}

impl Text {
    /// Returns the text.
    pub(crate) fn read(&self, name: &'static str) -> Result<&str, Failure> {
        if self.0.is_null() {
            return Err(Failure::Null(name));
        }
        // SAFETY: it is not null, so it points to a text of C, for as long as this call.
        let text = unsafe { CStr::from_ptr(self.0) };
        text.to_str().map_err(|error| Failure::NoText(name, error.valid_up_to()))
    }
}

impl Start {
    /// Returns the bytes. Null is a start of none.
    pub(crate) fn read(&self, name: &'static str, len: usize) -> Result<&[u8], Failure> {
        match (self.0.is_null(), isize::try_from(len)) {
            (_, Ok(0)) => Ok(&[]),
            (true, _) => Err(Failure::Null(name)),
            (false, Err(_)) => Err(Failure::Length(name, len)),
            // SAFETY: it is not null, so `len` bytes from it on are the caller's, and a size that
            // an allocation can have.
            (false, Ok(_)) => Ok(unsafe { slice::from_raw_parts(self.0.cast(), len) }),
        }
    }
}

impl Space {
    /// Writes bytes, for which the caller has space.
    pub(crate) fn put(&self, name: &'static str, bytes: &[u8]) -> Result<(), Failure> {
        if self.0.is_null() {
            return Err(Failure::Null(name));
        }
        // SAFETY: it is not null, so as many bytes from it on are the caller's, and no others of
        // this call.
        unsafe { self.0.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        Ok(())
    }
}

impl<T: Layout> Filled<T> {
    pub(crate) fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// Checks the size before a call takes anything. Null has nothing to be checked.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        if self.is_null() {
            return Ok(());
        }
        // SAFETY: it is not null, so it points to a structure that begins with its size.
        let size = unsafe { self.0.cast::<usize>().read() };
        checked::<T>(size)
    }

    /// Writes the fields for which the caller has space, and not the size. Null has none.
    pub(crate) fn put(&self, value: &T) {
        if self.is_null() {
            return;
        }
        // SAFETY: it is not null, so it points to a structure that begins with its size.
        let size = unsafe { self.0.cast::<usize>().read() };
        // SAFETY: as many bytes are the caller's.
        unsafe { put_fields(self.0.cast(), size, value) };
    }

    /// Reads the structure, which must be whole.
    pub(crate) fn read(&self, name: &'static str) -> Result<T, Failure> {
        if self.0.is_null() {
            return Err(Failure::Null(name));
        }
        // SAFETY: it is not null, so it points to a structure that begins with its size.
        let size = unsafe { self.0.cast::<usize>().read() };
        if size < size_of::<T>() {
            return Err(Failure::Size { name: T::NAME, size, min: size_of::<T>() });
        }
        // SAFETY: the caller has as many bytes there, and any bytes are a value.
        Ok(unsafe { self.0.read() })
    }
}

fn checked<T: Layout>(size: usize) -> Result<(), Failure> {
    if size < T::MIN_SIZE || !size.is_multiple_of(align_of::<T>()) {
        return Err(Failure::Size { name: T::NAME, size, min: T::MIN_SIZE });
    }
    Ok(())
}

/// Copies the fields behind the size, as far as the target goes.
///
/// # Safety
///
/// `size` bytes may be written at `to`.
unsafe fn put_fields<T: Layout>(to: *mut u8, size: usize, value: &T) {
    const FIRST: usize = size_of::<usize>();
    let len = size.min(size_of::<T>()).saturating_sub(FIRST);
    let from = (&raw const *value).cast::<MaybeUninit<u8>>().wrapping_add(FIRST);
    let to = to.cast::<MaybeUninit<u8>>().wrapping_add(FIRST);
    // SAFETY: both have these bytes, padding included, and the value is ours alone.
    unsafe { to.copy_from_nonoverlapping(from, len) };
}

macro_rules! layouts {
    ($($type:ty as $name:literal, first $first:ident, $then:ident),* $(,)?) => {$(
        // SAFETY: the structures of `decision.rs` are numbers only, in the order of C.
        unsafe impl Layout for $type {
            const NAME: &str = $name;
            const MIN_SIZE: usize = offset_of!($type, $then);
        }
        const _: () = assert!(offset_of!($type, size) == 0);
        const _: () = assert!(offset_of!($type, $first) == size_of::<usize>());
    )*};
}

layouts! {
    crate::decision::Decision as "rategate_decision", first status, wait,
    crate::decision::Status as "rategate_status", first remaining, capacity,
    crate::decision::Charge as "rategate_charge", first booked, forgiven,
    crate::decision::Settlement as "rategate_settlement", first refunded, charged,
}

macro_rules! debug {
    ($($name:ident $(<$of:ident>)?),*) => {$(
        impl $(<$of>)? fmt::Debug for $name $(<$of>)? {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_tuple(stringify!($name)).field(&self.0).finish()
            }
        }
    )*};
}

debug!(Text, Start, Space, Filled<T>);
