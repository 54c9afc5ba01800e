//! The protocols of clients. Each maps bytes to requests to the engine and replies to bytes; none
//! imports another.

pub mod body;
mod budget;
mod few;
pub mod grpc;
pub mod http;
pub(crate) mod problem;
pub mod resp;
pub mod rls;
