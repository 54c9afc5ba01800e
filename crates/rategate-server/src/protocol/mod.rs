//! The protocols of clients. Each maps bytes to requests to the engine, and replies to bytes.
//!
//! The messages of `rls` travel by gRPC and HTTP. Apart from that, no protocol uses another.

pub mod grpc;
pub mod http;
pub(crate) mod json;
pub mod resp;
pub mod rls;
