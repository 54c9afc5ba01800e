//! What clients speak. A protocol maps bytes to what the engine is asked, and answers to bytes; none knows another.

pub mod resp;
