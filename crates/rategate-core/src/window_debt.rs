//! What charges leave to later windows of a grid: a debt that is carried is paid at its borders,
//! by N permits at each, and one that is forgotten ends with its window.
//!
//! ```text
//!   N = 5      o 12 |ooooooo|  oo   |   5  |      12 are charged in a window that has used none
//!           +-------+-------+-------+------+---> time
//!   left       -7   |  -2   |   3   |   5  |
//! ```

use core::num::NonZeroU64;

use crate::debt::Debt;

/// A window, and what is used in it: later ones pay none of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) start_ns: u64,
    /// The first instant behind the window.
    pub(crate) end_ns: u64,
    pub(crate) used: u64,
}

/// Returns the permits of a carried count that are in use `borders` later.
pub(crate) const fn after(permits: NonZeroU64, used: u64, borders: u64) -> u64 {
    used.saturating_sub(borders.saturating_mul(permits.get()))
}

/// Returns the number of borders after which at most `available` permits are in use.
pub(crate) const fn borders_until(
    permits: NonZeroU64,
    used: u64,
    is_carried: bool,
    available: u64,
) -> u64 {
    match used.saturating_sub(available) {
        0 => 0,
        more if is_carried => more.div_ceil(permits.get()),
        _ => 1,
    }
}

/// Returns the maximum number of permits that charges bring into a window of this length: a bound
/// on carried debts is a time, at the rate of the window.
pub(crate) fn max_used(permits: NonZeroU64, debt: Debt, length_ns: u64, max_counted: u64) -> u64 {
    let max_debt = if debt.is_carried() {
        let max = u128::from(debt.max_ns()).saturating_mul(permits.get().into());
        let max = max.checked_div(length_ns.into()).unwrap_or(0);
        u64::try_from(max).unwrap_or(u64::MAX)
    } else {
        u64::MAX
    };
    permits.get().saturating_add(max_debt).min(max_counted)
}
