//! The state that a connection sets by its commands.

use std::time::Duration;

use crate::protocol::resp::Version;

use crate::net::{Attempt, Attempts, RefusalReason, TokenShown};

/// The state of a connection's authentication, version and name.
#[derive(Debug)]
pub(super) struct Session {
    /// The number of the connection, unique within the process.
    pub(super) id: i64,
    pub(super) version: Version,
    /// `true` if the connection has shown the token.
    pub(super) is_authenticated: bool,
    /// `true` if every call needs the token.
    pub(super) token_required: bool,
    /// The name that the client has set.
    pub(super) name: Box<[u8]>,
    /// `true` after the last reply: nothing more is read or run.
    pub(super) is_over: bool,
    /// The refused calls of the connection.
    pub(super) attempts: Attempts,
    /// The token that the connection showed last, until its pause is over.
    attempt: Option<Attempt>,
    /// The reason why the current command is refused, where the first word of its reply does not
    /// state it.
    pub(super) refusal: Option<RefusalReason>,
    /// The delay of the next replies, and of the commands behind them.
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
            RefusalReason::InvalidToken => self.show(TokenShown::Invalid),
            reason => self.attempts.refused(reason),
        }
    }

    /// Records that the connection has shown the token.
    pub(super) fn admitted(&mut self) {
        self.is_authenticated = true;
        self.show(TokenShown::Right);
    }

    /// Begins an attempt with a token. Until its pause is over, no command is run and no reply
    /// written.
    fn show(&mut self, shown: TokenShown) {
        let attempt = self.attempts.begin(shown);
        self.pause = self.pause.max(attempt.pause);
        self.attempt = Some(attempt);
        if self.pause.is_zero() {
            self.resume();
        }
    }

    /// Ends the pause. The last permitted wrong token ends the connection.
    pub(super) fn resume(&mut self) {
        let Some(attempt) = self.attempt.take() else { return };
        let is_right = attempt.shown == TokenShown::Right && attempt.may_proceed();
        let refusal = if is_right { None } else { Some(RefusalReason::InvalidToken) };
        self.pause = attempt.end(refusal);
        self.is_over |= self.attempts.are_over();
    }

    /// Returns `true` if the connection has to show the token before anything else.
    pub(super) const fn is_unauthenticated(&self) -> bool {
        self.token_required && !self.is_authenticated
    }

    /// Returns the token that the connection has shown. A wrong token is refused when it is shown,
    /// and has no effect later.
    pub(super) const fn token(&self) -> TokenShown {
        if self.is_authenticated { TokenShown::Right } else { TokenShown::Nothing }
    }

    /// Restores the state of a new connection.
    pub(super) fn reset(&mut self) {
        self.version = Version::Two;
        self.is_authenticated = false;
        self.name = Box::default();
    }
}
