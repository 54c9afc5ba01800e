//! Answers on their way to a caller who may leave before they are taken.

use std::fmt;

/// A value in a channel, which is handed back if it is dropped there: by the caller that leaves, before or after it
/// was sent.
pub(crate) struct Delivery<T> {
    value: Option<T>,
    hand_back: Option<HandBack<T>>,
}

/// Undoes what a value stands for.
pub(crate) type HandBack<T> = Box<dyn FnOnce(T) + Send>;

impl<T> Delivery<T> {
    /// Sends a value that `hand_back` is called with if it is not taken. Without one, nothing is lost with it.
    pub(crate) const fn new(value: T, hand_back: Option<HandBack<T>>) -> Self {
        Self { value: Some(value), hand_back }
    }

    /// Takes the value, which is the caller's from now on. `None` if that was done before.
    pub(crate) fn take(mut self) -> Option<T> {
        self.value.take()
    }
}

impl<T> Drop for Delivery<T> {
    fn drop(&mut self) {
        if let (Some(value), Some(hand_back)) = (self.value.take(), self.hand_back.take()) {
            hand_back(value);
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Delivery<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivery").field("value", &self.value).finish_non_exhaustive()
    }
}
