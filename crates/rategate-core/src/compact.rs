//! Limits whose numbers and state take a few words each, so that a lock-free state can hold
//! several: the policy and its state as they are, and in plain words.

use core::num::NonZeroU64;

use crate::any_policy::{AnyPolicy, Member};
use crate::fixed_window::{self, FixedWindow};
use crate::gcra::{self, Gcra};
use crate::policy::{Policy, Taken};
use crate::verdict::{Opening, Refusal};

/// The number of words for the numbers, and for the state.
pub(crate) const WORDS: usize = 3;

/// The kinds of policies with a compact form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Bucket,
    Window,
}

/// A policy and its state, in one of these kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compact {
    Bucket(Gcra, gcra::State),
    Window(FixedWindow, fixed_window::State),
}

impl Kind {
    /// Returns the kind of a policy, or `None` if it has no compact form.
    pub(crate) const fn of(policy: &AnyPolicy) -> Option<Self> {
        match policy {
            AnyPolicy::Gcra(_) => Some(Self::Bucket),
            AnyPolicy::FixedWindow(_) => Some(Self::Window),
            _ => None,
        }
    }
}

impl Compact {
    /// Returns the compact form of a limit, if there is one.
    pub(crate) const fn new(member: &Member) -> Option<Self> {
        match member {
            Member::Gcra(policy, state) => Some(Self::Bucket(*policy, *state)),
            Member::FixedWindow(policy, state) => Some(Self::Window(*policy, *state)),
            _ => None,
        }
    }

    /// Returns the limit written in these words.
    #[inline]
    pub(crate) fn from_words(kind: Kind, numbers: [u64; WORDS], state: [u64; WORDS]) -> Self {
        match kind {
            Kind::Bucket => {
                let (policy, state) = Gcra::from_words(numbers, state);
                Self::Bucket(policy, state)
            }
            Kind::Window => {
                let (policy, state) = FixedWindow::from_words(numbers, state);
                Self::Window(policy, state)
            }
        }
    }

    /// Returns the numbers in words, if they fit.
    pub(crate) const fn numbers(&self) -> Option<[u64; WORDS]> {
        match self {
            Self::Bucket(policy, _) => policy.to_words(),
            Self::Window(policy, _) => Some(policy.to_words()),
        }
    }

    /// Returns the state in words, if it fits.
    #[inline]
    pub(crate) fn words(&self) -> Option<[u64; WORDS]> {
        match self {
            Self::Bucket(policy, state) => policy.state_to_words(state),
            Self::Window(_, state) => FixedWindow::state_to_words(state),
        }
    }

    /// Returns the limit as a ledger keeps it.
    pub(crate) const fn member(&self) -> Member {
        match self {
            Self::Bucket(policy, state) => Member::Gcra(*policy, *state),
            Self::Window(policy, state) => Member::FixedWindow(*policy, *state),
        }
    }

    /// Records a grant.
    #[inline]
    pub(crate) fn take(&mut self, grant: Taken) {
        match self {
            Self::Bucket(policy, state) => policy.take(state, grant),
            Self::Window(policy, state) => policy.take(state, grant),
        }
    }

    #[inline]
    pub(crate) fn remaining(&self, now_ns: u64) -> u64 {
        match self {
            Self::Bucket(policy, state) => policy.remaining(state, now_ns),
            Self::Window(policy, state) => policy.remaining(state, now_ns),
        }
    }

    #[inline]
    pub(crate) fn opening(&self, from_ns: u64, permits: NonZeroU64) -> Result<Opening, Refusal> {
        match self {
            Self::Bucket(policy, state) => policy.opening(state, from_ns, permits),
            Self::Window(policy, state) => policy.opening(state, from_ns, permits),
        }
    }
}
