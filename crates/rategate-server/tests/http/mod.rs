//! The HTTP API, called directly and through sockets.

mod abuse;
mod auth;
mod calendar;
mod check;
mod common;
mod errors;
mod guide;
mod openapi;
mod several;
mod sockets;
mod tokens;
