//! Search for the first instant at which a condition holds, by doubling and halving.

/// Returns the first instant after `from_ns` at which `holds` returns `true`, or `None` if there
/// is none within 64 bits of nanoseconds.
///
/// `holds` must be false at `from_ns` and stay true once it is true. Doubling and halving take
/// some 64 calls each.
pub(crate) fn first_after<E>(
    from_ns: u128,
    holds: impl Fn(u128) -> Result<bool, E>,
) -> Result<Option<u128>, E> {
    let (mut low, mut distance) = (from_ns, 1_u128);
    let mut high = from_ns.saturating_add(1);
    while !holds(high)? {
        if distance > u64::MAX.into() {
            return Ok(None);
        }
        low = high;
        distance = distance.saturating_mul(2);
        high = low.saturating_add(distance);
    }
    // It does not hold at `low`, and does at `high`.
    while high.saturating_sub(low) > 1 {
        let middle = low.midpoint(high);
        if holds(middle)? {
            high = middle;
        } else {
            low = middle;
        }
    }
    Ok(Some(high))
}

#[cfg(test)]
mod tests {
    use super::first_after;

    #[test]
    fn finds_the_very_first() {
        for first in [1, 2, 3, 4, 5, 1_000, 1_001, u128::from(u64::MAX)] {
            assert_eq!(first_after(0, |at| Ok::<_, ()>(at >= first)), Ok(Some(first)));
        }
        assert_eq!(first_after(7, |at| Ok::<_, ()>(at >= 8)), Ok(Some(8)));
        assert_eq!(first_after(0, |_| Ok::<_, ()>(false)), Ok(None));
        assert_eq!(first_after(0, |_| Err("no")), Err("no"));
    }
}
