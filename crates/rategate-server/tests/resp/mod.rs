//! Redis' protocol over real sockets.

mod abuse;
mod answers;
pub(crate) mod client;
mod codec;
mod codec_laws;
mod ending;
mod lease;
mod listeners;
mod oracle;
mod own;
mod reserve;
