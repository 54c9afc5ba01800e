//! Limits that follow measurements: how many operations a server works on at once, found from how
//! long they take, and how many calls another party's server takes in a second, found from its
//! refusals.
//!
//! [`AdaptiveConcurrency`](crate::AdaptiveConcurrency) and [`AdaptiveRate`](crate::AdaptiveRate)
//! are such limits. Each operation ends with an outcome: by
//! [`Permit::served`](crate::Permit::served), `dropped` or `ignored`, or by
//! [`Limiter::release_with_outcome`](crate::Limiter::release_with_outcome). Whatever is measured,
//! the limit stays between its floor and its ceiling.
//!
//! ```
//! use rategate::adaptive::{Adaptation, Bounds, Method};
//! use rategate::{AdaptiveConcurrency, AdaptiveRate, Limiter, Rate};
//!
//! // At most 200 operations in flight, at least 5, and 50 until something is known.
//! let adaptation = Adaptation::new(Bounds::new(5, 50, 200)).with_method(Method::Aimd);
//! let limiter = Limiter::new(AdaptiveConcurrency::following(adaptation));
//! assert_eq!(limiter.max_in_flight()?, Some(50));
//!
//! // At most 100 calls a second, at least one, and as many as are not refused.
//! let limiter = Limiter::new(AdaptiveRate::new(Rate::per_second(1), Rate::per_second(100)));
//! let permit = limiter.permit(1)?;
//! // The call comes here. It was answered by "429 Too Many Requests".
//! permit.dropped();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub use rategate_core::adaptive::{
    Adaptation, Aimd, Bounds, Change, Controller, Knee, Method, Outcome, Reason, Sample,
};
