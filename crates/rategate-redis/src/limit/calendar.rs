//! Calendar quotas in a store, which knows no zones.
//!
//! A call has the borders around the caller's time: those of the window that it takes for the
//! current one, of the one before and of the one after. The store picks the window by its own
//! clock. If none of them is around that, it refuses the whole call with nothing changed, and says
//! its time: [`ServerRefusal::OtherTime`](crate::refusal::ServerRefusal::OtherTime). The call is
//! sent again with the borders around that.
//!
//! # Contract
//!
//! * **One clock.** Nothing is decided by the caller's. It may be wrong by any time.
//! * **Borders** in whole microseconds, rounded up: at an instant of whole microseconds a rounded
//!   border has passed exactly if the border has.
//! * **A window ends where its first call said.** The count lies in the state with its window. So a
//!   reload keeps it, and callers whose rules of the zone differ share it until it ends.
//! * **Another calendar** under the same name moves the count into its own window around now.
//! * **A carried debt** pays the limit at each border. The state has its window's number, so the
//!   borders in between are counted, not sent.

use std::cell::Cell;

use rategate_core::calendar::{Calendar, Window};

use super::MAX_INSTANT_US;

/// The last border. A reply doubles it.
const LAST_BORDER_US: u64 = MAX_INSTANT_US - 1;

/// The number of calendars whose borders a thread remembers.
const LATEST: usize = 8;

/// A calendar with its borders, if there is one.
type Latest = Cell<Option<(Calendar, [u64; 5])>>;

thread_local! {
    static BORDERS: [Latest; LATEST] =
        const { [const { Cell::new(None) }; LATEST] };
}

/// Returns the borders of three windows, of which the second is around an instant, and the number
/// of that one. A thread remembers the latest: calls are alike.
pub(crate) fn borders(quota: &Calendar, around_us: u64) -> [u64; 5] {
    BORDERS.with(|latest| {
        let at = usize::try_from(quota.digest()).unwrap_or(0) % LATEST;
        let latest = latest.get(at);
        if let Some((known, borders)) = latest.and_then(Cell::get)
            && known == *quota
            && (borders[1]..borders[2]).contains(&around_us)
        {
            return borders;
        }
        let borders = find_borders(quota, around_us);
        if let Some(latest) = latest {
            latest.set(Some((*quota, borders)));
        }
        borders
    })
}

fn find_borders(quota: &Calendar, around_us: u64) -> [u64; 5] {
    let current = around(quota, around_us);
    let before_ns = current.start_ns.checked_sub(1).map_or(0, |at_ns| quota.window(at_ns).start_ns);
    let after_ns = quota.window(current.end_ns).end_ns;
    let [b0, b1, b2, b3] = [before_ns, current.start_ns, current.end_ns, after_ns].map(border_us);
    [b0, b1, b2, b3, current.number]
}

/// Returns the lengths of three windows, of which the second is around an instant, in microseconds.
pub(crate) fn lengths_us(quota: &Calendar, around_us: u64) -> [u64; 3] {
    let current = around(quota, around_us);
    let before = current.start_ns.checked_sub(1).map_or(current, |at_ns| quota.window(at_ns));
    [before, current, quota.window(current.end_ns)]
        .map(|window| (window.length_ns() / 1_000).max(1))
}

/// Returns the end of the window that a reply is about.
pub(crate) const fn end_us([_, _, end_and_mark]: [u64; 3]) -> u64 {
    end_and_mark / 2
}

/// Returns the border at which a denied call passes, if that is not the end of the window.
///
/// The store knows no later ones, and replies how many of them it takes.
pub(crate) fn passes_us(quota: &Calendar, [borders, _, end_and_mark]: [u64; 3]) -> Option<u64> {
    if end_and_mark % 2 == 0 {
        return None;
    }
    let end_ns = (end_and_mark / 2).saturating_mul(1_000);
    let border_ns = quota.later_border(end_ns, borders.saturating_sub(1));
    Some(border_ns.map_or(LAST_BORDER_US, border_us))
}

fn around(quota: &Calendar, around_us: u64) -> Window {
    quota.window(around_us.saturating_mul(1_000))
}

fn border_us(border_ns: u64) -> u64 {
    border_ns.div_ceil(1_000).min(LAST_BORDER_US)
}
