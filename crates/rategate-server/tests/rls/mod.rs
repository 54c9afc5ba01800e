//! Envoy's rate limit service: its calls, real proxies, and malicious clients.

mod abuse;
mod calls;
pub(crate) mod common;
mod counting;
mod envoy;
mod hostile;
mod json;
mod oracle;
mod places;
mod recorded;
mod replies;
mod told;
pub(crate) mod traces;
mod verbs;
mod wires;
