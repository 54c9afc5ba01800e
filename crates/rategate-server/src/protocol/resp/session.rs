//! What a connection has said of itself.

use std::time::Duration;

use super::reply::Version;
use crate::net::{Attempt, Attempts, RefusalReason, TokenShown};

/// What a connection has said of itself.
#[derive(Debug)]
pub(super) struct Session {
    /// Unlike that of any other connection of the process.
    pub(super) id: i64,
    pub(super) version: Version,
    /// Whether it has shown the token.
    pub(super) is_authenticated: bool,
    /// Whether every call needs the token.
    pub(super) token_required: bool,
    /// As it calls itself.
    pub(super) name: Box<[u8]>,
    /// Nothing more is read or done: its last reply has been made.
    pub(super) is_over: bool,
    /// What it is refused.
    pub(super) attempts: Attempts,
    /// The token that it has shown last, until the pause is over.
    attempt: Option<Attempt>,
    /// Why the command under way is refused, where its reply's first word does not say it.
    pub(super) refusal: Option<RefusalReason>,
    /// How late the replies come that are to be written next, and the commands behind them.
    pub(super) pause: Duration,
}

impl Session {
    pub(super) fn new(id: i64, token_required: bool, attempts: Attempts) -> Self {
        Self {
            id,
            version: Version::Two,
            is_authenticated: false,
            token_required,
            name: Box::default(),
            is_over: false,
            attempts,
            attempt: None,
            refusal: None,
            pause: Duration::ZERO,
        }
    }

    /// Counts a refused call.
    #[cold]
    pub(super) fn refused(&mut self, reason: RefusalReason) {
        match reason {
            RefusalReason::WrongToken => self.show(TokenShown::Wrong),
            reason => self.attempts.refused(reason),
        }
    }

    /// Takes note that it has shown the token.
    pub(super) fn admitted(&mut self) {
        self.is_authenticated = true;
        self.show(TokenShown::Right);
    }

    /// A token is shown. No command is run, and no reply written, before it is known what comes of that.
    fn show(&mut self, shown: TokenShown) {
        let attempt = self.attempts.begin(shown);
        self.pause = self.pause.max(attempt.pause);
        self.attempt = Some(attempt);
        if self.pause.is_zero() {
            self.go_on();
        }
    }

    /// The pause is over. One wrong token too many is the last that is heard of the connection.
    pub(super) fn go_on(&mut self) {
        let Some(attempt) = self.attempt.take() else { return };
        let is_right = attempt.shown == TokenShown::Right && attempt.may_go_on();
        let refusal = if is_right { None } else { Some(RefusalReason::WrongToken) };
        self.pause = attempt.end(refusal);
        self.is_over |= self.attempts.are_over();
    }

    /// Whether it has yet to show the token before anything else.
    pub(super) const fn is_stranger(&self) -> bool {
        self.token_required && !self.is_authenticated
    }

    /// The token as the connection has shown it. A wrong one is answered when it is shown, and counts for nothing after that.
    pub(super) const fn token(&self) -> TokenShown {
        if self.is_authenticated { TokenShown::Right } else { TokenShown::Nothing }
    }

    /// As it was when it connected.
    pub(super) fn reset(&mut self) {
        self.version = Version::Two;
        self.is_authenticated = false;
        self.name = Box::default();
    }
}
