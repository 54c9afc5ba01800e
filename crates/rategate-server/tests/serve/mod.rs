//! The service as a whole: all protocols at once, reloads while it runs, and its end.

mod capacity;
mod certificates;
pub(crate) mod clients;
mod exact;
mod failover;
mod hosts;
mod keys;
mod nodes;
mod noticed;
mod pages;
#[cfg(feature = "otlp")]
mod receiver;
mod reservations;
mod restart;
mod rules;
#[cfg(feature = "otlp")]
mod spans;
mod tokens;
mod web;
