//! Credits as they are written: a share of a limit, or a number of permits.

use schemars::{Schema, SchemaGenerator, json_schema};

use super::limit::Algorithm;
use super::text::{Grammar, percent};

/// The maximum that a window leaves to the next of what it did not use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Credits {
    Permits(u64),
    /// A share of the limit, of 10 000.
    Share(u16),
}

const BOUNDS: &str = "a window leaves from \"0.01%\" to \"100%\" of its limit, with at most two \
                      decimals, or a number of permits";

impl Credits {
    /// Returns the credits of a limit of `permits` in each window.
    pub(super) fn of(self, permits: u64) -> Result<u64, String> {
        match self {
            Self::Permits(credits) if credits <= permits => Ok(credits),
            Self::Permits(credits) => Err(format!(
                "{credits} permits of credits are more than a window has; a limit of {permits} \
                 leaves at most {permits}"
            )),
            Self::Share(share) => {
                let scaled = u128::from(permits).saturating_mul(share.into());
                match u64::try_from(scaled.checked_div(10_000).unwrap_or(0)) {
                    Ok(credits @ 1..) => Ok(credits),
                    _ => Err(format!(
                        "this share of {permits} permits is less than one; write a larger share, or \
                         a number of permits"
                    )),
                }
            }
        }
    }
}

/// Checks credits for errors that do not depend on the limit.
pub(super) fn check(algorithm: Algorithm) -> Result<(), String> {
    match algorithm {
        Algorithm::FixedWindow | Algorithm::Calendar => Ok(()),
        other => Err(format!(
            "credits belong to the algorithms \"fixed-window\" and \"calendar\", and this one is \
             {:?}; leave out one of the two",
            other.name()
        )),
    }
}

impl Grammar for Credits {
    const WHAT: &'static str = "a share of the limit, or a number of permits";
    const EXAMPLES: &'static [&'static str] = &["20%", "100%"];

    fn read(text: &str) -> Result<Self, String> {
        let share = percent(text, 2).and_then(|share| u16::try_from(share).ok());
        match share {
            Some(0) => Err("credits of 0% are none; leave the key out".to_owned()),
            Some(share @ 1..=10_000) => Ok(Self::Share(share)),
            _ => Err(format!("{text:?} is not a share that a window can leave: {BOUNDS}")),
        }
    }

    fn of_number(number: i64) -> Option<Result<Self, String>> {
        Some(match u64::try_from(number) {
            Ok(0) => Err("credits of 0 are none; leave the key out".to_owned()),
            Ok(credits) => Ok(Self::Permits(credits)),
            Err(_) => Err(format!("{number} is no number of permits: {BOUNDS}")),
        })
    }

    fn schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [
            { "type": "integer", "minimum": 1 },
            { "type": "string", "description": Self::WHAT, "examples": Self::EXAMPLES },
        ] })
    }
}
