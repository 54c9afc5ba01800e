//! The server's half of HTTP/2 (RFC 9113), as far as gRPC needs it: frames, flow control and
//! compressed fields.

mod frame;
mod hpack;
mod huffman;
mod static_table;
mod windows;

pub use self::frame::*;
pub use self::hpack::{Decoder, Fields, Unpacking, is_name, is_value};
pub use self::windows::{Window, Windows};
