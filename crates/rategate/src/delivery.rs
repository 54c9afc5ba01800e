//! Delivery of a value to a caller; it is undone if the caller leaves before it takes the value.

use std::fmt;

/// A value in a channel that is undone if it is dropped there, before or after it was sent.
///
/// That happens when the caller leaves.
pub(crate) struct Delivery<T> {
    value: Option<T>,
    on_unclaimed: Option<OnUnclaimed<T>>,
}

/// A function that undoes the effect of an undelivered value.
pub(crate) type OnUnclaimed<T> = Box<dyn FnOnce(T) + Send>;

impl<T> Delivery<T> {
    /// Wraps a value; `on_unclaimed` is called with it if it is not taken. Without one, it is just
    /// dropped.
    pub(crate) const fn new(value: T, on_unclaimed: Option<OnUnclaimed<T>>) -> Self {
        Self { value: Some(value), on_unclaimed }
    }

    /// Takes the value, which is the caller's from now on. `None` if it was taken before.
    pub(crate) fn take(mut self) -> Option<T> {
        self.value.take()
    }
}

impl<T> Drop for Delivery<T> {
    fn drop(&mut self) {
        if let (Some(value), Some(on_unclaimed)) = (self.value.take(), self.on_unclaimed.take()) {
            on_unclaimed(value);
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Delivery<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivery").field("value", &self.value).finish_non_exhaustive()
    }
}
