//! The oracles: the record of grants that every ceiling is checked against, too simple to be wrong,
//! and the exact decisions of several limits.

mod limits;

pub use limits::{Granted, Held, Oracle, Refused};

/// Grants as `(start, permits)`, in any order: the record that every ceiling is checked against.
///
/// It suffices to check windows that begin with a grant: moving any other window forward to its
/// first grant loses nothing.
///
/// ```
/// use rategate_testkit::oracle::Grants;
///
/// let grants = Grants(vec![(800, 1), (900, 1), (1_100, 1), (1_200, 1)]);
/// assert_eq!(grants.fullest_window(1_000), (4, 800));
/// assert_eq!(grants.fullest_window(100), (1, 800), "900 is not in [800, 900)");
/// assert_eq!(grants.windows_over(1_000, 2), 2);
/// assert_eq!(grants.windows_over(100, 1), 0);
/// // A bucket of 4 that earns 1 in 500: at most 4 + w / 500 in a window of length w.
/// grants.assert_ceiling("the bucket", |window_ns| 4 + window_ns / 500);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grants(pub Vec<(u64, u64)>);

impl Grants {
    /// Records a grant.
    pub fn add(&mut self, start_ns: u64, permits: u64) {
        self.0.push((start_ns, permits));
    }

    /// Returns the sum of all permits.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().fold(0, |sum, &(_, permits)| sum.saturating_add(permits))
    }

    /// Returns the maximum of permits that start within any half-open window of `window_ns`, and
    /// the first instant from which such a window runs.
    #[must_use]
    pub fn fullest_window(&self, window_ns: u64) -> (u64, u64) {
        self.windows(window_ns).into_iter().fold((0, 0), |max, (from_ns, inside)| {
            if inside > max.0 { (inside, from_ns) } else { max }
        })
    }

    /// Returns the number of windows of `window_ns` that begin with a grant and hold more than
    /// `max` permits.
    #[must_use]
    pub fn windows_over(&self, window_ns: u64, max: u64) -> usize {
        self.windows(window_ns).iter().filter(|(_, inside)| *inside > max).count()
    }

    /// Compares each span from one grant to another, and so each window, with its ceiling.
    ///
    /// The shortest half-open window around a span is one nanosecond longer than it.
    ///
    /// # Panics
    ///
    /// Panics with `what` and the span if a span has more permits than `ceiling` of its window.
    pub fn assert_ceiling(&self, what: &str, ceiling: impl Fn(u128) -> u128) {
        let sorted = self.sorted();
        for (first, &(from_ns, _)) in sorted.iter().enumerate() {
            let mut sum = 0_u128;
            for &(to_ns, permits) in sorted.iter().skip(first) {
                sum = sum.saturating_add(permits.into());
                let max = ceiling(u128::from(to_ns.saturating_sub(from_ns)).saturating_add(1));
                assert!(sum <= max, "{what}: {sum} > {max} permits in {from_ns}..={to_ns}");
            }
        }
    }

    fn sorted(&self) -> Vec<(u64, u64)> {
        let mut sorted = self.0.clone();
        sorted.sort_unstable_by_key(|&(start_ns, _)| start_ns);
        sorted
    }

    /// Returns the window that begins with each grant, in order, as its start and its permits.
    fn windows(&self, window_ns: u64) -> Vec<(u64, u64)> {
        let sorted = self.sorted();
        let (mut inside, mut ahead) = (0_u64, sorted.iter().peekable());
        let window = |&(from_ns, permits): &(u64, u64)| {
            while let Some((_, entering)) =
                ahead.next_if(|&&(start_ns, _)| start_ns.saturating_sub(from_ns) < window_ns)
            {
                inside = inside.saturating_add(*entering);
            }
            let permits_inside = inside;
            inside = inside.saturating_sub(permits);
            (from_ns, permits_inside)
        };
        sorted.iter().map(window).collect()
    }
}
