//! gRPC over HTTP/2: the prefix of messages, statuses, and the values of header fields.

mod fields;
mod message;
mod status;

pub use self::fields::{ENCODING, Timeout, is_compressed, is_grpc};
pub use self::message::{BadFrame, PREFIX, length, only, prefixed};
pub use self::status::{Code, Status};
