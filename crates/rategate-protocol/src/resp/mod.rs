//! Redis' protocol: commands and replies, parsed and written.

mod request;
mod value;
mod words;
mod writer;

pub use self::request::{Bounds, Broken, Step, parse, words};
pub use self::value::{BadReply, ReplyParser, Value};
pub use self::words::{CommandWords, WordSpans};
pub use self::writer::{RespWriter, Version};
