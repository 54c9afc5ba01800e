//! Windows that count every hit ([`CountedWindow`]), decided by the count of a table or a store.

use std::num::NonZeroU64;

use rategate::error::KeyedError;
use rategate::{Clock, FixedWindow, Keyed};

use super::answer::{ItemResult, Verdict};
use super::request::Verb;
use crate::rule::{CountedWindow, DisplayLimit};
use crate::units::retry_ns;

/// A caller's own limit for a descriptor, with the counter that it uses.
#[derive(Clone, Copy, Debug)]
pub(super) struct OwnLimit {
    pub(super) window: CountedWindow,
    pub(super) counter: FixedWindow,
    pub(super) display_limit: DisplayLimit,
}

/// A verdict, and the number of permits used of the window after it.
pub(super) type Counted = (Verdict, u64);

/// Counts under a key of a table whose policy is `counter`.
pub(super) fn decide<C: Clock + Clone>(
    table: &Keyed<[u8], C>,
    (window, counter): (CountedWindow, &FixedWindow),
    key: &[u8],
    (verb, permits): (Verb, u64),
    now_ns: u64,
) -> Result<Counted, KeyedError> {
    let used = |remaining: u64| counter.permits().saturating_sub(remaining);
    Ok(match verb {
        Verb::Take if permits > 0 => {
            let charged = CountedWindow::counted_of(permits, counter);
            let used = used(table.try_acquire_with_status(key, charged)?.1.remaining);
            (verdict(window, used, permits, now_ns), used)
        }
        Verb::Take | Verb::Peek => {
            let used = used(table.status(key)?.remaining);
            let mut verdict = verdict(window, used.saturating_add(permits), permits, now_ns);
            if let Verdict::Denied { retry_after_ns: Some(until_ns), .. } = &mut verdict {
                // The end of a hold may come before that of the window.
                let with_spared = permits.saturating_add(window.spared(counter));
                if let Some(wait_ns) = table.peek(key, with_spared)?.and_then(retry_ns) {
                    *until_ns = wait_ns.min(*until_ns);
                }
            }
            (verdict, used)
        }
        Verb::Charge => {
            let charged = CountedWindow::counted_of(permits, counter);
            let used = used(table.try_acquire_with_status(key, charged)?.1.remaining);
            (Verdict::Charged(permits), used)
        }
        Verb::Refund => {
            let credited = table.credit(key, permits)?;
            (Verdict::Refunded(credited), used(table.status(key)?.remaining))
        }
        Verb::Reset => {
            table.reset(key)?;
            (Verdict::Reset, 0)
        }
    })
}

/// Returns the verdict on a take of `permits` after which the count is `count`.
pub(super) fn verdict(window: CountedWindow, count: u64, permits: u64, now_ns: u64) -> Verdict {
    if count <= window.permits() {
        return Verdict::Granted;
    }
    let fits_ever = permits <= window.permits();
    let wait_ns = NonZeroU64::new(window.left_ns(now_ns)).filter(|_| fits_ever);
    Verdict::Denied { retry_after_ns: wait_ns, enforced: true }
}

/// Returns an item's part of an answer, without a rule.
pub(super) fn result(
    window: CountedWindow,
    display_limit: DisplayLimit,
    (verdict, used): Counted,
    now_ns: u64,
) -> ItemResult {
    ItemResult {
        rule: None,
        display_limit: Some(display_limit),
        verdict,
        limit: window.permits(),
        remaining: Some(window.permits().saturating_sub(used)),
        debt: window.debt(used),
        reset_after_ns: window.left_ns(now_ns),
        store_ns: None,
        detail: None,
    }
}
