//! Redis' protocol: the codec against any bytes, and the service over real sockets.

mod abuse;
mod answers;
mod client;
mod codec;
mod ending;
mod lease;
mod listeners;
mod oracle;
mod own;
