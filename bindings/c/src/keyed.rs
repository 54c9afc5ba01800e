//! Limits for each of many keys.

#![allow(unsafe_code, reason = "names are exported")]

use std::time::Duration;

use rategate::error::{LimitError, ReconfigureError};
use rategate::keyed::MAX_KEYS;
use rategate::{AnyPolicy, Grant};
use rategate_ffi::{Capacity, KeyRef, Keyed as Inner, Overflow};

use crate::clock::Clock;
use crate::decision::{Charge, Decision, Settlement, Status};
use crate::failure::{Failure, RATEGATE_DENIED, RATEGATE_GRANTED};
use crate::limiter::{Limiter, decide, fill};
use crate::raw::{Filled, Out, Start, Text, put};
use crate::returns::{debt, ended, returned};
use crate::status::run;
use crate::{ns, policies, timeout};

/// A table with a limit for each key, in bounded memory. A key is any bytes, and none at all.
///
/// A key whose limit is as if it were new is evicted when another needs its slot. No key evicts
/// one in use.
///
/// Any thread may use it at any time; `rategate_keyed_free` must be the last call with it.
#[derive(Debug)]
pub struct Keyed(Inner);

/// New keys in a full table share one limit.
pub const RATEGATE_SHARE: i32 = 0;
/// New keys in a full table are refused with `RATEGATE_FULL`.
pub const RATEGATE_REFUSE: i32 = 1;
/// New keys in a full table pass without a limit.
pub const RATEGATE_ADMIT: i32 = 2;

/// Runs a call with a table.
#[inline]
fn with(keyed: Option<&Keyed>, call: impl FnOnce(&Inner) -> Result<i32, Failure>) -> i32 {
    run(|| call(&keyed.ok_or(Failure::Null("keyed"))?.0))
}

/// Returns the key. Null is a start of none.
fn bytes(start: &Start, len: usize) -> Result<KeyRef<'_>, Failure> {
    start.read("key", len).map(KeyRef::Bytes)
}

/// Reads a single policy.
fn one(text: &Text) -> Result<AnyPolicy, Failure> {
    match policies::read(text)?.policies() {
        [policy] => Ok(*policy),
        several => Err(Failure::SeveralForAKey(several.len())),
    }
}

/// Creates a table of `max_keys` keys, each with a limit of the policy.
///
/// `policy` is a text or a table as for `rategate_limiter_new`, of one policy. `max_keys` is from
/// 1 to 2^30; memory for as many is set aside at once. `when_full` is `RATEGATE_SHARE`,
/// `RATEGATE_REFUSE` or `RATEGATE_ADMIT`. `clock` is null for real time.
#[unsafe(no_mangle)]
pub extern "C" fn rategate_keyed_new(
    policy: Text,
    max_keys: usize,
    when_full: i32,
    clock: Option<&Clock>,
    keyed: Out<'_, Box<Keyed>>,
) -> i32 {
    run(|| {
        let keyed = keyed.ok_or(Failure::Null("keyed"))?;
        let policy = one(&policy)?;
        if !(1..=MAX_KEYS).contains(&max_keys) {
            return Err(Failure::Range("max_keys", max_keys, MAX_KEYS));
        }
        let overflow = match when_full {
            RATEGATE_SHARE => Overflow::Share,
            RATEGATE_REFUSE => Overflow::Refuse,
            RATEGATE_ADMIT => Overflow::Admit,
            _ => return Err(Failure::WhenFull(when_full)),
        };
        let capacity = Capacity::for_keys(max_keys).or_else(overflow);
        let table = Inner::new(policy, capacity, Clock::choose(clock));
        keyed.write(Box::new(Keyed(table)));
        Ok(RATEGATE_GRANTED)
    })
}

/// Frees a table. Null is accepted. Limiters of its keys stay.
///
/// No other call may use the handle then.
#[unsafe(no_mangle)]
pub extern "C" fn rategate_keyed_free(keyed: Option<Box<Keyed>>) {
    let _ = run(|| {
        drop(keyed);
        Ok(RATEGATE_GRANTED)
    });
}

/// Takes `permits` for a key at once, or not at all: returns `RATEGATE_GRANTED` or
/// `RATEGATE_DENIED`.
#[unsafe(no_mangle)]
pub extern "C" fn rategate_keyed_try_acquire(
    keyed: Option<&Keyed>,
    key: Start,
    key_len: usize,
    permits: u64,
) -> i32 {
    with(keyed, |keyed| {
        let decision = keyed.try_acquire(bytes(&key, key_len)?, permits)?;
        Ok(i32::from(decision.is_granted()))
    })
}

/// Takes `permits` for a key at once, or not at all, and writes the decision.
#[unsafe(no_mangle)]
pub extern "C" fn rategate_keyed_check(
    keyed: Option<&Keyed>,
    key: Start,
    key_len: usize,
    permits: u64,
    decision: Filled<Decision>,
) -> i32 {
    with(keyed, |keyed| {
        let key = bytes(&key, key_len)?;
        decide(&decision, || Ok(Decision::of(&keyed.try_acquire(key, permits)?, keyed.id_of(key))))
    })
}

/// Writes how long `permits` for a key would have to wait now: see `rategate_limiter_peek`.
#[unsafe(no_mangle)]
pub extern "C" fn rategate_keyed_peek(
    keyed: Option<&Keyed>,
    key: Start,
    key_len: usize,
    permits: u64,
    wait_ns: Out<'_, u64>,
) -> i32 {
    with(keyed, |keyed| {
        let wait = keyed.peek(bytes(&key, key_len)?, permits)?;
        put(wait_ns, ns(wait));
        Ok(if wait == Some(Duration::ZERO) { RATEGATE_GRANTED } else { RATEGATE_DENIED })
    })
}

/// Takes `permits` for a key, and blocks the thread until they may start: see
/// `rategate_limiter_acquire`.
#[unsafe(no_mangle)]
pub extern "C" fn rategate_keyed_acquire(
    keyed: Option<&Keyed>,
    key: Start,
    key_len: usize,
    permits: u64,
    timeout_ns: u64,
    decision: Filled<Decision>,
) -> i32 {
    with(keyed, |keyed| {
        let key = bytes(&key, key_len)?;
        let acquire = || {
            let grant = keyed.acquire(key, permits, timeout(timeout_ns))?;
            Ok(Decision::granted(&grant, keyed.id_of(key)))
        };
        decide(&decision, acquire)
    })
}

/// Creates a handle of the limiter of a key, for all other verbs and for waits in hubs.
///
/// Handles of one key take from one limit. The table keeps the key while there is a handle. The
/// order of a hub's waits is kept among those by one handle and its clones.
#[unsafe(no_mangle)]
pub extern "C" fn rategate_keyed_limiter(
    keyed: Option<&Keyed>,
    key: Start,
    key_len: usize,
    limiter: Out<'_, Box<Limiter>>,
) -> i32 {
    with(keyed, |keyed| {
        let limiter = limiter.ok_or(Failure::Null("limiter"))?;
        limiter.write(Box::new(Limiter(keyed.limiter(bytes(&key, key_len)?)?)));
        Ok(RATEGATE_GRANTED)
    })
}

/// Brings `permits` of a grant to a key back: see `rategate_limiter_refund`.
#[unsafe(no_mangle)]
pub extern "C" fn rategate_keyed_refund(
    keyed: Option<&Keyed>,
    key: Start,
    key_len: usize,
    grant: Filled<Decision>,
    permits: u64,
    refunded: Out<'_, u64>,
) -> i32 {
    with(keyed, |keyed| {
        let key = bytes(&key, key_len)?;
        put(
            refunded,
            returned(&grant, keyed.id_of(key), permits, |grant| {
                Ok(keyed.refund(key, grant, permits)?)
            })?,
        );
        Ok(RATEGATE_GRANTED)
    })
}

/// Corrects a grant to a key: see `rategate_limiter_settle`.
#[unsafe(no_mangle)]
pub extern "C" fn rategate_keyed_settle(
    keyed: Option<&Keyed>,
    key: Start,
    key_len: usize,
    grant: Filled<Decision>,
    used: u64,
    settlement: Filled<Settlement>,
) -> i32 {
    with(keyed, |keyed| {
        let key = bytes(&key, key_len)?;
        let settle = |grant: &Grant| Ok(keyed.settle(key, grant, used)?.into());
        fill(&settlement, || ended(&grant, keyed.id_of(key), settle))
    })
}

/// Charges `permits` that a key has used already: see `rategate_limiter_charge`.
#[unsafe(no_mangle)]
pub extern "C" fn rategate_keyed_charge(
    keyed: Option<&Keyed>,
    key: Start,
    key_len: usize,
    permits: u64,
    charge: Filled<Charge>,
) -> i32 {
    with(keyed, |keyed| {
        let key = bytes(&key, key_len)?;
        fill(&charge, || Ok(keyed.charge(key, permits)?.into()))
    })
}

/// Sets how debts of charges to keys end: see `rategate_limiter_set_debt`.
#[unsafe(no_mangle)]
pub extern "C" fn rategate_keyed_set_debt(
    keyed: Option<&Keyed>,
    is_carried: i32,
    max_ns: u64,
) -> i32 {
    with(keyed, |keyed| {
        keyed.set_debt(debt(is_carried, max_ns));
        Ok(RATEGATE_GRANTED)
    })
}

/// Ends operations of a key in flight. Returns 0 if the policy does not count them, else 1.
#[unsafe(no_mangle)]
pub extern "C" fn rategate_keyed_release(
    keyed: Option<&Keyed>,
    key: Start,
    key_len: usize,
    permits: u64,
) -> i32 {
    with(keyed, |keyed| Ok(i32::from(keyed.release(bytes(&key, key_len)?, permits)?)))
}

/// Forgets all grants to a key. Returns 0 if that changes nothing, else 1.
#[unsafe(no_mangle)]
pub extern "C" fn rategate_keyed_reset(keyed: Option<&Keyed>, key: Start, key_len: usize) -> i32 {
    with(keyed, |keyed| Ok(i32::from(keyed.reset(bytes(&key, key_len)?)?)))
}

/// Writes the numbers of a key's limit now.
#[unsafe(no_mangle)]
pub extern "C" fn rategate_keyed_status(
    keyed: Option<&Keyed>,
    key: Start,
    key_len: usize,
    status: Filled<Status>,
) -> i32 {
    with(keyed, |keyed| {
        let key = bytes(&key, key_len)?;
        fill(&status, || Ok(keyed.status(key)?.into()))
    })
}

/// Puts other numbers of the policy into force, for all keys.
#[unsafe(no_mangle)]
pub extern "C" fn rategate_keyed_reconfigure(keyed: Option<&Keyed>, policy: Text) -> i32 {
    with(keyed, |keyed| {
        let other = ReconfigureError::Limit(LimitError::OtherPolicy);
        keyed.reconfigure(one(&policy)?).ok_or(other)??;
        Ok(RATEGATE_GRANTED)
    })
}

/// Returns the number of keys in the table, those included that are as if they were new; 0 for a
/// null pointer.
#[unsafe(no_mangle)]
pub extern "C" fn rategate_keyed_len(keyed: Option<&Keyed>) -> usize {
    keyed.map_or(0, |keyed| keyed.0.len())
}

/// Returns the number of calls that found the table full; 0 for a null pointer.
#[unsafe(no_mangle)]
pub extern "C" fn rategate_keyed_overflows(keyed: Option<&Keyed>) -> u64 {
    keyed.map_or(0, |keyed| keyed.0.overflows())
}
