//! The laws of the codecs, in one binary.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test computes in plain numbers and may panic"
)]

mod kuadrant;
mod metadata;
mod resp;
mod rlqs;
mod rls;
mod xds;
