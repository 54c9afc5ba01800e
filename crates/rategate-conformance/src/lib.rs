//! What every store has to do, as tests that each of them passes.
//!
//! A store under test comes as an [`Arena`]: empty, and with a clock that the tests set. [`suite`] then holds
//! its decisions to those of `rategate-core`, one by one, plays the scenario files that speak of what a store
//! keeps, and tries the laws of [`Store`] itself. It panics where a store is wrong, and says what it asked.
//!
//! ```
//! use rategate::ManualClock;
//! use rategate::store::MemoryStore;
//! use rategate_conformance::Arena;
//! use std::sync::Arc;
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
//!         self.0.set(now_us * 1_000);
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

mod asker;
mod oracle;
mod skipped;

pub use asker::Asker;
pub use skipped::SKIPPED;

/// Where a store is put to the test.
pub trait Arena {
    /// What is put to the test.
    type Store: Store;

    /// An empty store: no key of it has been used. Those made before are asked no more, and may be the same.
    fn store(&self) -> Arc<Self::Store>;

    /// Sets the clock of the store, in microseconds since its zero. It goes back only before an empty
    /// [`store`](Self::store) is asked for, which then begins at that instant.
    fn set_now_us(&self, now_us: u64);

    /// Whether whoever gives permits back has their grant to show.
    fn keeps_grants(&self) -> bool {
        true
    }

    /// Whether one call can ask for several limits together.
    fn asks_several(&self) -> bool {
        true
    }
}

/// All of it. Says which scenario files were played, and which were not, and why.
///
/// # Panics
///
/// Where the store is wrong.
pub fn suite(arena: &impl Arena) -> scenarios::Played {
    laws::suite(arena);
    traffic::suite(arena);
    flight::suite(arena);
    members::suite(arena);
    scenarios::suite(arena)
}
