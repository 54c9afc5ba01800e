//! Redis' protocol without IO: commands parsed, replies written.

mod request;
mod words;
mod writer;

pub use self::request::{Bounds, Broken, Step, parse, words};
pub use self::words::{CommandWords, WordSpans};
pub use self::writer::{RespWriter, Version};
