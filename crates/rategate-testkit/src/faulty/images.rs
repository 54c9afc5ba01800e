//! Images of a store before each of the last requests, for replicas that lag behind.

use std::collections::VecDeque;

/// A function that returns a store to an earlier state.
pub(super) type RestoreFn<S> = Box<dyn FnOnce(&S) + Send>;
/// A function that takes an image of a store.
pub(super) type CaptureFn<S> = Box<dyn Fn(&S) -> RestoreFn<S> + Send>;

/// The last images of a store.
pub(super) struct Images<S> {
    take: CaptureFn<S>,
    lag_ns: u64,
    /// The images, each with the instant of the request that followed.
    saved: VecDeque<(u64, RestoreFn<S>)>,
}

impl<S> Images<S> {
    pub(super) fn new(lag_ns: u64, take: CaptureFn<S>) -> Self {
        Self { take, lag_ns, saved: VecDeque::new() }
    }

    /// Takes an image before a request at `now_ns`.
    pub(super) fn keep(&mut self, now_ns: u64, store: &S) {
        self.drop_before(now_ns);
        self.saved.push_back((now_ns, (self.take)(store)));
    }

    /// Returns the image before the first request that the replica lacks, or the current state.
    pub(super) fn replica(&mut self, now_ns: u64, store: &S) -> RestoreFn<S> {
        self.drop_before(now_ns);
        let lost = self.saved.pop_front();
        self.saved.clear();
        lost.map_or_else(|| (self.take)(store), |(_, back)| back)
    }

    /// Drops images older than the lag, as the replica has their requests.
    fn drop_before(&mut self, now_ns: u64) {
        let known = |at_ns: u64| now_ns.saturating_sub(at_ns) >= self.lag_ns;
        while self.saved.front().is_some_and(|&(at_ns, _)| known(at_ns)) {
            self.saved.pop_front();
        }
    }
}
