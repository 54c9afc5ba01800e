//! The window-count oracle, too simple to be wrong, which judges every limiter.

/// Returns the most permits that start within any half-open window of `window_ns`, and the first
/// instant from which such a window runs. `grants` are `(start, permits)`, in any order.
///
/// It suffices to check windows that begin with a grant: moving any other window forward to its
/// first grant loses nothing.
///
/// ```
/// use rategate_sim::oracle::fullest_window;
///
/// let grants = [(800, 1), (900, 1), (1_100, 1), (1_200, 1)];
/// assert_eq!(fullest_window(&grants, 1_000), (4, 800));
/// assert_eq!(fullest_window(&grants, 100), (1, 800), "900 is not in [800, 900)");
/// ```
#[must_use]
pub fn fullest_window(grants: &[(u64, u64)], window_ns: u64) -> (u64, u64) {
    let mut sorted = grants.to_vec();
    sorted.sort_unstable_by_key(|&(start_ns, _)| start_ns);
    let (mut max, mut max_from_ns) = (0, 0);
    let (mut inside, mut ahead) = (0_u64, sorted.iter().peekable());
    for &(from_ns, permits) in &sorted {
        while let Some((_, entering)) =
            ahead.next_if(|&&(start_ns, _)| start_ns.saturating_sub(from_ns) < window_ns)
        {
            inside = inside.saturating_add(*entering);
        }
        if inside > max {
            (max, max_from_ns) = (inside, from_ns);
        }
        inside = inside.saturating_sub(permits);
    }
    (max, max_from_ns)
}

/// Returns the number of windows of `window_ns` that begin with a grant and hold more than `max`
/// permits. `grants` are `(start, permits)`, in any order.
///
/// ```
/// use rategate_sim::oracle::windows_over;
///
/// let grants = [(800, 1), (900, 1), (1_100, 1), (1_200, 1)];
/// assert_eq!(windows_over(&grants, 1_000, 2), 2);
/// assert_eq!(windows_over(&grants, 100, 1), 0, "900 is not in [800, 900)");
/// ```
#[must_use]
pub fn windows_over(grants: &[(u64, u64)], window_ns: u64, max: u64) -> usize {
    let mut sorted = grants.to_vec();
    sorted.sort_unstable_by_key(|&(start_ns, _)| start_ns);
    let (mut inside, mut ahead) = (0_u64, sorted.iter().peekable());
    let is_over = |&(from_ns, permits): &(u64, u64)| {
        while let Some((_, entering)) =
            ahead.next_if(|&&(start_ns, _)| start_ns.saturating_sub(from_ns) < window_ns)
        {
            inside = inside.saturating_add(*entering);
        }
        let is_over = inside > max;
        inside = inside.saturating_sub(permits);
        is_over
    };
    sorted.iter().map(is_over).filter(|&is_over| is_over).count()
}
