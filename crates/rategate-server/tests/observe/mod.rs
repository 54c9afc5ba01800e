//! Observation of a running engine: figures, metrics, keys, simulations, and the page in a real
//! browser.

mod admin;
mod browser;
mod common;
mod cost;
mod cross_site;
mod events;
mod metrics;
mod packaging;
mod page;
mod page_rules;
mod replay;
