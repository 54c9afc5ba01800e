//! The engine on a clock that the tests set.

mod charge;
pub(crate) mod common;
mod figures;
mod in_flight;
mod inline;
mod laws;
mod random;
mod reload;
mod rules;
mod several;
