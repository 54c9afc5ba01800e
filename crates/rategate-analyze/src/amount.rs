//! Parsing of exact amounts of calls or bytes: `"64KiB"`, `"1.5MB"`, `"300B"`.

use std::fmt;

/// The units of byte amounts, with their factors.
const UNITS: [(&str, u64); 9] = [
    ("B", 1),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
];

/// The reason why a text is not an amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AmountError {
    /// The text is not a plain decimal.
    Malformed,
    /// The unit is none of bytes.
    UnknownUnit,
    /// The amount is not a whole number.
    NoWholeNumber,
    /// The amount exceeds 64 bits.
    TooLarge,
}

/// An exact amount: `mantissa / 10^decimals` bytes or units without a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Amount {
    mantissa: u128,
    decimals: usize,
    in_bytes: bool,
}

impl Amount {
    /// Parses a decimal, with a unit of bytes or without a unit.
    ///
    /// # Errors
    ///
    /// [`AmountError`] says why the text is not an amount.
    pub fn parse(text: &str) -> Result<Self, AmountError> {
        let end = text.find(|c: char| c != '.' && !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(end);
        let (whole, fraction) = match number.split_once('.') {
            Some((whole, fraction)) if !fraction.is_empty() => (whole, fraction),
            Some(_) => return Err(AmountError::Malformed),
            None => (number, ""),
        };
        if whole.is_empty() || fraction.contains('.') {
            return Err(AmountError::Malformed);
        }
        let factor = match UNITS.iter().find(|(name, _)| *name == unit) {
            Some((_, factor)) => *factor,
            None if unit.is_empty() => 1,
            // "1e9" is a number in a notation that is not accepted here, not a unit.
            None if !unit.chars().all(char::is_alphabetic) => return Err(AmountError::Malformed),
            None => return Err(AmountError::UnknownUnit),
        };
        let fraction = fraction.trim_end_matches('0');
        let digits = format!("{whole}{fraction}");
        let mantissa = digits.parse::<u128>().ok().and_then(|read| read.checked_mul(factor.into()));
        let mantissa = mantissa.ok_or(AmountError::TooLarge)?;
        Ok(Self { mantissa, decimals: fraction.len(), in_bytes: !unit.is_empty() })
    }

    /// Returns `true` if the text has a unit of bytes; a count has none.
    #[must_use]
    pub const fn in_bytes(self) -> bool {
        self.in_bytes
    }

    /// Returns the amount as a whole number.
    ///
    /// # Errors
    ///
    /// [`AmountError`] if it is none, or exceeds 64 bits.
    pub fn whole(self) -> Result<u64, AmountError> {
        self.times(1)
    }

    /// Returns a multiple of the amount as a whole number.
    pub(crate) fn times(self, factor: u32) -> Result<u64, AmountError> {
        let mantissa = self.mantissa.checked_mul(factor.into()).ok_or(AmountError::TooLarge)?;
        let tens = u32::try_from(self.decimals).ok().and_then(|power| 10_u128.checked_pow(power));
        // A number with more decimals than 128 bits hold is whole only if it is zero.
        let tens = tens.ok_or(AmountError::NoWholeNumber)?;
        match (mantissa.checked_div(tens), mantissa.checked_rem(tens)) {
            (Some(whole), Some(0)) => u64::try_from(whole).map_err(|_| AmountError::TooLarge),
            _ => Err(AmountError::NoWholeNumber),
        }
    }
}

/// The number as a plain decimal without its unit: `1572864.0` for `1.5MiB`.
impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = format!("{:0>1$}", self.mantissa, self.decimals.saturating_add(1));
        let (whole, fraction) = digits.split_at(digits.len().saturating_sub(self.decimals));
        match fraction {
            "" => f.write_str(whole),
            _ => write!(f, "{whole}.{fraction}"),
        }
    }
}

impl std::error::Error for AmountError {}

impl fmt::Display for AmountError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => {
                "not an amount; write a plain decimal, with a unit if it counts bytes"
            }
            Self::UnknownUnit => {
                "unknown unit; bytes come in B kB MB GB TB or KiB MiB GiB TiB, and counts have none, or \
                 k M G in a rate"
            }
            Self::NoWholeNumber => "not a whole number",
            Self::TooLarge => "more than 64 bits hold",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Amount, AmountError};

    #[test]
    fn amounts_are_exact() {
        for (text, whole, in_bytes) in [
            ("5", 5, false),
            ("300B", 300, true),
            ("1.5MiB", 1_572_864, true),
            ("0.5kB", 500, true),
            ("1.50TB", 1_500_000_000_000, true),
            ("16777215TiB", 16_777_215 << 40, true),
        ] {
            let amount = Amount::parse(text).unwrap();
            assert_eq!((amount.whole(), amount.in_bytes()), (Ok(whole), in_bytes), "{text}");
        }
        assert_eq!(Amount::parse("1.5MiB").unwrap().to_string(), "1572864.0");
        assert_eq!(Amount::parse("0.05").unwrap().to_string(), "0.05");
    }

    #[test]
    fn what_is_no_amount_says_why() {
        for (text, error) in [
            ("", AmountError::Malformed),
            (".5", AmountError::Malformed),
            ("5.", AmountError::Malformed),
            ("1.2.3", AmountError::Malformed),
            ("-5", AmountError::Malformed),
            ("1e9", AmountError::Malformed),
            ("5KB", AmountError::UnknownUnit),
            ("5 MB", AmountError::Malformed),
            ("999999999999999999999999999999999999999999", AmountError::TooLarge),
        ] {
            assert_eq!(Amount::parse(text), Err(error), "{text}");
        }
        assert_eq!(Amount::parse("1.5").unwrap().whole(), Err(AmountError::NoWholeNumber));
        assert_eq!(Amount::parse("0.0001kB").unwrap().whole(), Err(AmountError::NoWholeNumber));
        assert_eq!(Amount::parse("16777216TiB").unwrap().whole(), Err(AmountError::TooLarge));
    }
}
