//! The calls of one connection that are refused, and how many wrong tokens it and its address may show.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::{Guesses, RefusalReason, Tally};

/// Counts what a connection is refused, and ends one that keeps guessing the token. Clones are of the same connection.
///
/// The first [`FREE_GUESSES`] wrong tokens are answered at once, each one after that twice as late as the one before, and the
/// [`MAX_GUESSES`]th ends the connection. Those of other connections from the same address make an answer as late. The right token
/// sets both counts back: a proxy may carry the calls of many clients.
#[derive(Clone, Default)]
pub struct Attempts(Option<Arc<Inner>>);

struct Inner {
    tally: Arc<dyn Tally>,
    peer: Option<SocketAddr>,
    /// Those of all connections from its address.
    guesses: Guesses,
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
    /// Counts for a connection from `peer`, and tells `tally`. Wrong tokens count in `guesses`, too.
    #[must_use]
    pub fn new(tally: Arc<dyn Tally>, peer: Option<SocketAddr>, guesses: Guesses) -> Self {
        let (wrong, over) = (AtomicU32::new(0), Notify::new());
        Self(Some(Arc::new(Inner { tally, peer, guesses, wrong, over })))
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
        let of_address = inner.peer.map(|peer| inner.guesses.wrong(peer.ip(), Instant::now()));
        pause_after(wrong.max(of_address.unwrap_or(0)))
    }

    /// Counts a call that has shown the token.
    pub fn admitted(&self) {
        if let Some(inner) = &self.0 {
            // A connection that has shown no other token does not look at the others of its address.
            if inner.wrong.load(Ordering::Relaxed) > 0 {
                inner.wrong.store(0, Ordering::Relaxed);
                inner.peer.inspect(|peer| inner.guesses.right(peer.ip()));
            }
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
        let attempts = Attempts::new(Arc::new(()), None, Guesses::default());
        let guess = || attempts.refused(RefusalReason::WrongToken).as_millis();
        let pauses: Vec<u128> = (1..=MAX_GUESSES).map(|_| guess()).collect();
        assert_eq!(pauses, [0, 0, 0, 100, 200, 400, 800, 1_600, 3_200, 6_400]);
        assert!(attempts.are_over());
        assert_eq!(guess(), 6_400, "it becomes no slower than that");
    }

    /// Each guess on a connection of its own, from one address.
    #[test]
    fn a_new_connection_is_no_new_beginning() {
        let guesses = Guesses::default();
        let peer = |port| Some(SocketAddr::from(([10, 0, 0, 1], port)));
        let connection = |port| Attempts::new(Arc::new(()), peer(port), guesses.clone());
        let guess = |port| connection(port).refused(RefusalReason::WrongToken).as_millis();
        let pauses: Vec<u128> = (1..=11).map(guess).collect();
        assert_eq!(pauses, [0, 0, 0, 100, 200, 400, 800, 1_600, 3_200, 6_400, 6_400]);
        connection(12).admitted();
        assert_eq!(guess(13), 6_400, "a connection that never guessed forgives nothing");
        let proxy = connection(14);
        assert_eq!(proxy.refused(RefusalReason::WrongToken).as_millis(), 6_400);
        proxy.admitted();
        assert_eq!(guess(15), 0, "one that shows both sets the count back");
    }

    #[test]
    fn the_right_token_begins_the_count_anew_and_no_token_counts_for_nothing() {
        let attempts = Attempts::new(Arc::new(()), None, Guesses::default());
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
