//! Envoy's rate limit service: its calls over both drivers, third-party clients,
//! and malicious ones.

mod abuse;
mod bounds;
mod calls;
mod common;
mod counting;
mod envoy;
mod frames;
mod guesses;
mod heads;
mod hostile;
mod json;
mod laws;
mod oracle;
mod quota;
mod recorded;
mod replies;
mod traces;
mod wires;
