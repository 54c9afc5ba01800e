//! Limits that follow measurements: how many operations a server works on at once, found from how
//! long they take.
//!
//! [`AdaptiveConcurrency`](crate::AdaptiveConcurrency) is such a limit. Each of its operations
//! ends with an outcome: by [`Permit::served`](crate::Permit::served), `dropped` or `ignored`, or
//! by [`Limiter::release_with_outcome`](crate::Limiter::release_with_outcome). Whatever is
//! measured, the limit stays between its floor and its ceiling.
//!
//! ```
//! use rategate::adaptive::{Adaptation, Bounds, Method};
//! use rategate::{AdaptiveConcurrency, Limiter};
//!
//! // At most 200 operations in flight, at least 5, and 50 until something is known.
//! let adaptation = Adaptation::new(Bounds::new(5, 50, 200)).with_method(Method::Vegas);
//! let limiter = Limiter::new(AdaptiveConcurrency::following(adaptation));
//! assert_eq!(limiter.max_in_flight()?, Some(50));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub use rategate_core::adaptive::{
    Adaptation, Aimd, Bounds, Controller, Gradient, Knee, Method, Outcome, Sample, Vegas,
};
