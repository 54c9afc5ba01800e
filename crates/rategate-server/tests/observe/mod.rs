//! Observation of a running engine: figures, metrics, keys, simulations, and the page in a real
//! browser.

mod admin;
#[cfg(feature = "dashboard")]
mod browser;
mod common;
mod cost;
#[cfg(feature = "dashboard")]
mod cross_site;
mod events;
mod metrics;
mod packaging;
#[cfg(feature = "dashboard")]
mod page;
#[cfg(feature = "dashboard")]
mod page_rules;
#[cfg(feature = "dashboard")]
mod replay;
