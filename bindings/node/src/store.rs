//! Limits that several processes keep together in a store, and the calls that wait for it.

use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use napi::bindgen_prelude::{BigInt, Either, Env, Function, Object, Unknown};
use napi_derive::napi;
use rategate::distributed::DecidedBy;
use rategate_ffi::{
    Code, DEFAULT_SHARED_BUDGET, Leases, Mode, OnUnavailable, Replies, Reply, SharedConfig,
    SharedDecision, SharedError, SharedGrant as Granted,
};

use crate::failure::{Failure, Result, code_of, invalid, of_node};
use crate::hub::notifier;
use crate::number::{double, duration, ns, permits, whole};
use crate::policies::{self, Table};
use crate::raw;

pub(crate) type Ended = std::result::Result<SharedDecision, SharedError>;

/// The party of a failure, which no one has decided.
const NO_PARTY: u8 = 3;
/// The word for a number of remaining permits that is not known.
const UNKNOWN: u64 = u64::MAX;

/// The options of a shared limit. Lengths of time are in nanoseconds.
#[napi(object, object_to_js = false)]
#[derive(Debug)]
pub struct SharedOptions {
    pub is_leased: bool,
    pub when_gone: String,
    pub processes: Option<f64>,
    pub name: Option<String>,
    pub prefix: Option<String>,
    pub budget: Option<BigInt>,
    pub lease: Option<BigInt>,
    pub lease_permits: Option<f64>,
    pub guard: bool,
    pub quarantine: bool,
}

/// A limit that several processes keep.
#[napi]
#[derive(Debug)]
pub struct Shared(rategate_ffi::Shared);

/// Permits that can be refunded.
#[napi]
#[derive(Debug)]
pub struct SharedGrant(Granted);

/// A decision, or the failure in its place.
#[napi(object, object_from_js = false)]
#[derive(Debug)]
pub struct Decided {
    pub granted: bool,
    pub remaining: Option<f64>,
    pub retry_after_ns: Option<BigInt>,
    pub by: u8,
    /// Of a grant that the caller may refund.
    pub grant: Option<SharedGrant>,
    pub failure: Option<Failure>,
}

/// The number of calls that one party decided.
#[napi(object, object_from_js = false)]
#[derive(Debug)]
pub struct Calls {
    pub granted: f64,
    pub denied: f64,
}

/// The number of calls of this process, by who decided them.
#[napi(object, object_from_js = false)]
#[derive(Debug)]
pub struct Counts {
    pub store: Calls,
    pub lease: Calls,
    pub fallback: Calls,
}

#[napi]
impl Shared {
    #[napi(constructor, catch_unwind)]
    pub fn new(
        url: String,
        limits: Vec<Either<String, Table>>,
        options: SharedOptions,
    ) -> Result<Self> {
        let policies = policies::read(limits)?;
        let budget = options.budget.as_ref().map(duration).transpose()?;
        let mut leases = Leases { guard: options.guard, ..Leases::default() };
        if let Some(ttl) = options.lease.as_ref().map(duration).transpose()? {
            leases.ttl = ttl;
        }
        if let Some(number) = options.lease_permits {
            leases.max_permits = permits(number)?;
        }
        let when_gone = match options.when_gone.as_str() {
            "deny" => OnUnavailable::Deny,
            "allow" => OnUnavailable::Admit,
            _ => OnUnavailable::Local { nodes: nodes(options.processes)? },
        };
        let config = SharedConfig {
            url,
            prefix: options.prefix,
            name: options.name,
            mode: if options.is_leased { Mode::Leased(leases) } else { Mode::Exact },
            when_gone,
            has_quarantine: options.quarantine,
            budget: budget.unwrap_or(DEFAULT_SHARED_BUDGET),
        };
        rategate_ffi::Shared::new(&policies, &config).map(Self).map_err(|error| failed(&error))
    }

    #[napi(catch_unwind)]
    pub fn refund(&self, key: String, number: f64, grant: &SharedGrant) -> Result<()> {
        let refunded = self.0.refund(key.as_bytes(), permits(number)?, grant.0.clone());
        refunded.map_err(|error| failed(&error))
    }

    /// Resolves once the store has replied. A failure is a value here, so that its code stays.
    ///
    /// It waits in a thread of its own: Node's pool has four, which files and names need too.
    #[napi(catch_unwind)]
    pub fn ready<'env>(&self, env: &'env Env, timeout: BigInt) -> Result<Object<'env>> {
        let (shared, timeout) = (self.0.clone(), duration(&timeout)?);
        let (end, promise) = env.create_deferred().map_err(|error| of_node(&error))?;
        let waits = move || {
            let failed = shared.ready(timeout).err().map(|error| failure(&error));
            end.resolve(move |_| Ok(failed));
        };
        let thread = thread::Builder::new().name("rategate-ready".to_owned());
        thread.spawn(waits).map_err(|error| {
            napi::Error::new(code_of(Code::Failed), format!("the system has no thread: {error}"))
        })?;
        Ok(promise)
    }

    #[napi(catch_unwind)]
    pub fn counts_with(&self, other: &Shared) -> bool {
        self.0.counts_with(&other.0)
    }

    #[napi(catch_unwind)]
    pub fn waiting(&self, key: String) -> u32 {
        u32::try_from(self.0.waiting(key.as_bytes())).unwrap_or(u32::MAX)
    }

    #[napi(catch_unwind)]
    pub fn status(&self) -> String {
        self.0.health().store_status.to_string()
    }

    #[napi(catch_unwind)]
    pub fn last_failure(&self) -> Option<String> {
        self.0.health().last_unavailable.map(|failure| failure.to_string())
    }

    #[napi(catch_unwind)]
    pub fn counts(&self) -> Counts {
        let counts = self.0.counts();
        let calls = |calls: rategate::distributed::Calls| Calls {
            granted: double(calls.granted),
            denied: double(calls.denied),
        };
        Counts {
            store: calls(counts.store),
            lease: calls(counts.lease),
            fallback: calls(counts.fallback),
        }
    }
}

/// The calls of one environment that wait for stores. Node drops it with the environment.
#[napi]
#[derive(Debug)]
pub struct StoreCalls {
    replies: Arc<Replies<(Ended, bool)>>,
    last: Last,
}

/// The last decision that is no plain grant.
#[derive(Clone, Debug, Default)]
pub(crate) struct Last(Arc<Mutex<Option<Decided>>>);

#[napi]
impl StoreCalls {
    /// Creates a list of calls, which calls `notify` in its environment when replies have come.
    ///
    /// It does not keep the process alive: JavaScript does, while calls are to.
    #[napi(constructor, catch_unwind)]
    pub fn new(notify: Function<(), ()>) -> Result<Self> {
        let replies = Arc::new(Replies::new(notifier(notify)?));
        Ok(Self { replies, last: Last::default() })
    }

    /// Returns the function `() => id` that ends the next call whose reply has come, in order. It
    /// writes what remains and the party of a plain grant to `words`. 0 is none, and below 0 is
    /// the call of any other decision: see [`last`](Self::last).
    #[napi(catch_unwind)]
    pub fn fast_next<'env>(&self, env: &'env Env, words: Unknown) -> Result<Unknown<'env>> {
        let (replies, last) = (Arc::clone(&self.replies), self.last.clone());
        raw::next_reply_function(env, replies, last, words).map_err(|error| of_node(&error))
    }

    /// Takes permits or denies them, as [`acquire`](Self::acquire) returns it.
    #[napi(catch_unwind)]
    pub fn check(
        &self,
        shared: &Shared,
        key: String,
        number: f64,
        is_refundable: bool,
    ) -> Result<f64> {
        let reply = shared.0.decide(key.as_bytes(), permits(number)?);
        Ok(self.begin(reply, is_refundable))
    }

    #[napi(catch_unwind)]
    pub fn peek(&self, shared: &Shared, key: String) -> f64 {
        let reply = shared.0.peek(key.as_bytes(), 1);
        self.begin(reply, false)
    }

    /// Takes permits as soon as they may start. Returns the id of the call; or minus what remains,
    /// less one, of a grant of permits that were borrowed; or 0 for what [`last`](Self::last)
    /// returns.
    #[napi(catch_unwind)]
    pub fn acquire(
        &self,
        shared: &Shared,
        key: String,
        number: f64,
        timeout: Option<BigInt>,
        is_refundable: bool,
    ) -> Result<f64> {
        let timeout = timeout.as_ref().map(duration).transpose()?;
        let reply = shared.0.acquire(key.as_bytes(), permits(number)?, timeout);
        Ok(self.begin(reply, is_refundable))
    }

    /// Returns the decision of the call that was begun last, if it was there at once, or that
    /// ended last.
    #[napi(catch_unwind)]
    pub fn last(&self) -> Option<Decided> {
        self.last.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Gives up a call. What it is granted later goes back.
    #[napi(catch_unwind)]
    pub fn cancel(&self, id: f64) -> bool {
        whole(id).is_some_and(|id| self.replies.cancel(id))
    }
}

impl StoreCalls {
    fn begin(&self, reply: Reply, is_refundable: bool) -> f64 {
        let ended = match reply {
            Reply::Now(ended) => ended,
            Reply::Later(later) => {
                let later = Box::pin(async move { (later.await, is_refundable) });
                match self.replies.begin(later) {
                    Some(Ok((ended, _))) => ended,
                    Some(Err(id)) => return double(id),
                    // Node does not fork.
                    None => Err(SharedError::TimeCannotHelp),
                }
            }
        };
        match ended {
            Ok(SharedDecision::Granted(Granted {
                by: DecidedBy::Lease,
                remaining: Some(remaining),
                ..
            })) if !is_refundable => -1.0 - double(remaining),
            ended => {
                self.last.set(ended, is_refundable);
                0.0
            }
        }
    }
}

impl Last {
    /// Keeps how a call has ended. Returns what remains and the party of a plain grant instead.
    pub(crate) fn unless_plain(&self, ended: Ended, is_refundable: bool) -> Option<[u64; 2]> {
        match ended {
            Ok(SharedDecision::Granted(grant)) if !is_refundable => {
                Some([grant.remaining.unwrap_or(UNKNOWN), party(grant.by).into()])
            }
            ended => {
                self.set(ended, is_refundable);
                None
            }
        }
    }

    fn set(&self, ended: Ended, is_refundable: bool) {
        let decided = decided(ended, is_refundable);
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(decided);
    }
}

fn decided(ended: Ended, is_refundable: bool) -> Decided {
    let mut decided = Decided {
        granted: false,
        remaining: None,
        retry_after_ns: None,
        by: NO_PARTY,
        grant: None,
        failure: None,
    };
    match ended {
        Ok(decision) => {
            decided.by = party(decision.by());
            decided.remaining = decision.remaining().map(double);
            match decision {
                SharedDecision::Granted(grant) => {
                    decided.granted = true;
                    decided.grant = is_refundable.then_some(SharedGrant(grant));
                }
                SharedDecision::Denied(denial) => {
                    decided.retry_after_ns = denial.retry_after.map(ns);
                }
            }
        }
        Err(error) => decided.failure = Some(failure(&error)),
    }
    decided
}

/// The places of the names in JavaScript.
const fn party(by: DecidedBy) -> u8 {
    match by {
        DecidedBy::Store => 0,
        DecidedBy::Lease => 1,
        DecidedBy::Fallback => 2,
        _ => NO_PARTY,
    }
}

fn nodes(processes: Option<f64>) -> Result<NonZeroU32> {
    let number = processes.and_then(whole).and_then(|number| u32::try_from(number).ok());
    number.and_then(NonZeroU32::new).ok_or_else(|| {
        invalid(
            "whenGone \"local\" needs processes, the most that share the limit: a whole number \
             from 1 to 4294967295, as each keeps that part of it",
        )
    })
}

fn failure(error: &SharedError) -> Failure {
    let retry_ns = |retry_after: &Option<Duration>| {
        retry_after.map_or(String::new(), |wait| wait.as_nanos().to_string())
    };
    let more = match error {
        SharedError::TooLong { retry_after } => format!("::{}", retry_ns(retry_after)),
        SharedError::Unavailable { retry_after, .. } => format!(":{}", retry_ns(retry_after)),
        SharedError::Exceeds(_) => ":capacity".to_owned(),
        _ => String::new(),
    };
    Failure { code: format!("{}{more}", code_of(error.code())), message: error.to_string() }
}

fn failed(error: &SharedError) -> napi::Error<String> {
    failure(error).thrown()
}
