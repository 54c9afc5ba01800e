//! The scenario files, played through each protocol: a limit decides the same whoever carries the question.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    missing_docs,
    clippy::arithmetic_side_effects
)]

mod carrier;
mod engine;

/// Every file that a store can be asked about: tries and looks, and lines of those who ask again.
fn play<W: carrier::Carrier>(carry: impl Fn(carrier::TestEngine) -> W) {
    let played = rategate_conformance::scenarios::suite(&carrier::Served::new(carry));
    assert_eq!(played.played.len(), 8, "{:?}", played.played);
}

#[test]
fn the_engine_itself_decides_as_the_files_say() {
    play(engine::Directly);
}
