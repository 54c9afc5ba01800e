//! Rules that a control plane sends.

mod connection;
mod judged;
mod resources;
mod stub;
mod updates;
#[path = "../../../rategate-protocol/tests/laws/xds_messages.rs"]
mod xds_messages;
