//! Laws of shares.
