//! A real Redis or Valkey for one test, and a RESP2 connection to it.

mod client;
mod server;

pub use client::{Client, Reply};
pub use server::{Brand, Server};
