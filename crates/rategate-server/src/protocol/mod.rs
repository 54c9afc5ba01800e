//! What clients speak. A protocol maps bytes to what the engine is asked, and answers to bytes; none knows another.

pub mod body;
mod budget;
mod few;
pub mod grpc;
pub mod http;
pub(crate) mod problem;
pub mod resp;
pub mod rls;
