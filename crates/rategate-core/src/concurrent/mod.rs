//! Lock-free forms of policies, which threads share without a mutex.
//!
//! A lock-free state answers tries as its policy does. It is a word or a ring of words that
//! threads change by compare-and-swap. What words cannot hold, such as a promise that may be
//! cancelled, needs the [`Ledger`], and so do other policies and several limits together: of those,
//! a *gate* only denies. The two never decide at the same time:
//!
//! ```text
//!             open                                      sealed
//!   tries: compare-and-swap on the words      everything: the ledger, under its owner's lock
//!                 \____ seal: the thread that holds the lock ____/
//!                  \___ open: once no promise is pending ___/
//! ```
//!
//! * **One owner at a time.** While the lock-free form is open, it has the state and the ledger's
//!   copy is stale. [Sealing](Ledger::seal) takes the state out in one atomic step (one per
//!   slot for the log), after which no compare-and-swap can succeed.
//! * **A configuration is published with the word.** The word names one of two slots that hold
//!   the numbers. A slot is written only while the word names the other slot. A word's value
//!   belongs to one configuration for ever, so a swap that succeeds has read the numbers in
//!   force.
//! * **New numbers take effect at once** where a word can hold them. They are written into the
//!   slot that is not in use and put into force by a swap of the word, so no thread waits for a
//!   change.
//! * **A denial writes nothing**, and was true at one instant. The word is read again after the
//!   numbers; if it has changed, the decision is made again.
//! * **Clocks.** Each thread brings its own reading. A reading older than another thread's earns
//!   nothing, so bounds hold for any disorder of the readings. A denied caller has read the clock
//!   after the state, so a thread that stalled in between receives a wait that is no longer than
//!   the true one. A denial can be wrong only by the disorder of the clocks (tenths of a
//!   microsecond between the cores of one processor). Refunds, credits and new numbers are the
//!   exceptions: what they leave depends on what has been earned by now. They need a reading that
//!   is not before those of the grants so far.
//!
//! Orderings, in all lock-free forms: a swap is `AcqRel` and a load of a word `Acquire`, so a
//! thread that sees a state sees the numbers it was made with. The fields of a configuration are
//! read `Relaxed`. An `Acquire` fence and a second load of the word then confirm them, as in a
//! sequence lock.
//!
//! # States and costs
//!
//! * [`gcra`]: one word, the TAT. A try costs a clock reading and one swap.
//! * [`two_timeline`]: one word and a cached clock (average), or two words. A try costs one
//!   addition while behind schedule; otherwise a clock reading and one swap or two.
//! * [`sliding_log`]: one word for each permit. A try costs a clock
//!   reading, one swap, and one more swap at every eighth try.
//! * [`window`]: one word, the count of a window. A try costs a clock reading and one swap, and one
//!   in each window takes the lock.
//! * the gate: one word, the instant until which not one permit passes. A denial costs a load and a
//!   clock reading.
//!
//! # Without 64-bit atomics
//!
//! A target without them, such as `thumbv7m-none-eabi`, takes those of the crate `portable-atomic`,
//! which has a lock for them: an interrupt must not decide there. One that cannot compare and swap
//! at all, such as `thumbv6m-none-eabi`, also needs the feature `critical-section` of that crate.
//!
//! ```
//! use rategate_core::concurrent::LockFreeVerdict;
//! use rategate_core::gcra::Gcra;
//! use rategate_core::ledger::Ledger;
//!
//! let mut ledger = Ledger::new(Gcra::per_second(1), 0);
//! let lock_free = ledger.lock_free(0);
//! assert!(matches!(lock_free.try_acquire(|| 5, 1), LockFreeVerdict::Granted { start_ns: 5, .. }));
//! assert!(matches!(lock_free.try_acquire(|| 5, 1), LockFreeVerdict::Denied { .. }));
//!
//! // A change that needs the ledger takes the state back first.
//! ledger.seal(&lock_free);
//! assert_eq!(lock_free.try_acquire(|| 5, 1), LockFreeVerdict::Sealed);
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```

mod fast;
mod gate;
pub mod gcra;
mod live;
pub mod sliding_log;
mod sync;
pub mod two_timeline;
mod verdict;
pub mod window;
mod word;

pub use self::fast::Fast;
pub use self::live::Seed;
pub use self::verdict::{BatchVerdict, LockFreeVerdict, PermitBatch};
#[cfg(doc)]
use crate::ledger::Ledger;
