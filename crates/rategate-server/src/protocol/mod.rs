//! The protocols: each turns bytes into a question for the engine, and the answer into bytes. None knows of another.

pub mod body;
pub mod http;
