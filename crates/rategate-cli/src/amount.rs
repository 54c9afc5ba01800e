//! Parsing of exact byte amounts: `"64KiB"`, `"1.5MB"`, `"300B"`.

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
pub(crate) enum AmountError {
    Malformed,
    UnknownUnit,
    NoWholeNumber,
    TooLarge,
}

/// An amount as `mantissa / 10^decimals`, and its unit if it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Amount {
    mantissa: u128,
    decimals: usize,
    /// The text has a unit of bytes; a count has none.
    pub(crate) in_bytes: bool,
}

impl Amount {
    /// Parses a decimal, with a unit of bytes or without a unit.
    pub(crate) fn parse(text: &str) -> Result<Self, AmountError> {
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

    /// Returns the amount as a whole number.
    pub(crate) fn whole(self) -> Result<u64, AmountError> {
        let tens = u32::try_from(self.decimals).ok().and_then(|power| 10_u128.checked_pow(power));
        // A number with more decimals than 128 bits hold is whole only if it is zero.
        let tens = tens.ok_or(AmountError::NoWholeNumber)?;
        match (self.mantissa.checked_div(tens), self.mantissa.checked_rem(tens)) {
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

impl fmt::Display for AmountError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => {
                "not an amount; write a plain decimal, with a unit if it counts bytes"
            }
            Self::UnknownUnit => {
                "unknown unit; bytes come in B kB MB GB TB or KiB MiB GiB TiB, and counts have none"
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
            assert_eq!((amount.whole(), amount.in_bytes), (Ok(whole), in_bytes), "{text}");
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
