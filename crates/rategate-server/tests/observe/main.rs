//! What is seen of a running engine: figures, metrics, keys, what if, and the page in a real browser.

mod admin;
mod browser;
mod common;
mod cost;
mod events;
mod metrics;
mod packaging;
mod page;
mod replay;
