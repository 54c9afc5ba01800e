//! Bisection.

/// Returns the least number from `low` to `high` for which `holds`, which it does at `high`.
pub(super) fn least(low: u128, high: u128, holds: impl Fn(u128) -> bool) -> u128 {
    let (mut low, mut high) = (low, high);
    while low < high {
        let middle = low.midpoint(high);
        if holds(middle) {
            high = middle;
        } else {
            low = middle.saturating_add(1);
        }
    }
    low
}
