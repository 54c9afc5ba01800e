//! The tape of a run: `@` for an operation, `[z*10.1]` for a sleep of 10.1 ms.

use rategate_core::span::write_decimal;

/// A tape under construction.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tape(String);

impl Tape {
    pub(crate) fn operation(&mut self) {
        self.0.push('@');
    }

    pub(crate) fn sleep(&mut self, slept_ns: u64) {
        self.0.push_str("[z*");
        self.0.push_str(&milliseconds(slept_ns));
        self.0.push(']');
    }

    pub(crate) fn into_text(self) -> String {
        self.0
    }
}

/// Returns milliseconds in their shortest decimal form.
pub(crate) fn milliseconds(ns: u64) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write_decimal(&mut text, ns, 1_000_000);
    text
}
