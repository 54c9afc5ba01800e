//! Exact rate limiting and pacing: limiters, clocks and waiting for threads.
