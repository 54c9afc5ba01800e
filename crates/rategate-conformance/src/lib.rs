//! Conformance tests that every store has to pass.
//!
//! A store under test comes as an [`Arena`]: empty, and with a clock that the tests set.
//! [`suite`] compares its decisions with those of `rategate-core`, one by one. It plays the
//! scenario files that concern a store's state, and checks the laws of [`Store`] itself. It
//! panics where a store is wrong, and reports the request.
//!
//! ```
//! use rategate::ManualClock;
//! use rategate::store::MemoryStore;
//! use rategate_conformance::Arena;
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! struct InMemory(ManualClock);
//!
//! impl Arena for InMemory {
//!     type Store = MemoryStore<ManualClock>;
//!
//!     fn store(&self) -> Arc<Self::Store> {
//!         Arc::new(MemoryStore::with_clock(self.0.clone()))
//!     }
//!
//!     fn set_now_us(&self, now_us: u64) {
//!         self.0.set(Duration::from_micros(now_us));
//!     }
//! }
//!
//! rategate_conformance::laws::suite(&InMemory(ManualClock::stepped()));
//! ```

#![allow(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    clippy::missing_errors_doc,
    clippy::missing_panics_doc,
    clippy::must_use_candidate,
    clippy::similar_names,
    clippy::unwrap_used,
    reason = "tests: they compute in plain numbers, and a panic is how they fail"
)]

use std::sync::Arc;

use rategate::store::Store;

pub mod flight;
pub mod laws;
pub mod members;
pub mod scenarios;
pub mod stopwatch;
pub mod traffic;

#[cfg(doctest)]
mod book;
mod client;
mod oracle;
mod skipped;

pub use client::StoreClient;
pub use skipped::SKIPPED;

/// A store under test, and its clock.
pub trait Arena {
    /// The type of the store.
    type Store: Store;

    /// Returns an empty store, of which no key has been used. Stores returned before receive no
    /// more requests, and may be the same one.
    fn store(&self) -> Arc<Self::Store>;

    /// Sets the clock of the store, in microseconds since its zero. It goes back only before an
    /// empty [`store`](Self::store) is requested, which then begins at that instant.
    fn set_now_us(&self, now_us: u64);

    /// Returns `true` if a refund has the grant to show.
    fn keeps_grants(&self) -> bool {
        true
    }

    /// Returns `true` if one call can name several limits.
    fn supports_several_limits(&self) -> bool {
        true
    }
}

/// Runs all suites. Returns the scenario files that were played, and those that were not, with
/// the reasons.
///
/// # Panics
///
/// Panics where the store is wrong.
pub fn suite(arena: &impl Arena) -> scenarios::Played {
    laws::suite(arena);
    traffic::suite(arena);
    flight::suite(arena);
    members::suite(arena);
    scenarios::suite(arena)
}

/// Converts a duration to nanoseconds, for tests that count in them.
pub fn ns(time: std::time::Duration) -> u64 {
    time.as_nanos().try_into().unwrap()
}
