//! A place that decides for many machines, and what it is asked.
//!
//! A store holds the states of limits that several processes share. It decides by its own clock, one question
//! after the other, so what it grants keeps the limit wherever the questions come from. [`Store`] is what such
//! a place has to be able to do: [`MemoryStore`] is one in this process, `rategate-redis` one on Redis or Valkey.
//!
//! | I want | it is |
//! |---|---|
//! | to say what a store can be asked | [`Question`] |
//! | to read what it says | [`Answer`], [`Verdict`], [`Fault`] |
//! | the limits a store can keep | [`Rule`] |
//! | to ask in tasks, or in threads | [`Ask`], [`Asked::wait`] |
//! | a store in this process | [`MemoryStore`] |
//! | a store of my own, whose thread a forked child does not have | [`PerProcess`] |
//! | a store that is slow, cut off or forgetful, for tests | [`FaultyStore`] |
//!
//! # Smallest example
//!
//! What asks is the same for every store, so a program may begin with one in memory:
//!
//! ```
//! use rategate::store::{Ask, Fault, Key, MemoryStore, Store, Verdict};
//! use rategate::Gcra;
//! use std::num::NonZeroU64;
//! use std::sync::Arc;
//!
//! /// Whether a tenant may call now; in any thread.
//! fn admits<S: Store>(store: &Arc<S>, plan: &Arc<S::Plan>, tenant: &Key) -> Result<bool, Fault> {
//!     Ok(match store.decide(plan, tenant, NonZeroU64::MIN).wait()? {
//!         Verdict::Granted(_) => true,
//!         Verdict::Denied(denial) => {
//!             println!("again in {:?} ns", denial.retry_after_ns);
//!             false
//!         }
//!     })
//! }
//!
//! let store = Arc::new(MemoryStore::new());
//! // 100 calls a second, and 2 at once.
//! let plan = Arc::new(store.plan(&[("calls", Gcra::new("100/s".parse()?, 2)?.into())])?);
//! let tenant = Key::from(&b"tenant 1"[..]);
//! assert!(admits(&store, &plan, &tenant)?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! In a task the same is `store.decide(..).await`. A future that is dropped takes nothing in the end: what comes for it
//! goes back.
//!
//! # Bound
//!
//! Whoever acts only on what a store grants, acts within the limit's own ceiling, on the store's clock at the
//! instants of its decisions. An action that comes later than its grant by up to `J` is within the ceiling
//! of a window that is longer by `J`.

mod ask;
mod fault;
mod faulty;
mod memory;
mod question;
mod reply;
mod rule;

pub use ask::{Ask, Asked};
pub use fault::{Fault, Gone};
pub use faulty::{Course, FaultyStore, Odds};
pub use memory::{DEFAULT_ROOM, MAX_GROUPS, MAX_LIMITS, MemoryImage, MemoryPlan, MemoryStore};
pub use question::{Beat, Key, LeaseId, Question};
pub use reply::{Answer, Denial, Grant, Receipt, Reply, Share, Verdict};
pub use rule::{PlanError, Rule};

pub use crate::process::{OfProcess, PerProcess};
// Stores of other crates block for their answers too.
#[doc(hidden)]
pub use crate::wait::assert_may_block;

/// What hears the answer to a question.
pub type Hear = Box<dyn FnOnce(Result<Answer, Fault>) + Send>;

/// A place that keeps the states of limits for many processes.
///
/// It has one verb, [`put`](Self::put), which never waits; [`Ask`] makes futures of it, and calls that block.
pub trait Store: Send + Sync + 'static {
    /// Limits that were checked against what this store can hold, once.
    type Plan: Send + Sync + 'static;

    /// Checks the limits of a plan, each with a label that names its states: a call passes all of them or
    /// takes nothing.
    ///
    /// # Errors
    ///
    /// [`PlanError`], which names the limit and what would be right.
    fn plan(&self, rules: &[(&str, Rule)]) -> Result<Self::Plan, PlanError>;

    /// Puts a question. `hear` is called once, on whichever thread has the answer, this one included, and no
    /// later than the store's time budget says; so nobody should hold a lock here that `hear` takes. It should
    /// not block.
    ///
    /// A question whose answer comes too late, or that nobody waits for any more, is not put again: permits that
    /// it took are given back if the store can be reached, or age out.
    fn put(&self, question: Question<Self::Plan>, hear: Hear);

    /// Into how many parts, at least 1, the store can break: what is gone in one may be there in another.
    fn parts(&self) -> usize {
        1
    }

    /// Returns a number that changes when a part is known to answer again after a silence, by other signs than the answer to a
    /// question: a limiter that had stopped asking looks again then. A store that cannot tell says 0 for ever.
    fn revivals(&self, part: usize) -> u64 {
        let _ = part;
        0
    }

    /// The part that has the states of a key, below [`parts`](Self::parts).
    fn part_of(&self, key: &Key) -> usize {
        let _ = key;
        0
    }
}
