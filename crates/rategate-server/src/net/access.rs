//! The access token and the rights that calls need it for.

use std::fmt;
use std::sync::Arc;

use subtle::ConstantTimeEq as _;

use super::RefusalReason;

/// The token that calls show. Without one, every client that reaches a listener may do everything.
#[derive(Clone, Default)]
pub struct Access {
    token: Option<Arc<[u8]>>,
}

/// A right that a call needs. Each kind of call needs the same right in every protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// The right to request decisions and to read figures.
    Ask,
    /// The right to credit permits, which then can be taken again.
    Credit,
    /// The right to reset counters and to start long work in the service.
    Admin,
}

/// The rights of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    ask: bool,
    credit: bool,
    admin: bool,
}

/// The token that a call shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TokenShown {
    /// The call shows no token.
    #[default]
    Nothing,
    /// The call shows a wrong token.
    Invalid,
    /// The call shows the right token.
    Right,
}

impl Rights {
    /// All rights.
    pub const ALL: Self = Self { ask: true, credit: true, admin: true };
    /// The right to ask only.
    pub const READ: Self = Self { ask: true, credit: false, admin: false };
    /// No rights.
    pub const NONE: Self = Self { ask: false, credit: false, admin: false };

    /// Returns `true` if a right is among them.
    #[must_use]
    pub const fn has(self, right: Right) -> bool {
        match right {
            Right::Ask => self.ask,
            Right::Credit => self.credit,
            Right::Admin => self.admin,
        }
    }
}

impl Access {
    /// Creates an access check whose calls have to show `token`.
    #[must_use]
    pub fn token(token: &[u8]) -> Self {
        Self { token: Some(token.into()) }
    }

    /// Returns `true` if a token is set.
    #[must_use]
    pub const fn is_guarded(&self) -> bool {
        self.token.is_some()
    }

    /// Allows a call that needs a `right` and shows `shown`.
    ///
    /// A listener may require the token for every right (`required`). Where it does not,
    /// [`Right::Ask`] is free, and the other rights need the token if one is set.
    ///
    /// # Errors
    ///
    /// [`RefusalReason::NoToken`] or [`RefusalReason::InvalidToken`].
    pub const fn permits(
        &self,
        right: Right,
        shown: TokenShown,
        required: bool,
    ) -> Result<(), RefusalReason> {
        let is_needed = required || (self.is_guarded() && !matches!(right, Right::Ask));
        match shown {
            _ if !is_needed => Ok(()),
            TokenShown::Right => Ok(()),
            TokenShown::Invalid => Err(RefusalReason::InvalidToken),
            TokenShown::Nothing => Err(RefusalReason::NoToken),
        }
    }

    /// Returns all rights that [`Self::permits`] allows.
    #[must_use]
    pub fn rights(&self, shown: TokenShown, required: bool) -> Rights {
        let may = |right| self.permits(right, shown, required).is_ok();
        Rights { ask: may(Right::Ask), credit: may(Right::Credit), admin: may(Right::Admin) }
    }

    /// Returns `true` if `given` is the token, and `false` if no token is set. The comparison
    /// takes the same time whichever bytes differ, so that a client cannot find the token byte by
    /// byte. It may reveal the token's length.
    #[must_use]
    pub fn admits(&self, given: &[u8]) -> bool {
        self.token.as_deref().is_some_and(|token| token.ct_eq(given).into())
    }

    /// Reads an `Authorization` field: `Bearer`, in any case, and the token.
    #[must_use]
    pub fn shown_by(&self, field: &[u8]) -> TokenShown {
        let is_token = field.split_at_checked(b"Bearer ".len()).is_some_and(|(scheme, token)| {
            scheme.eq_ignore_ascii_case(b"Bearer ") && self.admits(token.trim_ascii())
        });
        if is_token { TokenShown::Right } else { TokenShown::Invalid }
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access").field("is_guarded", &self.is_guarded()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares every case with the table of rights in the operations guide.
    #[test]
    fn rights_are_those_of_the_table() {
        use RefusalReason::{InvalidToken, NoToken};
        let (open, guarded) = (Access::default(), Access::token(b"s3cret"));
        for right in [Right::Ask, Right::Credit, Right::Admin] {
            assert_eq!(open.permits(right, TokenShown::Nothing, false), Ok(()));
            assert_eq!(open.permits(right, TokenShown::Nothing, true), Err(NoToken));
            for required in [false, true] {
                assert_eq!(guarded.permits(right, TokenShown::Right, required), Ok(()));
            }
            assert_eq!(guarded.permits(right, TokenShown::Invalid, true), Err(InvalidToken));
        }
        assert_eq!(guarded.permits(Right::Ask, TokenShown::Invalid, false), Ok(()));
        for right in [Right::Credit, Right::Admin] {
            assert_eq!(guarded.permits(right, TokenShown::Nothing, false), Err(NoToken));
            assert_eq!(guarded.permits(right, TokenShown::Invalid, false), Err(InvalidToken));
        }
    }
}
