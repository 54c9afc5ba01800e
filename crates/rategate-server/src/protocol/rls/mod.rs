//! Envoy's rate limit service, version 3: its request and response in every encoding.
//!
//! gRPC carries them as protocol buffers (`protocol::grpc`), `POST /json` as JSON.

mod ask;
mod json;
pub(crate) mod proto;
mod reply;
mod translate;

pub use self::ask::{Descriptor, MalformedRequest, RlsRequest};
pub(crate) use self::json::Bytes;
pub use self::json::{JsonAnswer, answer as json, too_long};
pub(crate) use self::reply::write_framed;
pub use self::reply::{Code, DescriptorStatus, Options};
pub use self::translate::{Decide, RlsError, ask};
pub(crate) use self::translate::{answered, or_denied};
