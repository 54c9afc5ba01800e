//! The calls of one connection that are refused, and how many wrong tokens it may show.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use super::{RefusalReason, Tally};

/// Counts what a connection is refused, and ends one that keeps guessing the token. Clones are of the same connection.
///
/// The first [`FREE_GUESSES`] wrong tokens are answered at once, each one after that twice as late as the one before, and the
/// [`MAX_GUESSES`]th ends the connection. The right token sets the count back: a proxy may carry the calls of many clients.
#[derive(Clone, Default)]
pub struct Attempts(Option<Arc<Inner>>);

struct Inner {
    tally: Arc<dyn Tally>,
    peer: Option<SocketAddr>,
    /// Wrong tokens since the right one.
    wrong: AtomicU32,
    over: Notify,
}

/// How many wrong tokens are answered at once.
pub const FREE_GUESSES: u32 = 3;
/// How many wrong tokens a connection may show; with the last one it ends.
pub const MAX_GUESSES: u32 = 10;
/// How late the first answer comes that is not given at once.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

impl Attempts {
    /// Counts for a connection from `peer`, and tells `tally`.
    #[must_use]
    pub fn new(tally: Arc<dyn Tally>, peer: Option<SocketAddr>) -> Self {
        let (wrong, over) = (AtomicU32::new(0), Notify::new());
        Self(Some(Arc::new(Inner { tally, peer, wrong, over })))
    }

    /// Counts a refused call, and returns how late its answer should come.
    #[must_use]
    #[cold]
    pub fn refused(&self, reason: RefusalReason) -> Duration {
        let Some(inner) = &self.0 else { return Duration::ZERO };
        inner.tally.call_refused(reason, inner.peer);
        if reason != RefusalReason::WrongToken {
            return Duration::ZERO;
        }
        let wrong = inner.wrong.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        if wrong >= MAX_GUESSES {
            inner.over.notify_one();
        }
        pause_after(wrong)
    }

    /// Counts a call that has shown the token.
    pub fn admitted(&self) {
        if let Some(inner) = &self.0 {
            inner.wrong.store(0, Ordering::Relaxed);
            inner.tally.call_admitted();
        }
    }

    /// Whether the connection has shown as many wrong tokens as it may.
    #[must_use]
    pub fn are_over(&self) -> bool {
        self.0.as_ref().is_some_and(|inner| inner.wrong.load(Ordering::Relaxed) >= MAX_GUESSES)
    }

    /// Waits until the connection has shown as many wrong tokens as it may.
    pub async fn over(&self) {
        match &self.0 {
            Some(inner) => inner.over.notified().await,
            None => std::future::pending().await,
        }
    }
}

/// How late the answer to the so-manieth wrong token comes.
fn pause_after(wrong: u32) -> Duration {
    let doublings = wrong.min(MAX_GUESSES).checked_sub(FREE_GUESSES.saturating_add(1));
    doublings.map_or(Duration::ZERO, |doublings| FIRST_PAUSE.saturating_mul(1 << doublings))
}

impl fmt::Debug for Attempts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wrong = self.0.as_ref().map(|inner| inner.wrong.load(Ordering::Relaxed));
        f.debug_struct("Attempts").field("wrong", &wrong).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guesses_become_slower_and_come_to_an_end() {
        let attempts = Attempts::new(Arc::new(()), None);
        let guess = || attempts.refused(RefusalReason::WrongToken).as_millis();
        let pauses: Vec<u128> = (1..=MAX_GUESSES).map(|_| guess()).collect();
        assert_eq!(pauses, [0, 0, 0, 100, 200, 400, 800, 1_600, 3_200, 6_400]);
        assert!(attempts.are_over());
        assert_eq!(guess(), 6_400, "it becomes no slower than that");
    }

    #[test]
    fn the_right_token_begins_the_count_anew_and_no_token_counts_for_nothing() {
        let attempts = Attempts::new(Arc::new(()), None);
        for _ in 0..100 {
            assert_eq!(attempts.refused(RefusalReason::NoToken), Duration::ZERO);
            assert_eq!(attempts.refused(RefusalReason::Malformed), Duration::ZERO);
        }
        for _ in 0..100 {
            for _ in 0..FREE_GUESSES {
                assert_eq!(attempts.refused(RefusalReason::WrongToken), Duration::ZERO);
            }
            attempts.admitted();
        }
        assert!(!attempts.are_over());
    }
}
