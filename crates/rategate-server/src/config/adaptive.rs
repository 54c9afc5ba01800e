//! The keys of a limit of permits in flight that follows measurements.

use rategate::AdaptiveConcurrency;
use rategate::adaptive::{Adaptation, Bounds, Method};
use schemars::JsonSchema;
use serde::Deserialize;

use super::limit::{Algorithm, Written};
use super::rules::{KnownAlgorithm, Reader};
use super::tables::RuleTable;

/// The bounds of a limit of permits in flight that follows measurements, and the method that moves
/// it between them. Its ceiling is the `limit`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Adaptive {
    /// The least limit, and the maximum number of permits of one call. Default: 1.
    #[schemars(range(min = 1))]
    floor: Option<u32>,
    /// The limit until something is known. Default: 20, or the bound next to it.
    #[schemars(range(min = 1))]
    first: Option<u32>,
    /// The method that moves the limit. Default: "knee".
    #[serde(default)]
    method: MethodName,
}

/// A method that moves a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum MethodName {
    /// As many as the server works on at once, and a few more.
    #[default]
    Knee,
    /// One more for each that was served, a tenth less for each that was dropped.
    Aimd,
}

impl Adaptive {
    /// Returns the limit, or what is wrong with it and the key.
    pub(super) fn policy(
        self,
        ceiling: u64,
    ) -> Result<AdaptiveConcurrency, (&'static str, String)> {
        let Ok(ceiling @ 1..) = u32::try_from(ceiling) else {
            let why = format!("the ceiling of an adaptive limit is from 1 to {}", u32::MAX);
            return Err(("limit", format!("{why}, and this is {ceiling}")));
        };
        let floor = self.floor.unwrap_or(1);
        if !(1..=ceiling).contains(&floor) {
            let why = format!("the floor is {floor}; it must be from 1 to the limit, {ceiling}");
            return Err(("adaptive.floor", why));
        }
        let by_default = AdaptiveConcurrency::new(floor, ceiling).adaptation().bounds().first();
        let first = self.first.unwrap_or(by_default);
        let bounds = Bounds::try_new(floor, first, ceiling).map_err(|_| {
            let right = format!("it must be from the floor, {floor}, to the limit, {ceiling}");
            ("adaptive.first", format!("the limit at first is {first}; {right}"))
        })?;
        let method = match self.method {
            MethodName::Knee => Method::Knee,
            MethodName::Aimd => Method::Aimd,
        };
        Ok(AdaptiveConcurrency::following(Adaptation::new(bounds).with_method(method)))
    }

    /// Returns the keys of a limit.
    pub(super) fn of(policy: &AdaptiveConcurrency) -> Option<Self> {
        let bounds = policy.adaptation().bounds();
        let method = match policy.adaptation().method() {
            Method::Knee => MethodName::Knee,
            Method::Aimd => MethodName::Aimd,
            _ => return None,
        };
        Some(Self { floor: Some(bounds.floor()), first: Some(bounds.first()), method })
    }

    /// Returns the name of the method.
    pub(super) const fn method(self) -> &'static str {
        match self.method {
            MethodName::Knee => "knee",
            MethodName::Aimd => "aimd",
        }
    }

    /// Returns it as a table of a configuration.
    pub(super) fn to_toml(self) -> String {
        let number = |key: &str, number: Option<u32>| number.map(|it| format!("{key} = {it}"));
        let method = (self.method != MethodName::Knee).then(|| {
            let name = self.method();
            format!("method = \"{name}\"")
        });
        let keys = [number("floor", self.floor), number("first", self.first), method];
        format!("{{ {} }}", keys.into_iter().flatten().collect::<Vec<_>>().join(", "))
    }
}

impl Reader<'_> {
    /// Reads how a rule's limit follows measurements. A wrong value is reported.
    pub(super) fn adaptive(
        &mut self,
        table: &RuleTable,
        algorithm: KnownAlgorithm,
    ) -> Option<Adaptive> {
        let adaptive = table.adaptive?;
        let complaint = match (algorithm, table.limit.as_ref().map(|limit| &limit.0)) {
            _ if !table.limits.is_empty() => {
                "one of several limits does not follow measurements; write a rule of its own, which \
                 `also` adds"
            }
            (Some(other), _) if other != Algorithm::Concurrency => {
                "only permits in flight follow measurements; write algorithm = \"concurrency\", or \
                 leave it out"
            }
            _ if self.is_here(table.store) == Some(false) => {
                "measurements are of one process, and these counters are in a store; leave `store` \
                 out for a limit of each process, or `adaptive` for a fixed one of all"
            }
            _ if !table.tiers.is_empty() => {
                "an adaptive rule has no tiers; write a rule for each of them"
            }
            (Some(_), Some(Written::AtOnce(ceiling))) => {
                match adaptive.policy(*ceiling) {
                    Ok(_) => return Some(adaptive),
                    Err((key, complaint)) => self.complain(key, complaint),
                }
                return None;
            }
            (Some(_), Some(Written::Unlimited | Written::Exempt | Written::Nothing(_))) => {
                "an adaptive limit has a ceiling; write a number of permits as the limit"
            }
            // The limit or the algorithm is reported.
            _ => return None,
        };
        self.complain("adaptive", complaint);
        None
    }
}
