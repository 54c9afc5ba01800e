//! What the measuring programs of this package share.
//!
//! `code` times calls of limiters, `memory` counts bytes, `wait` paces, `redis` decides in a store,
//! `serve` asks the service and others over connections, and `tokens` reserves and commits.

pub mod limits;
pub mod process;
pub mod race;
pub mod report;
#[cfg(feature = "wires")]
pub mod wires;

/// A result. The numbers of the measurements are valid; an error is one of the machine.
pub type Made<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Returns the median, the upper one of two; NaN for no numbers.
pub fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or(f64::NAN)
}
