//! What a connection has said of itself.

use super::reply::Version;

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
}

impl Session {
    pub(super) fn new(id: i64, token_required: bool) -> Self {
        Self {
            id,
            version: Version::Two,
            is_authenticated: false,
            token_required,
            name: Box::default(),
            is_over: false,
        }
    }

    /// Whether it has yet to show the token before anything else.
    pub(super) const fn is_stranger(&self) -> bool {
        self.token_required && !self.is_authenticated
    }

    /// As it was when it connected.
    pub(super) fn reset(&mut self) {
        self.version = Version::Two;
        self.is_authenticated = false;
        self.name = Box::default();
    }
}
