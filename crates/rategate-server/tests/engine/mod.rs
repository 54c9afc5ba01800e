//! The engine on a clock that the tests set.

mod charge;
pub(crate) mod common;
mod figures;
mod held;
mod held_inline;
mod in_flight;
mod inline;
mod laws;
mod random;
mod reload;
mod reservation;
mod rules;
mod several;
mod stories;
mod together;
