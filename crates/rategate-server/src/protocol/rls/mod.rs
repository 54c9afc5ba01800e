//! Envoy's rate limit service, version 3, and Kuadrant's: requests and responses, to and from the
//! engine.
//!
//! gRPC carries them as protocol buffers (`protocol::grpc`), `POST /json` as JSON.

mod answer;
mod decide;
mod error;
mod json;
mod metadata;
mod methods;
mod reply;
mod translate;
mod verbs;

pub(crate) use self::answer::{LaterAnswer, RlsAnswer};
pub use self::decide::{Decide, Operation};
pub use self::error::RlsError;
pub(crate) use self::json::Bytes;
pub use self::json::{JsonAnswer, answer as json, too_long};
pub(crate) use self::methods::{RlsDecided, RlsMethod};
pub(crate) use self::reply::write_framed;
pub use self::reply::{HeaderNames, Options, descriptor_status};
pub use self::translate::ask;
