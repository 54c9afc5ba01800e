//! What a store was before each of the last questions, for replicas that are behind.

use std::collections::VecDeque;

/// Makes a store what it was.
pub(super) type Back<S> = Box<dyn FnOnce(&S) + Send>;
/// Remembers what it is.
pub(super) type Take<S> = Box<dyn Fn(&S) -> Back<S> + Send>;

/// The last of what it was.
pub(super) struct Images<S> {
    take: Take<S>,
    lag_ns: u64,
    /// With the instant of the question that came then.
    kept: VecDeque<(u64, Back<S>)>,
}

impl<S> Images<S> {
    pub(super) fn new(lag_ns: u64, take: Take<S>) -> Self {
        Self { take, lag_ns, kept: VecDeque::new() }
    }

    /// Before a question at `now_ns`.
    pub(super) fn keep(&mut self, now_ns: u64, store: &S) {
        self.forget_before(now_ns);
        self.kept.push_back((now_ns, (self.take)(store)));
    }

    /// What it was before the first question that a replica does not know of yet; else what it is.
    pub(super) fn replica(&mut self, now_ns: u64, store: &S) -> Back<S> {
        self.forget_before(now_ns);
        let lost = self.kept.pop_front();
        self.kept.clear();
        lost.map_or_else(|| (self.take)(store), |(_, back)| back)
    }

    /// A replica knows what came so long ago.
    fn forget_before(&mut self, now_ns: u64) {
        let known = |at_ns: u64| now_ns.saturating_sub(at_ns) >= self.lag_ns;
        while self.kept.front().is_some_and(|&(at_ns, _)| known(at_ns)) {
            self.kept.pop_front();
        }
    }
}
