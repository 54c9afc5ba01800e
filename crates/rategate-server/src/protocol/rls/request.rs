//! A request of Envoy's, from protocol buffers or JSON.

use smallvec::SmallVec;

use crate::engine::{MAX_ITEMS, Override};
use crate::messages::descriptor::RateLimitDescriptor;
use crate::messages::rls::RateLimitRequest;
use crate::rule::Unit;

/// A `RateLimitRequest`, whose texts are borrowed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RlsRequest<'a> {
    /// The domain of the rules.
    pub domain: &'a str,
    /// The descriptors. Each of them has to be within its limit.
    pub descriptors: SmallVec<[Descriptor<'a>; 2]>,
    /// The permits of each descriptor that states no number of its own; 0 means 1.
    pub hits: u32,
}

/// A descriptor of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Descriptor<'a> {
    /// The keys and values, in order.
    pub entries: SmallVec<[(&'a [u8], &'a [u8]); 4]>,
    /// The limit that the caller supplies.
    pub limit: Option<Override>,
    /// The number of permits. 0 reads the status and takes nothing.
    pub hits: Option<u64>,
    /// `true` if the permits are credited instead of taken.
    pub refund: bool,
}

/// The reason why a request is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MalformedRequest {
    /// The text is not this message in JSON.
    #[error("the request is malformed: {0}")]
    Json(String),
    /// The domain is empty.
    #[error("rate limit domain must not be empty")]
    NoDomain,
    /// There are no descriptors.
    #[error("rate limit descriptor list must not be empty")]
    NoDescriptors,
    /// The request has more items than allowed.
    #[error("there are more than {max} {what}")]
    TooMany {
        /// The kind of item.
        what: &'static str,
        /// The maximum number of items.
        max: usize,
    },
    /// A descriptor cannot be used as it is.
    #[error("descriptor {descriptor}: `{part}`: {problem}")]
    Descriptor {
        /// The index of the descriptor, from 0.
        descriptor: usize,
        /// The key of the entry, or the name of the field.
        part: String,
        /// The problem, and what would be accepted.
        problem: String,
    },
    /// The limit that the caller supplies has an unknown unit.
    #[error("the limit of descriptor {descriptor} has no unit")]
    NoUnit {
        /// The index of the descriptor, from 0.
        descriptor: usize,
    },
}

impl<'a> RlsRequest<'a> {
    /// Reads the message.
    ///
    /// # Errors
    ///
    /// [`MalformedRequest::TooMany`], [`MalformedRequest::NoUnit`].
    pub fn of(message: &'a RateLimitRequest) -> Result<Self, MalformedRequest> {
        few(message.descriptors.len(), "descriptors")?;
        let descriptors = message.descriptors.iter().enumerate();
        let descriptors = descriptors.map(|(index, it)| Descriptor::of(it, index));
        Ok(Self {
            domain: &message.domain,
            descriptors: descriptors.collect::<Result<_, _>>()?,
            hits: message.hits_addend,
        })
    }

    /// Returns `true` if the request credits permits.
    #[must_use]
    pub fn credits(&self) -> bool {
        self.descriptors.iter().any(|descriptor| descriptor.refund)
    }
}

impl<'a> Descriptor<'a> {
    fn of(message: &'a RateLimitDescriptor, index: usize) -> Result<Self, MalformedRequest> {
        few(message.entries.len(), "entries")?;
        let entries = message.entries.iter().map(|entry| (&*entry.key, &*entry.value));
        let limit = message.limit.as_ref().map(|limit| {
            let number = u32::try_from(limit.unit).unwrap_or(0);
            let unit =
                Unit::of_number(number).ok_or(MalformedRequest::NoUnit { descriptor: index })?;
            Ok(Override { permits: u64::from(limit.requests_per_unit), unit })
        });
        Ok(Self {
            entries: entries.collect(),
            limit: limit.transpose()?,
            hits: message.hits_addend,
            refund: message.is_negative_hits,
        })
    }
}

/// Checks the number of items.
pub(super) const fn few(items: usize, what: &'static str) -> Result<(), MalformedRequest> {
    if items <= MAX_ITEMS {
        Ok(())
    } else {
        Err(MalformedRequest::TooMany { what, max: MAX_ITEMS })
    }
}
