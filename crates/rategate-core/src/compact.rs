//! Limits whose numbers and whose state are a few words each, so that a twin of several can hold them
//! all: the policy and its state as they are, and the same in plain words.

use core::num::NonZeroU64;

use crate::agree::Member;
use crate::any_policy::{AnyPolicy, AnyState};
use crate::fixed_window::{self, FixedWindow};
use crate::gcra::{self, Gcra};
use crate::policy::{Policy, Taken};
use crate::verdict::{Opening, Refusal};

/// How many words numbers take, and how many a state.
pub(crate) const WORDS: usize = 3;

/// Which policies there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Bucket,
    Window,
}

/// A policy and its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compact {
    Bucket(Gcra, gcra::State),
    Window(FixedWindow, fixed_window::State),
}

impl Kind {
    /// The kind of a policy, if it is one of these.
    pub(crate) const fn of(policy: &AnyPolicy) -> Option<Self> {
        match policy {
            AnyPolicy::Gcra(_) => Some(Self::Bucket),
            AnyPolicy::FixedWindow(_) => Some(Self::Window),
            _ => None,
        }
    }
}

impl Compact {
    /// What a ledger has, if it is one of these.
    pub(crate) const fn new(policy: &AnyPolicy, state: &AnyState) -> Option<Self> {
        match (policy, state) {
            (AnyPolicy::Gcra(policy), AnyState::Gcra(state)) => Some(Self::Bucket(*policy, *state)),
            (AnyPolicy::FixedWindow(policy), AnyState::FixedWindow(state)) => {
                Some(Self::Window(*policy, *state))
            }
            _ => None,
        }
    }

    /// The limit that these words say.
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

    /// The numbers, if they fit.
    pub(crate) const fn numbers(&self) -> Option<[u64; WORDS]> {
        match self {
            Self::Bucket(policy, _) => policy.to_words(),
            Self::Window(policy, _) => Some(policy.to_words()),
        }
    }

    /// The state, if it fits.
    #[inline]
    pub(crate) fn words(&self) -> Option<[u64; WORDS]> {
        match self {
            Self::Bucket(policy, state) => policy.state_to_words(state),
            Self::Window(_, state) => FixedWindow::state_to_words(state),
        }
    }

    /// The state as a ledger keeps it.
    pub(crate) const fn state(&self) -> AnyState {
        match self {
            Self::Bucket(_, state) => AnyState::Gcra(*state),
            Self::Window(_, state) => AnyState::FixedWindow(*state),
        }
    }

    /// Records a grant. Returns until when the limit could not be at rest without it.
    #[inline]
    pub(crate) fn take(&mut self, grant: Taken) -> u64 {
        match self {
            Self::Bucket(policy, state) => taken(policy, state, grant),
            Self::Window(policy, state) => taken(policy, state, grant),
        }
    }

    #[inline]
    pub(crate) fn remaining(&self, now_ns: u64) -> u64 {
        match self {
            Self::Bucket(policy, state) => policy.remaining(state, now_ns),
            Self::Window(policy, state) => policy.remaining(state, now_ns),
        }
    }
}

impl Member for Compact {
    #[inline]
    fn opening_from(
        &self,
        _now_ns: u64,
        from_ns: u64,
        permits: NonZeroU64,
    ) -> Result<Opening, Refusal> {
        match self {
            Self::Bucket(policy, state) => policy.opening(state, from_ns, permits),
            Self::Window(policy, state) => policy.opening(state, from_ns, permits),
        }
    }
}

fn taken<P: Policy>(policy: &P, state: &mut P::State, grant: Taken) -> u64 {
    let busy_until_ns = policy.busy_until_ns(state, grant);
    policy.take(state, grant);
    busy_until_ns
}
