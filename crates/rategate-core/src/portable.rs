//! What a policy says of the form in which its states are saved.

use alloc::vec::Vec;
use core::error::Error;
use core::fmt;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::exact::{Exact, Pace};
use crate::policy::Policy;

/// The instant of restoring, and the time since saving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestoreContext {
    /// The reading of the clock on which the limit continues.
    pub now_ns: u64,
    /// The time since the limit was saved. Less than the true time is safe, more is not.
    pub elapsed_ns: u64,
}

/// A reason for which saved data is not a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SavedError {
    /// The limit is of another policy.
    OtherPolicy {
        /// The name of that policy.
        saved: &'static str,
    },
    /// There are more limits than policies, or fewer.
    OtherCount {
        /// The number of limits saved.
        found: usize,
    },
    /// The data is no state of a limit with these numbers.
    Malformed,
    /// A ramp began before the clock's zero. A clock that shows `short_ns` more can represent it.
    BeforeClock {
        /// The additional time that the clock has to show when the limit is restored.
        short_ns: u64,
    },
}

impl fmt::Display for SavedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherPolicy { saved } => write!(f, "the limit is of another policy, {saved}"),
            Self::OtherCount { found } => {
                write!(f, "{found} limits were saved, which is not the number of the policies")
            }
            Self::Malformed => f.write_str("the data is no state of a limit with these numbers"),
            Self::BeforeClock { short_ns } => {
                write!(
                    f,
                    "a ramp began before the clock's zero; restore on a clock that shows \
                     {short_ns} ns more"
                )
            }
        }
    }
}

impl Error for SavedError {}

/// A policy whose states can be saved.
pub(crate) trait Portable: Policy {
    /// A state as it is saved, by the clock of then.
    type Saved: Serialize + DeserializeOwned;

    fn save(&self, state: &Self::State, now_ns: u64) -> Self::Saved;

    /// Returns the state on the clock of now, under the numbers with which it was saved.
    fn load(&self, saved: Self::Saved, since: Shift) -> Result<Self::State, SavedError>;
}

/// The way from the clock of then to that of now.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_field_names, reason = "all are instants, and wear their unit")]
pub(crate) struct Shift {
    now_ns: u64,
    then_ns: u128,
    settled_ns: u64,
}

impl Shift {
    /// Returns the instant of restoring.
    pub(crate) const fn now_ns(self) -> u64 {
        self.now_ns
    }

    /// Returns when all promises have started: not before the instant of restoring.
    pub(crate) const fn settled_ns(self) -> u64 {
        self.settled_ns
    }

    /// Returns the instant of restoring by the old clock.
    pub(crate) const fn then_ns(self) -> u128 {
        self.then_ns
    }

    /// Returns the new clock's zero by the old clock, or zero if that began later.
    pub(crate) fn zero_ns(self) -> u128 {
        self.then_ns.saturating_sub(self.now_ns.into())
    }

    /// Returns an instant by the new clock, not before its zero.
    pub(crate) fn instant_ns(self, ns: u128) -> u128 {
        let ahead_ns = u128::from(self.now_ns).saturating_sub(self.then_ns);
        ns.saturating_add(ahead_ns).saturating_sub(self.zero_ns())
    }

    /// Returns an instant by the new clock, within it. The end of the old one stays the end.
    pub(crate) fn clock_ns(self, ns: u64) -> u64 {
        if ns == u64::MAX {
            return ns;
        }
        u64::try_from(self.instant_ns(ns.into())).unwrap_or(u64::MAX)
    }

    /// Returns an instant with its fraction of a nanosecond by the new clock.
    pub(crate) fn exact(self, instant: Exact, pace: Pace) -> Result<Exact, SavedError> {
        if !instant.is_in(pace) {
            return Err(SavedError::Malformed);
        }
        if instant.ns < self.zero_ns() {
            return Ok(Exact::default());
        }
        Ok(Exact { ns: self.instant_ns(instant.ns), ..instant })
    }
}

/// Appends data to bytes. All of it has a known length, so that it can always be written.
pub(crate) fn appended(data: &impl Serialize, bytes: Vec<u8>) -> Vec<u8> {
    postcard::to_extend(data, bytes).unwrap_or_default()
}

/// Reads all of the bytes.
pub(crate) fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, SavedError> {
    match postcard::take_from_bytes(bytes) {
        Ok((data, [])) => Ok(data),
        _ => Err(SavedError::Malformed),
    }
}

impl Shift {
    /// Appends the instant of saving, and for how long no call starts after that.
    pub(crate) fn begin(now_ns: u64, lead_ns: u64, bytes: Vec<u8>) -> Vec<u8> {
        appended(&(now_ns, lead_ns), bytes)
    }

    /// Reads what [`begin`](Self::begin) has written. Returns the rest as well.
    pub(crate) fn read(bytes: &[u8], context: RestoreContext) -> Result<(Self, &[u8]), SavedError> {
        let (saved, rest) = postcard::take_from_bytes(bytes).map_err(|_| SavedError::Malformed)?;
        let ((saved_ns, lead_ns), RestoreContext { now_ns, elapsed_ns }): ((u64, u64), _) =
            (saved, context);
        let then_ns = u128::from(saved_ns).saturating_add(elapsed_ns.into());
        let settled_ns = now_ns.saturating_add(lead_ns.saturating_sub(elapsed_ns));
        Ok((Self { now_ns, then_ns, settled_ns }, rest))
    }
}

/// Lets a struct be read whose fields have to fit together, by its method `checked`.
macro_rules! read_checked {
    ($name:ident { $($field:ident: $kind:ty),+ }) => {
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                #[derive(serde::Deserialize)]
                struct Fields {
                    $($field: $kind),+
                }

                let Fields { $($field),+ } = Fields::deserialize(deserializer)?;
                Self { $($field),+ }.checked().map_err(serde::de::Error::custom)
            }
        }
    };
}

pub(crate) use read_checked;
