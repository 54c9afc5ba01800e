//! The sender of a request.

use std::net::IpAddr;

use http::HeaderMap;
use http::header::AUTHORIZATION;

use super::refused::Refused;
use crate::net::{Access, Right, Rights, TokenShown};

/// The sender of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// The peer's address; `None` for a Unix socket.
    pub address: Option<IpAddr>,
    /// `true` if every request needs the token, and not only those that change something.
    pub token_required: bool,
    /// The rights that the request's token gives.
    pub rights: Rights,
}

impl Caller {
    /// Creates a caller with these rights and without an address.
    #[must_use]
    pub const fn with(rights: Rights) -> Self {
        Self { address: None, token_required: false, rights }
    }

    pub(crate) const fn needs(&self, right: Right) -> Result<(), Refused> {
        if self.rights.has(right) { Ok(()) } else { Err(Refused::Token) }
    }
}

/// Returns the token that the single `Authorization` field shows.
pub(crate) fn token_shown(access: &Access, headers: &HeaderMap) -> TokenShown {
    let mut values = headers.get_all(AUTHORIZATION).into_iter();
    match (values.next(), values.next()) {
        (None, _) => TokenShown::Nothing,
        (Some(value), None) => access.shown_by(value.as_bytes()),
        _ => TokenShown::Invalid,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_field_shows_the_token() {
        let shown = |values: &[&str]| {
            let fields = values.iter().map(|value| (AUTHORIZATION, value.parse().unwrap()));
            token_shown(&Access::token(b"s3cret"), &fields.collect())
        };
        assert_eq!(shown(&[]), TokenShown::Nothing);
        for right in ["Bearer s3cret", "bearer  s3cret "] {
            assert_eq!(shown(&[right]), TokenShown::Right, "{right}");
        }
        for wrong in ["Bearer s3cre", "Bearer s3cret1", "Basic s3cret", "Bearer ", "s3cret", ""] {
            assert_eq!(shown(&[wrong]), TokenShown::Invalid, "{wrong}");
        }
        assert_eq!(shown(&["Bearer s3cret", "Bearer other"]), TokenShown::Invalid);
    }
}
