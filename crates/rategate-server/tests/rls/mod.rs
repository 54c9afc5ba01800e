//! Envoy's rate limit service: its calls, real proxies, and malicious clients.

mod abuse;
mod calls;
pub(crate) mod common;
mod counting;
mod envoy;
mod hostile;
mod json;
mod laws;
mod oracle;
mod places;
mod recorded;
mod replies;
pub(crate) mod traces;
pub(crate) mod unary;
mod verbs;
mod wires;
