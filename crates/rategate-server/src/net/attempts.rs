//! Refused calls of one connection, and the pauses and bound for its wrong tokens.

use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::{Guesses, RefusalReason, Tally, TokenShown};

/// A counter of a connection's refused calls, which delays and ends one that guesses the token.
///
/// Clones belong to the same connection. A call that shows a token is an attempt. After three
/// wrong tokens of the connection or of its address, an attempt waits *before* its token has any
/// effect. The right token waits as long as a wrong one, so a client that leaves sooner learns
/// nothing. Each wait is twice as long as the one before, and the tenth wrong token of a
/// connection ends it.
///
/// A proxy may carry the calls of many clients. A connection that has shown the right token
/// therefore does not wait for it again, whatever other tokens it shows. The right token also
/// resets the counts.
#[derive(Clone, Default)]
pub struct Attempts(Option<Arc<Inner>>);

struct Inner {
    tally: Arc<dyn Tally>,
    peer: Option<SocketAddr>,
    /// The wrong tokens of all connections from the peer's address.
    guesses: Guesses,
    /// The number of wrong tokens since the right one.
    failed: AtomicU32,
    /// `true` once the right token has been shown.
    is_admitted: AtomicBool,
    /// The end of the wait for the right token where it is first shown. All calls share it, as
    /// some clients do not wait for their replies.
    right_from: OnceLock<Instant>,
    is_over: AtomicBool,
    over: Notify,
}

/// A call that shows the right token, a wrong one, or none.
///
/// The call waits for its `pause` first, and proceeds if it [may](Self::may_proceed). [`Self::end`]
/// records how it ended.
#[derive(Debug)]
pub(crate) struct Attempt {
    attempts: Attempts,
    pub(crate) shown: TokenShown,
    /// The time to wait before the token has any effect.
    pub(crate) pause: Duration,
    /// `true` if the call is counted as a wrong token before it is known to need one.
    is_counted: bool,
    /// `true` if this is the last wrong token that the connection may show.
    is_last: bool,
}

/// The number of wrong tokens that are answered without a pause.
const FREE_GUESSES: u32 = 3;
/// The number of wrong tokens after which a connection ends.
pub(super) const MAX_GUESSES: u32 = 10;
/// The pause of the first attempt that has to wait.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

impl Attempts {
    /// Counts the calls of a connection from `peer` and reports them to `tally`. Wrong tokens also
    /// count in `guesses`.
    #[must_use]
    pub fn new(tally: Arc<dyn Tally>, peer: Option<SocketAddr>, guesses: Guesses) -> Self {
        Self(Some(Arc::new(Inner {
            tally,
            peer,
            guesses,
            failed: AtomicU32::new(0),
            is_admitted: AtomicBool::new(false),
            right_from: OnceLock::new(),
            is_over: AtomicBool::new(false),
            over: Notify::new(),
        })))
    }

    /// Begins a call that shows the token as `shown`.
    pub(crate) fn begin(&self, shown: TokenShown) -> Attempt {
        let attempts = self.clone();
        let mut attempt =
            Attempt { attempts, shown, pause: Duration::ZERO, is_counted: false, is_last: false };
        if let Some(inner) = &self.0
            && !inner.is_known(shown)
        {
            inner.delay(&mut attempt);
        }
        attempt
    }

    /// Counts a refused call whose refusal does not concern the token.
    #[cold]
    pub fn refused(&self, reason: RefusalReason) {
        if let Some(inner) = &self.0 {
            inner.tally.call_refused(reason, inner.peer);
        }
    }

    /// Returns `true` once the connection's last permitted wrong token has its reply.
    ///
    /// Ending the connection sooner would reveal the content of that reply.
    #[must_use]
    pub fn are_over(&self) -> bool {
        self.0.as_ref().is_some_and(|inner| inner.is_over.load(Ordering::Relaxed))
    }

    /// Waits until [`Self::are_over`] is `true`.
    pub async fn over(&self) {
        match &self.0 {
            Some(inner) => inner.over.notified().await,
            None => std::future::pending().await,
        }
    }
}

impl Inner {
    fn failed(&self) -> u32 {
        self.failed.load(Ordering::Relaxed)
    }

    fn is_admitted(&self) -> bool {
        self.is_admitted.load(Ordering::Relaxed)
    }

    /// Returns `true` if the call's outcome reveals nothing about the token: it shows none, or the
    /// connection has shown the right one before.
    fn is_known(&self, shown: TokenShown) -> bool {
        match shown {
            TokenShown::Nothing => true,
            TokenShown::Right => self.is_admitted(),
            TokenShown::Invalid => false,
        }
    }

    /// Delays an attempt if there have been too many wrong ones.
    #[cold]
    fn delay(&self, attempt: &mut Attempt) {
        let now = Instant::now();
        let of_address = self.peer.map_or(0, |peer| self.guesses.count(peer.ip()));
        let failed = self.failed().max(of_address);
        if failed < FREE_GUESSES {
            return;
        }
        if attempt.shown == TokenShown::Right {
            let pause = pause_after(failed.saturating_add(1));
            let from = self.right_from.get_or_init(|| now.checked_add(pause).unwrap_or(now));
            attempt.pause = from.saturating_duration_since(now);
        } else {
            attempt.is_counted = true;
            attempt.pause = self.count(attempt);
        }
    }

    /// Counts a wrong token and returns its pause.
    fn count(&self, attempt: &mut Attempt) -> Duration {
        let failed = self.failed.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        attempt.is_last = failed >= MAX_GUESSES;
        let of_address = self.peer.map(|peer| self.guesses.failed(peer.ip()));
        pause_after(failed.max(of_address.unwrap_or(0)))
    }

    /// Returns `true` if the connection's tokens are no longer compared.
    fn is_exhausted(&self) -> bool {
        self.failed() >= MAX_GUESSES
    }

    /// Withdraws the count of a call that needed no token.
    fn take_back(&self) {
        let _ = self
            .failed
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |failed| failed.checked_sub(1));
        self.peer.inspect(|peer| self.guesses.take_back(peer.ip()));
    }

    /// Counts a call that has shown the token.
    fn admit(&self) {
        if !self.is_admitted() {
            self.is_admitted.store(true, Ordering::Relaxed);
        }
        // A connection without wrong tokens of its own leaves the count of its address alone.
        if self.failed() > 0 {
            self.failed.store(0, Ordering::Relaxed);
            self.peer.inspect(|peer| self.guesses.right(peer.ip()));
        }
        self.tally.call_admitted();
    }
}

impl Attempt {
    /// Returns `true` if the call proceeds after the pause. After the last wrong token of a
    /// connection, no other token is compared.
    pub(crate) fn may_proceed(&self) -> bool {
        let Some(inner) = &self.attempts.0 else { return true };
        let proceeds = inner.is_known(self.shown) || !inner.is_exhausted();
        if proceeds && self.shown == TokenShown::Right {
            inner.admit();
        }
        proceeds
    }

    /// Records the end of the call and its refusal, if any. Returns the delay that the reply still
    /// needs.
    pub(crate) fn end(mut self, refusal: Option<RefusalReason>) -> Duration {
        let Some(inner) = self.attempts.0.take() else { return Duration::ZERO };
        let refusal = refusal.map(|reason| reason.of(self.shown));
        if let Some(reason) = refusal {
            inner.tally.call_refused(reason, inner.peer);
        }
        if refusal != Some(RefusalReason::InvalidToken) {
            if self.is_counted {
                inner.take_back();
            }
            return Duration::ZERO;
        }
        let is_late = self.is_counted || self.shown == TokenShown::Right;
        let pause = if is_late { Duration::ZERO } else { inner.count(&mut self) };
        if self.is_last && inner.is_exhausted() {
            inner.is_over.store(true, Ordering::Relaxed);
            inner.over.notify_one();
        }
        pause
    }
}

/// Counts the wrong token of a client that did not wait for its reply.
impl Drop for Attempt {
    fn drop(&mut self) {
        if let Some(inner) = &self.attempts.0
            && self.is_counted
        {
            inner.tally.call_refused(RefusalReason::InvalidToken, inner.peer);
        }
    }
}

/// Returns the pause of the `failed`-th wrong token.
fn pause_after(failed: u32) -> Duration {
    let doublings = failed.min(MAX_GUESSES).checked_sub(FREE_GUESSES.saturating_add(1));
    doublings.map_or(Duration::ZERO, |doublings| FIRST_PAUSE.saturating_mul(1 << doublings))
}

impl fmt::Debug for Attempts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let failed = self.0.as_ref().map(|inner| inner.failed());
        f.debug_struct("Attempts").field("wrong", &failed).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use TokenShown::{Invalid, Nothing, Right};

    use super::*;

    fn connection(guesses: &Guesses, port: u16) -> Attempts {
        let peer = SocketAddr::from(([10, 0, 0, 1], port));
        Attempts::new(Arc::new(()), Some(peer), guesses.clone())
    }

    /// Shows a wrong token to a call that needs one, without waiting. Returns the pause that it
    /// should have waited.
    fn guess(attempts: &Attempts) -> u128 {
        let attempt = attempts.begin(Invalid);
        let pause = attempt.pause;
        (pause + attempt.end(Some(RefusalReason::NoToken))).as_millis()
    }

    fn fail(attempt: Attempt) {
        let _ = attempt.end(Some(RefusalReason::NoToken));
    }

    const PAUSES: [u128; 11] = [0, 0, 0, 100, 200, 400, 800, 1_600, 3_200, 6_400, 6_400];

    #[test]
    fn guesses_become_slower_and_come_to_an_end() {
        let attempts = Attempts::new(Arc::new(()), None, Guesses::default());
        let pauses: Vec<u128> = (1..=10).map(|_| guess(&attempts)).collect();
        assert_eq!(pauses, PAUSES[..10]);
        assert!(attempts.are_over());
        assert!(!attempts.begin(Right).may_proceed(), "no token is compared any more");
        assert!(attempts.begin(Nothing).may_proceed());
        assert_eq!(guess(&attempts), 6_400, "it becomes no slower than that");
    }

    /// Makes each guess on a connection of its own, all from one address.
    #[test]
    fn a_new_connection_is_no_new_beginning() {
        let guesses = Guesses::default();
        let pauses: Vec<u128> = (1..=11).map(|port| guess(&connection(&guesses, port))).collect();
        assert_eq!(pauses, PAUSES);
        let other = connection(&guesses, 12);
        assert!(other.begin(Right).may_proceed());
        assert_eq!(
            guess(&connection(&guesses, 13)),
            6_400,
            "it never guessed, and forgives nothing"
        );
        assert_eq!(guess(&other), 6_400);
        assert!(other.begin(Right).may_proceed());
        assert_eq!(guess(&connection(&guesses, 14)), 0, "one that shows both sets the count back");
    }

    /// A client that leaves before the wait is over learns nothing, and its guess counts.
    #[test]
    fn a_valid_token_waits_as_long_as_an_invalid_one() {
        let guesses = Guesses::default();
        for port in 1..=5 {
            drop(connection(&guesses, port).begin(Invalid));
        }
        assert_eq!(guesses.count([10, 0, 0, 1].into()), 0, "free so far");
        for port in 1..=3 {
            guess(&connection(&guesses, port));
        }
        for (nth, &pause) in PAUSES[3..].iter().enumerate() {
            let right = connection(&guesses, 20).begin(Right).pause.as_millis();
            assert!(right <= pause && right + 50 > pause, "{nth}: {right} for {pause}");
            let failed = connection(&guesses, 21).begin(Invalid).pause.as_millis();
            assert_eq!(failed, pause, "{nth}");
        }
    }

    /// Begins many calls at the same time on one connection.
    #[test]
    fn no_more_guesses_at_once_than_one_after_the_other() {
        let attempts = Attempts::new(Arc::new(()), None, Guesses::default());
        let guess = || attempts.begin(Invalid);
        (0..3).for_each(|_| fail(guess()));
        let mut all: Vec<_> = (0..90).map(|_| guess()).collect();
        let right = attempts.begin(Right);
        assert!(right.pause > Duration::from_secs(6));
        assert!(all.iter().all(|attempt| !attempt.may_proceed()));
        assert!(!right.may_proceed());
        // The end of the connection reveals which guess was the last no sooner than the replies
        // do.
        let late = all.split_off(6);
        all.into_iter().for_each(fail);
        assert!(!attempts.are_over());
        late.into_iter().for_each(fail);
        assert!(attempts.are_over());
    }

    /// Simulates a proxy whose clients share its connection: some have the token, and some guess.
    #[test]
    fn a_connection_that_has_shown_the_token_does_not_wait_for_it() {
        let guesses = Guesses::default();
        let proxy = connection(&guesses, 1);
        assert!(proxy.begin(Right).may_proceed());
        for _ in 0..20 {
            let waiting: Vec<_> = (0..15).map(|_| proxy.begin(Invalid)).collect();
            let right = proxy.begin(Right);
            assert_eq!(right.pause, Duration::ZERO);
            assert!(right.may_proceed());
            right.end(None);
            waiting.into_iter().for_each(fail);
        }
    }

    /// All calls that show the token wait until the same instant, so a client whose calls time out
    /// sooner still gets there.
    #[test]
    fn the_wait_of_a_new_connection_is_one() {
        let guesses = Guesses::default();
        (1..=4).for_each(|port| assert!(guess(&connection(&guesses, port)) <= 100));
        let envoy = connection(&guesses, 9);
        let first = envoy.begin(Right).pause;
        std::thread::sleep(Duration::from_millis(20));
        let second = envoy.begin(Right).pause;
        assert!(first > second && second > Duration::ZERO, "{first:?} {second:?}");
        std::thread::sleep(second);
        let last = envoy.begin(Right);
        assert_eq!(last.pause, Duration::ZERO);
        assert!(last.may_proceed());
    }

    #[test]
    fn what_needs_no_token_is_no_guess() {
        let attempts = Attempts::new(Arc::new(()), None, Guesses::default());
        for _ in 0..100 {
            assert_eq!(attempts.begin(Nothing).end(Some(RefusalReason::NoToken)), Duration::ZERO);
            assert_eq!(
                attempts.begin(Invalid).end(Some(RefusalReason::EngineError)),
                Duration::ZERO
            );
            assert_eq!(attempts.begin(Invalid).end(None), Duration::ZERO);
        }
        (0..5).for_each(|_| assert!(guess(&attempts) <= 200));
        for _ in 0..100 {
            let free = attempts.begin(Invalid);
            assert_eq!(free.pause.as_millis(), 400, "it may be a guess");
            free.end(None);
        }
        assert!(attempts.begin(Right).pause > Duration::ZERO);
        assert!(!attempts.are_over());
    }
}
