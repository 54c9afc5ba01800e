//! The rategate command.
fn main() {}
