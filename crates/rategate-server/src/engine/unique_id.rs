//! Ids that callers choose: of leases, and of reservations.

use std::fmt;
use std::str::FromStr;

use rategate::store::LeaseId;

/// A unique id: 128 bits, as text 32 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UniqueId(pub [u8; 16]);

/// The error of a text that is no id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not 32 hexadecimal digits")]
pub struct NotAnId;

impl UniqueId {
    /// Draws an id that nothing else has, in this process or another.
    #[must_use]
    pub fn random() -> Self {
        Self(LeaseId::random().0)
    }
}

impl fmt::Display for UniqueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl FromStr for UniqueId {
    type Err = NotAnId;

    /// Parses the digits in either case. No sign or other character is accepted.
    fn from_str(text: &str) -> Result<Self, NotAnId> {
        if text.len() != 32 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(NotAnId);
        }
        let number = u128::from_str_radix(text, 16).map_err(|_| NotAnId)?;
        Ok(Self(number.to_be_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_ids_are_distinct() {
        let ids: std::collections::HashSet<_> = (0..1_000).map(|_| UniqueId::random()).collect();
        assert_eq!(ids.len(), 1_000);
    }

    #[test]
    fn ids_are_32_digits() {
        let id = UniqueId(*b"\x00\x01\x02\x7f\x80\xff\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\xf0");
        assert_eq!(id.to_string(), "0001027f80ff060708090a0b0c0d0ef0");
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_eq!("0001027F80FF060708090A0B0C0D0EF0".parse(), Ok(id));
        let digits = "0".repeat(32);
        assert_eq!(digits.parse(), Ok(UniqueId([0; 16])));
        let (short, long, signed) =
            (&digits[1..], format!("{digits}0"), format!("+{}", &digits[1..]));
        for text in ["", "*", short, &long, &signed, &"g".repeat(32), &"\u{e4}".repeat(16)] {
            assert_eq!(text.parse::<UniqueId>(), Err(NotAnId), "{text}");
        }
    }
}
