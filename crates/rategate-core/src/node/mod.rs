//! One node among many that share a limit: what it decides by itself, what it has to ask a store, and what it may do
//! when the store is silent.
//!
//! Everything here is a machine without a clock and without IO: it is told what time it is and what was heard, and says
//! what to send. The same machines run in a process with a real store and in a simulated world with lost messages,
//! skewed clocks and crashes.
//!
//! | I want | module |
//! |---|---|
//! | a limit whose permits a node borrows in batches | [`leased`] on [`terms`] |
//! | that what is borrowed never adds up to more than the limit | [`guard`] |
//! | a limit of which each node has a share | [`member`], and [`group`] on the store's side |
//! | to stop asking a store that is gone | [`breaker`] |
//!
//! # Two ways to share a limit `N` in any `M`
//!
//! | | borrowed ([`Leased`]) | shared out ([`Member`]) |
//! |---|---|---|
//! | the store is asked | once for each half to whole of `q` units, for each key | once for each beat, for all keys |
//! | uneven load | each node borrows what it needs | each has its part, whether it needs it or not |
//! | actions in any `M` | `N` with the guard, `N + Q` without | `N` |
//! | the store is gone | what is borrowed can be used, for at most `L` | the share can be used, for at most the length |
//! | a node is gone | its units age out | the others have its share within two beats |
//!
//! # Clocks
//!
//! A node measures lengths on its own monotonic clock, from the instant it *sent* a message; the store from when it *came*. What
//! matters is only by how much the rates of the two clocks differ, the *drift*, in parts per million: 200 is generous for
//! quartz. No instant ever travels.

mod demand;
mod lots;

pub mod breaker;
pub mod group;
pub mod guard;
pub mod leased;
pub mod member;
pub mod terms;

pub use breaker::{Breaker, BreakerTerms, Pass};
pub use group::{Beat, Group, Heard};
pub use guard::{GuardError, Lent, guarded};
pub use leased::{Errand, ErrandId, Leased, Local};
pub use member::{BeatId, Member, MemberTerms, Resize};
pub use terms::{Terms, TermsError};
