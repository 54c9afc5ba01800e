//! Files that other packages of this repository have already.

#![allow(dead_code, reason = "others use what is not used here")]

#[path = "../../bench-store/src/clock.rs"]
pub(crate) mod clock;
#[path = "../../bench-store/src/report.rs"]
pub(crate) mod report;
