//! Who may do what.

use std::fmt;
use std::sync::Arc;

/// The token that calls show. Without one everybody who reaches a listener may do everything.
#[derive(Clone, Default)]
pub struct Access {
    token: Option<Arc<[u8]>>,
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

    /// Whether `given` is the token. Takes as long whichever bytes differ, so that nobody can find them out one by one. Never
    /// true where there is none.
    #[must_use]
    pub fn admits(&self, given: &[u8]) -> bool {
        let Some(token) = &self.token else { return false };
        let differing = token.iter().zip(given).fold(0_u8, |all, (own, given)| all | (own ^ given));
        (std::hint::black_box(differing) == 0) & (token.len() == given.len())
    }

    /// Whether a field `Authorization` shows it: `Bearer`, in any case, and the token.
    #[must_use]
    pub fn admits_field(&self, field: &[u8]) -> bool {
        let Some((scheme, token)) = field.split_at_checked(b"Bearer ".len()) else { return false };
        scheme.eq_ignore_ascii_case(b"Bearer ") && self.admits(token.trim_ascii())
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access").field("is_guarded", &self.is_guarded()).finish()
    }
}
