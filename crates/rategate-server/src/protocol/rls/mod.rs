//! Envoy's rate limit service, version 3: requests and responses, to and from the engine.
//!
//! gRPC carries them as protocol buffers (`protocol::grpc`), `POST /json` as JSON.

mod answer;
mod decide;
mod error;
mod json;
mod metadata;
mod reply;
mod request;
mod translate;
mod verbs;

pub(crate) use self::answer::{RlsAnswer, answer};
pub use self::decide::{Decide, Operation};
pub use self::error::RlsError;
pub use self::json::{JsonAnswer, json, too_long};
pub(crate) use self::reply::response;
pub use self::reply::{HeaderNames, Options, descriptor_status};
pub use self::request::{Descriptor, MalformedRequest, RlsRequest};
pub use self::translate::ask;
