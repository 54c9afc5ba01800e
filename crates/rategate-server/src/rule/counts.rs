//! The amount that a call counts in a limit: its permits, one request, or the cost of what it used.
//!
//! # Contract
//!
//! * **Exact.** A cost is the sum of the counts times their weights, in whole numbers, rounded up
//!   once. No part of it is rounded before.
//! * **Nothing is guessed.** A unit without a weight, a model without prices, and a cost that does
//!   not fit in 64 bits are errors, and nothing is counted then.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::nearest::a_few;

/// The amount that a call counts in a limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Counts {
    /// The permits of the call.
    #[default]
    Permits,
    /// One permit for each call of at least one permit, however many it has.
    Requests,
    /// The cost of what the call used. Permits without usage count as they are.
    Usage(Arc<Weights>),
    /// The price of what the call used, in millionths of a unit of money, by the name of the
    /// model.
    Money(Arc<Prices>),
}

/// The weights of the units that a call can use, as exact fractions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Weights {
    /// The numerators by unit, in the order of the names.
    numerators: Vec<(Arc<str>, u64)>,
    denominator: u64,
}

/// Weights by the name of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prices(BTreeMap<Arc<str>, Weights>);

/// A limit of a rule that has several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dimension {
    /// The name of the rule.
    pub of: Arc<str>,
    /// The name of the limit within the rule.
    pub name: Arc<str>,
}

/// A fraction of whole numbers, in lowest terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weight {
    numerator: u64,
    denominator: u64,
}

/// The reason why a usage has no cost.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CostError {
    /// The limit has no weights.
    #[error("has no weights; send `permits` in place of `usage`")]
    NoWeights,
    /// A unit has no weight.
    #[error("has no weight for {unit:?}; it has weights for {known}")]
    UnknownUnit {
        /// The unit, cut to 64 characters.
        unit: String,
        /// The units that have one.
        known: String,
    },
    /// The call has no usage, of which alone the price is known.
    #[error("counts money; send `usage` and `model` in place of `permits`")]
    NoUsage,
    /// The call names no model.
    #[error("has prices by model; send the `model` beside `usage`")]
    NoModel,
    /// A model has no prices.
    #[error("has no prices for the model {model:?}; {known}")]
    UnknownModel {
        /// The model, cut to 64 characters.
        model: String,
        /// Some of the models that have some.
        known: String,
    },
    /// The cost exceeds 64 bits.
    #[error("cannot count so much: the cost exceeds 18446744073709551615 permits")]
    TooMuch,
}

/// The usage of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Usage<'a> {
    /// The number of each unit.
    pub counts: &'a [(&'a str, u64)],
    /// The model, for limits of money.
    pub model: Option<&'a str>,
}

impl Counts {
    /// Returns what a call of `permits` counts, or the cost of its usage if it has one. A limit of
    /// money that is not `alone` among those of the call needs its usage.
    ///
    /// # Errors
    ///
    /// [`CostError`].
    pub fn amount(
        &self,
        permits: u64,
        usage: Option<&Usage<'_>>,
        alone: bool,
    ) -> Result<u64, CostError> {
        match (self, usage) {
            (Self::Requests, Some(_)) => Ok(1),
            (Self::Requests, None) => Ok(permits.min(1)),
            (Self::Permits, Some(_)) => Err(CostError::NoWeights),
            (Self::Money(_), None) if !alone && permits > 0 => Err(CostError::NoUsage),
            (Self::Permits | Self::Usage(_) | Self::Money(_), None) => Ok(permits),
            (Self::Usage(weights), Some(usage)) => weights.cost(usage.counts),
            (Self::Money(prices), Some(usage)) => prices.of(usage.model)?.cost(usage.counts),
        }
    }
}

impl Weights {
    /// Creates weights by unit. Returns `None` if there are none, or if they have no common
    /// denominator of 64 bits.
    #[must_use]
    pub fn new(weights: impl IntoIterator<Item = (Arc<str>, Weight)>) -> Option<Self> {
        let weights: BTreeMap<Arc<str>, Weight> = weights.into_iter().collect();
        let denominator = weights.values().try_fold(1_u64, |common, weight| {
            let shared = gcd(common, weight.denominator);
            common.checked_mul(weight.denominator.checked_div(shared)?)
        })?;
        let numerator = |weight: &Weight| {
            weight.numerator.checked_mul(denominator.checked_div(weight.denominator)?)
        };
        let all = weights.iter().map(|(unit, weight)| Some((Arc::clone(unit), numerator(weight)?)));
        let numerators = all.collect::<Option<Vec<_>>>()?;
        (!numerators.is_empty()).then_some(Self { numerators, denominator })
    }

    /// Returns the cost of a usage, rounded up once.
    ///
    /// # Errors
    ///
    /// [`CostError::UnknownUnit`] or [`CostError::TooMuch`].
    pub fn cost(&self, counts: &[(&str, u64)]) -> Result<u64, CostError> {
        let mut sum = 0_u128;
        for (unit, count) in counts {
            let found = self.numerators.iter().find(|(known, _)| **known == **unit);
            let Some((_, numerator)) = found else { return Err(self.unknown(unit)) };
            let part = u128::from(*count).checked_mul(u128::from(*numerator));
            sum = part.and_then(|part| sum.checked_add(part)).ok_or(CostError::TooMuch)?;
        }
        // A denominator is never 0.
        u64::try_from(sum.div_ceil(u128::from(self.denominator.max(1))))
            .map_err(|_| CostError::TooMuch)
    }

    /// Returns the units with their weights.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, Weight)> {
        let of = |numerator| Weight::new(numerator, self.denominator);
        self.numerators.iter().filter_map(move |(unit, numerator)| Some((unit, of(*numerator)?)))
    }

    fn unknown(&self, unit: &str) -> CostError {
        let known: Vec<&str> = self.numerators.iter().map(|(unit, _)| &**unit).collect();
        CostError::UnknownUnit { unit: cut(unit), known: known.join(", ") }
    }
}

impl Prices {
    /// The name that stands for all models without prices of their own.
    pub const OTHERS: &'static str = "*";

    /// Creates prices by model. Returns `None` if there are none.
    #[must_use]
    pub fn new(prices: BTreeMap<Arc<str>, Weights>) -> Option<Self> {
        (!prices.is_empty()).then_some(Self(prices))
    }

    /// Returns the prices of a model.
    ///
    /// # Errors
    ///
    /// [`CostError::NoModel`] or [`CostError::UnknownModel`].
    pub fn of(&self, model: Option<&str>) -> Result<&Weights, CostError> {
        let model = model.ok_or(CostError::NoModel)?;
        let found = self.0.get(model).or_else(|| self.0.get(Self::OTHERS));
        found.ok_or_else(|| {
            let known = a_few(self.0.keys().map(|model| &**model));
            CostError::UnknownModel { model: cut(model), known }
        })
    }

    /// Returns the models with their prices.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Weights)> {
        self.0.iter()
    }
}

impl Weight {
    /// Creates a fraction. Returns `None` if the denominator is 0.
    #[must_use]
    pub fn new(numerator: u64, denominator: u64) -> Option<Self> {
        let shared = gcd(numerator, denominator);
        Some(Self {
            numerator: numerator.checked_div(shared)?,
            denominator: denominator.checked_div(shared).filter(|denominator| *denominator > 0)?,
        })
    }

    /// Parses a decimal number of at most 12 decimals.
    #[must_use]
    pub fn of_decimal(text: &str) -> Option<Self> {
        let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
        let is_plain = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
        let is_whole = is_plain(whole) && !whole.is_empty() && !text.ends_with('.');
        if !is_whole || !is_plain(decimals) || decimals.len() > 12 {
            return None;
        }
        let scale = 10_u64.checked_pow(u32::try_from(decimals.len()).ok()?)?;
        Self::new(format!("{whole}{decimals}").parse().ok()?, scale)
    }

    /// Parses a price in units of money, as `15/1M` of a million, as a weight in millionths.
    #[must_use]
    pub fn of_price(text: &str) -> Option<Self> {
        let (money, units) = text.split_once('/')?;
        let money = Self::of_decimal(money)?;
        let (number, scale) = match units.strip_suffix(['k', 'M', 'G']) {
            Some(number) if units.ends_with('k') => (number, 1_000),
            Some(number) if units.ends_with('M') => (number, MICRO),
            Some(number) => (number, 1_000_000_000),
            None => (units, 1),
        };
        let is_plain = number.bytes().all(|byte| byte.is_ascii_digit());
        let units = number.parse::<u64>().ok().filter(|_| is_plain)?.checked_mul(scale)?;
        // Both parts of the scale are reduced before they are multiplied.
        let in_millionths = Self::new(MICRO, units)?;
        let (one, other) = (
            Self::new(money.numerator, in_millionths.denominator)?,
            Self::new(in_millionths.numerator, money.denominator)?,
        );
        Self::new(
            one.numerator.checked_mul(other.numerator)?,
            one.denominator.checked_mul(other.denominator)?,
        )
    }

    /// Returns the text that [`Self::of_price`] parses to this weight.
    #[must_use]
    pub fn price_text(self) -> String {
        match self.denominator.checked_mul(MICRO) {
            Some(units) => format!("{}/{units}", self.numerator),
            None => format!("{self}/{MICRO}"),
        }
    }
}

/// The millionths in a unit of money.
const MICRO: u64 = 1_000_000;

/// Writes a decimal number. All weights that a configuration has are such numbers, or prices.
impl fmt::Display for Weight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut scale, mut decimals) = (1_u64, 0_usize);
        while scale.checked_rem(self.denominator) != Some(0) {
            let Some(next) = scale.checked_mul(10).filter(|_| decimals < 12) else {
                return write!(f, "{}/{}", self.numerator, self.denominator);
            };
            (scale, decimals) = (next, decimals.saturating_add(1));
        }
        let times = u128::from(scale.checked_div(self.denominator).unwrap_or(1));
        let digits = u128::from(self.numerator).saturating_mul(times).to_string();
        let digits = format!("{digits:0>width$}", width = decimals.saturating_add(1));
        let (whole, rest) = digits.split_at(digits.len().saturating_sub(decimals));
        if rest.is_empty() { f.write_str(whole) } else { write!(f, "{whole}.{rest}") }
    }
}

const fn gcd(one: u64, other: u64) -> u64 {
    let (mut one, mut other) = (one, other);
    while let Some(rest) = one.checked_rem(other) {
        (one, other) = (other, rest);
    }
    one
}

fn cut(text: &str) -> String {
    text.chars().take(64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weights(all: &[(&str, &str)]) -> Weights {
        let all =
            all.iter().map(|(unit, text)| ((*unit).into(), Weight::of_decimal(text).unwrap()));
        Weights::new(all).unwrap()
    }

    #[test]
    fn costs_are_exact_and_rounded_up_once() {
        let all = [("input", "1"), ("cached", "0.1"), ("write", "1.25"), ("output", "6")];
        let weights = weights(&all);
        let cost = |counts: &[(&str, u64)]| weights.cost(counts);
        assert_eq!(cost(&[]), Ok(0));
        assert_eq!(cost(&[("cached", 1)]), Ok(1));
        // Each by itself would be rounded up to 1 + 2.
        assert_eq!(cost(&[("cached", 1), ("write", 1)]), Ok(2));
        assert_eq!(cost(&[("cached", 5), ("write", 2)]), Ok(3), "3 exactly");
        assert_eq!(cost(&[("input", 100), ("output", 7)]), Ok(142));
        assert_eq!(cost(&[("cached", u64::MAX)]), Ok(u64::MAX / 10 + 1));
        assert_eq!(cost(&[("output", u64::MAX)]), Err(CostError::TooMuch));
        assert_eq!(cost(&[("input", u64::MAX), ("cached", 1)]), Err(CostError::TooMuch));
        let unknown = cost(&[("ouput", 1)]).unwrap_err().to_string();
        assert_eq!(
            unknown,
            "has no weight for \"ouput\"; it has weights for cached, input, output, write"
        );
    }

    /// Compares costs with fractions of 128 bits, added one by one.
    #[test]
    fn random_costs_equal_a_sum_of_fractions() {
        let mut rng = fastrand::Rng::with_seed(66);
        for _ in 0..20_000 {
            let texts: Vec<(u64, u32)> =
                (0..rng.usize(1..5)).map(|_| (rng.u64(0..5_000), rng.u32(0..7))).collect();
            let units = ["a", "b", "c", "d"];
            let named = units.iter().zip(&texts).map(|(unit, (number, decimals))| {
                let scale = 10_u64.pow(*decimals);
                let width = usize::try_from(*decimals).unwrap();
                let text = match decimals {
                    0 => number.to_string(),
                    _ => format!("{}.{:0width$}", number / scale, number % scale),
                };
                ((*unit).into(), Weight::of_decimal(&text).unwrap())
            });
            let weights = Weights::new(named).unwrap();
            let counts: Vec<(&str, u64)> =
                units.iter().zip(&texts).map(|(unit, _)| (*unit, rng.u64(0..1 << 40))).collect();
            let millionths: u128 = texts
                .iter()
                .zip(&counts)
                .map(|((number, decimals), (_, count))| {
                    u128::from(*number) * u128::from(*count) * 10_u128.pow(6 - decimals)
                })
                .sum();
            assert_eq!(u128::from(weights.cost(&counts).unwrap()), millionths.div_ceil(1_000_000));
        }
    }

    #[test]
    fn weights_and_prices_read_back_as_they_are_written() {
        for (text, shown) in [
            ("0.1", "0.1"),
            ("6", "6"),
            ("1.250", "1.25"),
            ("0", "0"),
            ("0.000000000001", "0.000000000001"),
        ] {
            let weight = Weight::of_decimal(text).unwrap();
            assert_eq!(
                (weight.to_string().as_str(), Weight::of_decimal(shown)),
                (shown, Some(weight))
            );
        }
        for text in [
            "",
            ".5",
            "1.",
            "-1",
            "1e3",
            "+1",
            "1.2.3",
            "0.0000000000001",
            "1/3",
            "18446744073709551616",
        ] {
            assert_eq!(Weight::of_decimal(text), None, "{text}");
        }
        let price = Weight::of_price;
        assert_eq!(price("15/1M"), Weight::new(15, 1));
        assert_eq!(price("0.25/1M"), Weight::new(1, 4));
        assert_eq!(price("2.5/1k"), Weight::new(2_500, 1));
        assert_eq!(price("3/1"), Weight::new(3_000_000, 1));
        assert_eq!(price("0.075/1G"), Weight::new(75, 1_000_000));
        for text in ["15/1M", "0.25/1M", "2.5/1k", "0/1M", "0.075/1G", "1/3"] {
            let weight = price(text).unwrap();
            assert_eq!(price(&weight.price_text()), Some(weight), "{text}");
        }
        for text in ["15", "15/", "/1M", "15/M", "15/0", "15/-1", "15/1T", "x/1M"] {
            assert_eq!(price(text), None, "{text}");
        }
    }

    #[test]
    fn a_limit_counts_what_it_says() {
        let usage = Usage { counts: &[("in", 3)], model: None };
        assert_eq!(Counts::Permits.amount(7, None, true), Ok(7));
        assert_eq!(Counts::Permits.amount(0, Some(&usage), true), Err(CostError::NoWeights));
        assert_eq!(
            [0, 1, 9].map(|permits| Counts::Requests.amount(permits, None, false)),
            [Ok(0), Ok(1), Ok(1)]
        );
        assert_eq!(Counts::Requests.amount(0, Some(&usage), false), Ok(1));
        let weighted = Counts::Usage(Arc::new(weights(&[("in", "2")])));
        assert_eq!(weighted.amount(7, None, false), Ok(7));
        assert_eq!(weighted.amount(7, Some(&usage), false), Ok(6));
        let prices = BTreeMap::from([("m".into(), weights(&[("in", "5")]))]);
        let money = Counts::Money(Arc::new(Prices::new(prices).unwrap()));
        let of = |model| money.amount(0, Some(&Usage { model, ..usage }), false);
        assert_eq!(of(Some("m")), Ok(15));
        assert_eq!(of(None), Err(CostError::NoModel));
        let unknown = of(Some("n")).unwrap_err().to_string();
        assert_eq!(unknown, "has no prices for the model \"n\"; known: `m`");
        assert_eq!(money.amount(7, None, false), Err(CostError::NoUsage));
        assert_eq!((money.amount(7, None, true), money.amount(0, None, false)), (Ok(7), Ok(0)));
    }
}
