//! Conformance tests that every store has to pass.
//!
//! A store under test comes as an [`Arena`]: empty, and with a clock that the tests set.
//! [`suite`] compares its decisions with those of `rategate-core`, one by one, and checks the laws
//! of [`Store`] itself. [`scenarios`] plays the scenario files that concern a store's state. All
//! panic where a store is wrong, and report the request.
//!
//! ```
//! use rategate::ManualClock;
//! use rategate::store::MemoryStore;
//! use rategate_testkit::conformance::{Arena, laws};
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
//! laws::suite(&InMemory(ManualClock::stepped()));
//! ```

use std::sync::Arc;

use rategate::store::Store;

pub mod cases;
pub mod flight;
pub mod laws;
pub mod reservations;
pub mod scenarios;
pub mod traffic;

mod client;
mod model;
mod story;

pub use client::{denied, granted};

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

    /// Returns `true` if one call can name several limits.
    fn supports_several_limits(&self) -> bool {
        true
    }
}

/// Runs all suites but that of the scenario files.
///
/// # Panics
///
/// Panics where the store is wrong.
pub fn suite(arena: &impl Arena) {
    laws::suite(arena);
    traffic::suite(arena, cases::limits());
    reservations::suite(arena);
    reservations::crowds(arena, 4);
    flight::suite(arena);
}
