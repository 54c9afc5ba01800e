//! Exact parsing of plain decimals: the numbers inside rates, durations and ratios.

/// A decimal number, `mantissa / divisor`, exactly as written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Decimal {
    pub(crate) mantissa: u128,
    /// A power of ten, never zero.
    pub(crate) divisor: u128,
}

/// The reason why a text is no decimal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DecimalError {
    Malformed,
    TooManyDigits,
}

/// Reads `digits[.digits]`: no sign, no exponent, at least one digit on each side of a point.
pub(crate) fn parse(text: &str) -> Result<Decimal, DecimalError> {
    let (whole, fraction) = match text.split_once('.') {
        Some((whole, fraction)) if !fraction.is_empty() => (whole, fraction),
        Some(_) => return Err(DecimalError::Malformed),
        None => (text, ""),
    };
    if whole.is_empty() {
        return Err(DecimalError::Malformed);
    }
    let mut decimal = Decimal { mantissa: 0, divisor: 1 };
    for digit in whole.bytes().chain(fraction.trim_end_matches('0').bytes()) {
        if !digit.is_ascii_digit() {
            return Err(DecimalError::Malformed);
        }
        let shifted = decimal.mantissa.checked_mul(10).ok_or(DecimalError::TooManyDigits)?;
        let value = u128::from(digit.saturating_sub(b'0'));
        decimal.mantissa = shifted.checked_add(value).ok_or(DecimalError::TooManyDigits)?;
    }
    for _ in fraction.trim_end_matches('0').bytes() {
        decimal.divisor = decimal.divisor.checked_mul(10).ok_or(DecimalError::TooManyDigits)?;
    }
    if fraction.bytes().any(|digit| !digit.is_ascii_digit()) {
        return Err(DecimalError::Malformed);
    }
    Ok(decimal)
}

/// Splits `"1.5ms"` into `"1.5"` and `"ms"`: the number ends at the first letter.
pub(crate) fn split_unit(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| c.is_alphabetic()).unwrap_or(text.len());
    text.split_at(end)
}

/// Returns the greatest common divisor; `gcd(0, b)` is `b`.
pub(crate) const fn gcd(mut a: u128, mut b: u128) -> u128 {
    while let Some(rest) = a.checked_rem(b) {
        a = b;
        b = rest;
    }
    a
}

/// Returns the greatest common divisor of two words.
pub(crate) const fn gcd_of_words(mut a: u64, mut b: u64) -> u64 {
    while let Some(rest) = a.checked_rem(b) {
        a = b;
        b = rest;
    }
    a
}
