//! Envoy's rate limit service: its calls over both drivers, third-party clients,
//! and malicious ones.

mod abuse;
mod bounds;
mod calls;
pub(crate) mod common;
mod counting;
mod envoy;
mod envoy_quota;
mod frames;
mod guesses;
mod heads;
mod hostile;
mod json;
pub(crate) mod kuadrant;
mod kuadrant_store;
mod laws;
mod oracle;
mod places;
mod quota;
mod recorded;
mod replies;
mod traces;
mod unary;
mod verbs;
mod wires;
