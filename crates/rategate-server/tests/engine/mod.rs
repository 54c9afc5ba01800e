//! The engine on a clock that the tests set.

mod charge;
pub(crate) mod common;
mod figures;
mod inline;
mod laws;
mod random;
mod reload;
mod rules;
mod several;
