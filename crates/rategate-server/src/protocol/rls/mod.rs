//! Envoy's rate limit service, version 3: requests and responses, to and from the engine.
//!
//! gRPC carries them as protocol buffers (`protocol::grpc`), `POST /json` as JSON.

mod json;
mod metadata;
mod reply;
mod translate;

pub(crate) use self::json::Bytes;
pub use self::json::{JsonAnswer, answer as json, too_long};
pub(crate) use self::reply::write_framed;
pub use self::reply::{HeaderNames, Options, descriptor_status};
pub use self::translate::{Decide, RlsError, ask};
pub(crate) use self::translate::{LaterAnswer, RlsAnswer, answered, or_denied};
