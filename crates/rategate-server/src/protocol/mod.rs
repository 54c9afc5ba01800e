//! What comes over the wire, made questions of the engine, and its answers made what the wire wants. Protocols know the engine
//! and never each other.

pub mod grpc;
pub mod rls;
