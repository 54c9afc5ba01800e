//! Stores: state shared by several processes, and the requests that they decide.
//!
//! A store keeps the states of limits that several processes share. It decides by its own
//! clock, one request after another, so its grants keep the limit wherever requests come from.
//! [`Store`] is the interface: [`MemoryStore`] implements it in this process, `rategate-redis`
//! on Redis or Valkey.
//!
//! | task | item |
//! |---|---|
//! | to see the requests a store takes | [`StoreRequest`] |
//! | to read its reply | [`StoreReply`], [`Verdict`], [`StoreError`] |
//! | to see the limits a store can keep | [`Rule`] |
//! | to send requests from tasks, or from threads | [`StoreExt`], [`Pending::wait`] |
//! | to keep limits in this process | [`MemoryStore`] |
//! | to write a store whose thread a forked child lacks | [`PerProcess`] |
//! | to test with a slow, unreachable or lossy store | `FaultyStore` of [rategate-testkit] |
//!
//! # Smallest example
//!
//! Calling code is the same for every store, so a program may begin with one in memory:
//!
//! ```
//! use rategate::store::{StoreExt, StoreError, Key, MemoryStore, Store, Verdict};
//! use rategate::Gcra;
//! use std::num::NonZeroU64;
//! use std::sync::Arc;
//!
//! /// Returns `true` if a tenant may call now. Runs in any thread.
//! fn admits<S: Store>(
//!     store: &Arc<S>,
//!     plan: &Arc<S::Plan>,
//!     tenant: &Key,
//! ) -> Result<bool, StoreError> {
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
//! let plan = Arc::new(store.plan(&[("calls", Gcra::per_second(100).burst(2).into())])?);
//! let tenant = Key::from(&b"tenant 1"[..]);
//! assert!(admits(&store, &plan, &tenant)?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! In a task, write `store.decide(..).await`. A dropped future takes nothing in the end:
//! permits granted to it are refunded.
//!
//! # Bound
//!
//! A program that acts only on a store's grants stays within the limit's own ceiling, on the
//! store's clock at the instants of its decisions. If actions come up to `J` after their
//! grants, they are within the ceiling of a window longer by `J`.
//!
//! [rategate-testkit]: https://docs.rs/rategate-testkit

mod error;
mod memory;
mod reply;
mod request;
mod rule;
mod status;
mod store_ext;

pub use self::status::StoreStatus;
pub use error::{StoreError, Unavailable};
pub use memory::{DEFAULT_CAPACITY, InFlight, MAX_LIMITS, MemoryImage, MemoryPlan, MemoryStore};
pub use reply::{ChargeReply, CreditReply, Denial, Grant, Receipt, Reply, StoreReply, Verdict};
pub use reply::{EndOutcome, EndReply, ReserveReply, ReserveVerdict};
pub use request::{Key, LeaseId, ReservationEnd, ReservationId, StoreRequest};
pub use rule::{PlanError, Rule};
pub use store_ext::{Pending, StoreExt, Unclaimed};

#[doc(no_inline)]
// For stores of other crates, which block for their replies too.
#[doc(hidden)]
pub use crate::clock::wait::assert_may_block;
pub use crate::process::{PerProcess, ProcessBound};

/// A callback that receives the reply to a request.
pub type Callback = Box<dyn FnOnce(Result<StoreReply, StoreError>) + Send>;

/// A shared store that keeps the states of limits for many processes.
///
/// It has one operation, [`submit`](Self::submit), which never waits. [`StoreExt`] builds futures
/// and blocking calls on it.
pub trait Store: Send + Sync + 'static {
    /// A set of limits that has been checked against what this store can keep.
    type Plan: Send + Sync + 'static;

    /// Checks a set of limits, each with a label that names its states.
    ///
    /// A call passes all limits of the set or takes nothing.
    ///
    /// # Errors
    ///
    /// [`PlanError`], which names the limit and what would be accepted.
    fn plan(&self, rules: &[(&str, Rule)]) -> Result<Self::Plan, PlanError>;

    /// Submits a request, and calls `callback` once with the reply.
    ///
    /// The callback runs on whichever thread has the reply, this one included, within the store's
    /// time budget. So callers must not hold a lock here that `callback` takes, and `callback`
    /// should not block.
    ///
    /// A request whose reply comes too late, or whose caller no longer waits, is not submitted
    /// again. Permits that it took are returned if the store can be reached, or age out.
    fn submit(&self, request: StoreRequest<Self::Plan>, callback: Callback);

    /// Returns the number of parts, at least 1, into which the store can break.
    ///
    /// One part may be available while another is not.
    fn backends(&self) -> usize {
        1
    }

    /// Returns a number that changes when a part is known to be available again.
    ///
    /// It counts other signs than replies to requests; a limiter that had stopped sending requests
    /// then resumes. A store without such signs always returns 0.
    fn revivals(&self, backend: usize) -> u64 {
        let _ = backend;
        0
    }

    /// Returns the part that has the states of a key, below [`backends`](Self::backends).
    fn backend_of(&self, key: &Key) -> usize {
        let _ = key;
        0
    }
}
