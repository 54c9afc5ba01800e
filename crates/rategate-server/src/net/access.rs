//! The token, and the rights that calls need it for.

use std::fmt;
use std::sync::Arc;

use super::RefusalReason;

/// The token that calls show. Without one every client that reaches a listener may do everything.
#[derive(Clone, Default)]
pub struct Access {
    token: Option<Arc<[u8]>>,
}

/// A right that a call needs. Which call needs which is the same for every protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// To have decisions made, and to see figures.
    Ask,
    /// To give permits back: what was taken can be taken again.
    Credit,
    /// To reset counters, and to have the service do long work.
    Admin,
}

/// The token as a call shows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TokenShown {
    /// The call shows none.
    #[default]
    Nothing,
    /// The call shows another one.
    Wrong,
    /// The call shows the token.
    Right,
}

impl Access {
    /// Calls have to show `token`.
    #[must_use]
    pub fn token(token: &[u8]) -> Self {
        Self { token: Some(token.into()) }
    }

    /// Whether there is a token to be shown.
    #[must_use]
    pub const fn is_guarded(&self) -> bool {
        self.token.is_some()
    }

    /// Allows a call that needs a `right` and shows `shown`. A listener may ask for the token for every right (`required`); where it
    /// does not, asking is free, and the other rights need the token if there is one.
    ///
    /// # Errors
    ///
    /// [`RefusalReason::NoToken`] or [`RefusalReason::WrongToken`].
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
            TokenShown::Wrong => Err(RefusalReason::WrongToken),
            TokenShown::Nothing => Err(RefusalReason::NoToken),
        }
    }

    /// Whether `given` is the token. Takes as long whichever bytes differ, so that it cannot be found out byte by byte. Never
    /// true where there is none.
    #[must_use]
    pub fn admits(&self, given: &[u8]) -> bool {
        let Some(token) = &self.token else { return false };
        let differing = token.iter().zip(given).fold(0_u8, |all, (own, given)| all | (own ^ given));
        (std::hint::black_box(differing) == 0) & (token.len() == given.len())
    }

    /// Reads a field `Authorization`: `Bearer`, in any case, and the token.
    #[must_use]
    pub fn shown_by(&self, field: &[u8]) -> TokenShown {
        let is_token = field.split_at_checked(b"Bearer ".len()).is_some_and(|(scheme, token)| {
            scheme.eq_ignore_ascii_case(b"Bearer ") && self.admits(token.trim_ascii())
        });
        if is_token { TokenShown::Right } else { TokenShown::Wrong }
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

    /// The table of the operations guide.
    #[test]
    fn rights_are_those_of_the_table() {
        use RefusalReason::{NoToken, WrongToken};
        let (open, guarded) = (Access::default(), Access::token(b"s3cret"));
        for right in [Right::Ask, Right::Credit, Right::Admin] {
            assert_eq!(open.permits(right, TokenShown::Nothing, false), Ok(()));
            assert_eq!(open.permits(right, TokenShown::Nothing, true), Err(NoToken));
            for required in [false, true] {
                assert_eq!(guarded.permits(right, TokenShown::Right, required), Ok(()));
            }
            assert_eq!(guarded.permits(right, TokenShown::Wrong, true), Err(WrongToken));
        }
        assert_eq!(guarded.permits(Right::Ask, TokenShown::Wrong, false), Ok(()));
        for right in [Right::Credit, Right::Admin] {
            assert_eq!(guarded.permits(right, TokenShown::Nothing, false), Err(NoToken));
            assert_eq!(guarded.permits(right, TokenShown::Wrong, false), Err(WrongToken));
        }
    }
}
