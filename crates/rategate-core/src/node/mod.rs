//! Nodes that share a limit with other nodes through a store.
//!
//! A node decides some calls locally, sends requests to the store for others, and has rules for a
//! store that does not reply. Everything here is a state machine without a clock and without IO:
//! it takes the time and the replies, and returns what to send. The same machines run in a
//! process with a real store and in a simulated world with lost messages, skewed clocks and
//! crashes.
//!
//! | I want | module |
//! |---|---|
//! | a limit whose permits a node borrows in batches | [`leased`] on [`lease_config`] |
//! | leases that never add up to more than the limit | [`guard`] |
//! | a fixed part of a limit for each node, without a store | [`part`] |
//! | to stop requests to an unavailable store | [`breaker`] |
//!
//! # Two ways to share a limit `N` in any `M`
//!
//! | | borrowed ([`Leased`]) | divided ([`Part`]) |
//! |---|---|---|
//! | requests | one per half to whole of `q` units, per key | none |
//! | uneven load | each node borrows what it needs | each has its part, needed or not |
//! | actions in any `M` | `N` with the guard, `N + Q` without | `N` |
//! | store unavailable | leases are usable for at most `L` | there is no store |
//! | node lost | its units age out | its part is lost, until the others are told |
//!
//! # Clocks
//!
//! A node measures lengths on its own monotonic clock, from the instant it *sent* a message; the
//! store from when it *arrived*. Only the difference between the rates of the two clocks matters,
//! the *drift*, in parts per million: 200 is generous for quartz. No instant is ever sent.

mod demand;
mod lease_queue;

pub mod breaker;
pub mod guard;
pub mod held;
pub mod lease_config;
pub mod leased;
pub mod part;

pub use breaker::{Breaker, BreakerConfig, Pass};
pub use guard::{GuardError, Lent, guarded};
pub use held::Held;
pub use lease_config::{LeaseConfig, NodeConfigError};
pub use leased::{LeaseAction, LeaseActionId, LeaseHold, Leased, LocalDecision};
pub use part::{Divisible, Part};
