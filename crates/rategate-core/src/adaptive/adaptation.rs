//! The numbers of a limit that follows measurements.

use super::Bounds;

/// The way in which a limit on operations in flight follows measurements: its bounds, and the
/// method that moves it between them.
///
/// ```
/// use rategate_core::adaptive::{AdaptiveConcurrency, Adaptation, Bounds, Method};
///
/// let aimd = Adaptation::new(Bounds::new(5, 20, 200)).with_method(Method::Aimd);
/// assert_eq!(AdaptiveConcurrency::following(aimd).adaptation().method(), Method::Aimd);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
pub struct Adaptation {
    bounds: Bounds,
    method: Method,
    seed: u32,
}

/// A rule that moves a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
pub enum Method {
    /// As many operations as the server works on at once, and a few more:
    /// [`Knee`](super::Knee).
    #[default]
    Knee,
    /// One more for each success, a tenth less for each drop: [`Aimd`](super::Aimd).
    Aimd,
}

impl Adaptation {
    /// Creates an adaptation within these bounds by [`Method::Knee`].
    #[must_use]
    pub const fn new(bounds: Bounds) -> Self {
        Self { bounds, method: Method::Knee, seed: 0 }
    }

    pub(crate) const fn with_bounds(self, bounds: Bounds) -> Self {
        Self { bounds, ..self }
    }

    /// Returns it with another method.
    #[must_use]
    pub const fn with_method(self, method: Method) -> Self {
        Self { method, ..self }
    }

    /// Returns it with another seed for what is random. Several clients of one server should have
    /// different ones, so that they do not probe at once.
    #[must_use]
    pub const fn with_seed(self, seed: u32) -> Self {
        Self { seed, ..self }
    }

    /// Returns the bounds.
    #[must_use]
    pub const fn bounds(self) -> Bounds {
        self.bounds
    }

    /// Returns the method.
    #[must_use]
    pub const fn method(self) -> Method {
        self.method
    }

    /// Returns the seed.
    #[must_use]
    pub const fn seed(self) -> u32 {
        self.seed
    }
}
