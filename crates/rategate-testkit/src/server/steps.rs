//! Numbers that change at some instants.

/// A value from each of some instants on, the first of which is 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Steps<T> {
    first: T,
    later: Vec<(u64, T)>,
}

impl<T: Copy> Steps<T> {
    /// Creates a value that never changes.
    pub const fn constant(value: T) -> Self {
        Self { first: value, later: Vec::new() }
    }

    /// Changes the value from an instant on, which is after those of earlier changes.
    #[must_use]
    pub fn then(mut self, from_ns: u64, value: T) -> Self {
        self.later.push((from_ns, value));
        self
    }

    /// Returns the value at an instant.
    pub fn at(&self, at_ns: u64) -> T {
        let current = self.later.iter().take_while(|(from_ns, _)| *from_ns <= at_ns).last();
        current.map_or(self.first, |(_, value)| *value)
    }

    /// Returns the instant of the next change.
    pub(super) fn next_ns(&self, after_ns: u64) -> Option<u64> {
        self.later.iter().map(|(from_ns, _)| *from_ns).find(|&from_ns| from_ns > after_ns)
    }

    /// Returns the instants of all changes.
    pub(super) fn changes(&self) -> impl Iterator<Item = u64> {
        self.later.iter().map(|(from_ns, _)| *from_ns)
    }
}

impl Steps<u64> {
    /// Returns the value at an instant, where it changes evenly from one to the next.
    pub(super) fn between(&self, at_ns: u64) -> u64 {
        let mut before = (0, self.first);
        for &(from_ns, value) in &self.later {
            if from_ns > at_ns {
                let (begin_ns, begin) = before;
                let share = u128::from(at_ns.saturating_sub(begin_ns));
                let whole = u128::from(from_ns.saturating_sub(begin_ns));
                let change = u128::from(value.abs_diff(begin)).saturating_mul(share);
                let change = change.checked_div(whole).and_then(|it| u64::try_from(it).ok());
                let change = change.unwrap_or(0);
                return if value >= begin {
                    begin.saturating_add(change)
                } else {
                    begin.saturating_sub(change)
                };
            }
            before = (from_ns, value);
        }
        before.1
    }
}
