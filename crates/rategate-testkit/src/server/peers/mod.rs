//! Controllers of other projects, to compare ours with. They are for simulations only.
//!
//! Each follows the rule and the figures of its project with its defaults, in its floats: sums,
//! products, quotients and square roots, which are equal on every machine. A controller here
//! learns of calls when they end; what a project does by a timer happens at the first end after
//! it.

mod envoy;
mod failsafe;
mod vector;
mod windowed;

pub use self::envoy::Envoy;
pub use self::failsafe::Failsafe;
pub use self::vector::Vector;
pub use self::windowed::Windowed;

/// Returns a whole number as a float.
#[expect(clippy::as_conversions, clippy::cast_precision_loss, reason = "nanoseconds of a run")]
const fn float(whole: u64) -> f64 {
    whole as f64
}

/// Returns the whole part of a float, or the bound that it exceeds.
#[expect(
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a cast ends at the bounds"
)]
const fn whole(float: f64) -> u32 {
    float as u32
}
