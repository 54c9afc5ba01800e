//! The verbs of `POST /v1/check`, and the members that each requires or rejects.

use std::fmt;
use std::time::Duration;

use rategate_core::span;
use serde::de::{Deserialize, Deserializer, Error, Expected, Visitor};

use super::invalid::{Invalid, quoted};
use super::json::{AtMost, Text, TimeText, Whole};
use crate::engine::{NotAnId, UniqueId};
use crate::net::Right;

/// The operation of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Verb {
    /// Takes the permits of all items, or none.
    #[default]
    Take,
    /// Returns the result of a take without taking.
    Peek,
    /// Charges permits that have been used already.
    Charge,
    /// Credits permits.
    Refund,
    /// Resets counters.
    Reset,
    /// Takes permits in flight under a name.
    Lease,
    /// Extends a lease.
    Renew,
    /// Ends a lease.
    Release,
    /// Holds estimates under an id.
    Reserve,
    /// Ends a reservation with what was used.
    Commit,
    /// Ends a reservation of which nothing was used.
    Cancel,
}

/// The verbs, by their names.
const VERBS: [(&str, Verb); 11] = [
    ("take", Verb::Take),
    ("peek", Verb::Peek),
    ("charge", Verb::Charge),
    ("refund", Verb::Refund),
    ("reset", Verb::Reset),
    ("lease", Verb::Lease),
    ("renew", Verb::Renew),
    ("release", Verb::Release),
    ("reserve", Verb::Reserve),
    ("commit", Verb::Commit),
    ("cancel", Verb::Cancel),
];

impl Verb {
    /// Returns the right that the verb needs. A release, a commit and a cancellation credit only
    /// permits whose name or id their caller knows.
    pub(super) const fn right(self) -> Right {
        match self {
            Self::Take
            | Self::Peek
            | Self::Charge
            | Self::Lease
            | Self::Renew
            | Self::Release
            | Self::Reserve
            | Self::Commit
            | Self::Cancel => Right::Ask,
            Self::Refund => Right::Credit,
            Self::Reset => Right::Admin,
        }
    }

    /// Returns `true` if items may have a usage in place of permits.
    pub(super) const fn uses(self) -> bool {
        matches!(
            self,
            Self::Take | Self::Peek | Self::Charge | Self::Refund | Self::Reserve | Self::Commit
        )
    }

    pub(super) const fn is_of_lease(self) -> bool {
        matches!(self, Self::Lease | Self::Renew | Self::Release)
    }

    /// Parses the lease's name, as the verb requires. A new lease needs none.
    pub(super) fn lease(self, written: Option<&Text<'_>>) -> Result<Option<UniqueId>, Invalid> {
        let detail = match written {
            Some(_) if !self.is_of_lease() => "only for the verbs `lease`, `renew` and `release`",
            Some(text) => return unique_id(text, "/lease", "a lease's name").map(Some),
            None if matches!(self, Self::Renew | Self::Release) => {
                "missing; write the `name` of the lease from the reply that granted it"
            }
            None => return Ok(None),
        };
        Err(Invalid::at("/lease", detail))
    }

    /// Parses the reservation's id, as the verb requires. A new reservation needs none.
    pub(super) fn id(self, written: Option<&Text<'_>>) -> Result<Option<UniqueId>, Invalid> {
        let detail = match written {
            Some(_) if !matches!(self, Self::Reserve | Self::Commit | Self::Cancel) => {
                "only for the verbs `reserve`, `commit` and `cancel`"
            }
            Some(text) => return unique_id(text, "/id", "an id").map(Some),
            None if matches!(self, Self::Commit | Self::Cancel) => {
                "missing; write the `id` from the reply that granted the reservation"
            }
            None => return Ok(None),
        };
        Err(Invalid::at("/id", detail))
    }

    pub(super) fn once(
        self,
        written: Option<&Text<'_>>,
        at_most: bool,
    ) -> Result<Option<UniqueId>, Invalid> {
        let Some(text) = written else { return Ok(None) };
        if !matches!(self, Self::Take | Self::Charge | Self::Refund) || at_most {
            let detail = "only for the verbs `take`, `charge` and `refund`, without `at_most`";
            return Err(Invalid::at("/once", detail));
        }
        unique_id(text, "/once", "an id").map(Some)
    }

    pub(super) fn ttl(self, written: Option<&TimeText<'_>>) -> Result<Option<Duration>, Invalid> {
        let Some(text) = written else { return Ok(None) };
        if self != Self::Reserve {
            return Err(Invalid::at("/ttl", "only for the verb `reserve`"));
        }
        time(&text.0, "/ttl").map(Some)
    }

    /// Returns `true` if a take may take fewer permits of each item, and the maximum number of
    /// permits that the only item of a reservation holds.
    pub(super) fn at_most(self, written: Option<AtMost>) -> Result<(bool, Option<Whole>), Invalid> {
        let detail = match (self, written) {
            (_, None | Some(AtMost::Any(false))) => return Ok((false, None)),
            (Self::Take, Some(AtMost::Any(true))) => return Ok((true, None)),
            (Self::Reserve, Some(AtMost::Permits(most))) => return Ok((false, Some(Whole(most)))),
            (Self::Take, Some(AtMost::Permits(_))) => {
                "true for the verb `take`; a reserve has a number of permits"
            }
            (Self::Reserve, Some(AtMost::Any(true))) => {
                "a number of permits for the verb `reserve`, of which `permits` is the minimum"
            }
            _ => "only the verbs `take` and `reserve` accept `at_most`",
        };
        Err(Invalid::at("/at_most", detail))
    }
}

impl<'de> Deserialize<'de> for Verb {
    /// Reads a verb. A derived reader would say of a number only that a value is expected.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Read;
        impl Visitor<'_> for Read {
            type Value = Verb;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a verb:")?;
                for (nth, (name, _)) in VERBS.iter().enumerate() {
                    write!(f, "{} `{name}`", if nth == 0 { "" } else { "," })?;
                }
                Ok(())
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Verb, E> {
                let verb = VERBS.iter().find(|(name, _)| *name == text).map(|(_, verb)| *verb);
                let expected: &dyn Expected = &self;
                verb.ok_or_else(|| E::custom(format_args!("{} is not {expected}", quoted(text))))
            }
        }
        deserializer.deserialize_any(Read)
    }
}

/// Parses an id, or the name of a lease.
fn unique_id(text: &Text<'_>, location: &str, what: &str) -> Result<UniqueId, Invalid> {
    text.0.parse().map_err(|NotAnId| {
        let detail = format!("{} is none; {what} is 32 hexadecimal digits", quoted(&text.0));
        Invalid::at(location, detail)
    })
}

/// Parses the time of a reservation.
pub(super) fn time(text: &str, location: &str) -> Result<Duration, Invalid> {
    span::parse(text).map(Duration::from_nanos).map_err(|error| {
        let detail = format!("{}: {error}; write a time like \"30s\" or \"1500ms\"", quoted(text));
        Invalid::at(location, detail)
    })
}
