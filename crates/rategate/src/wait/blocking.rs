//! Threads that must not block.

/// Panics where this thread drives tasks of a tokio runtime, which would all stand still while it blocks: in debug
/// builds with the feature `tokio`, and nowhere else.
///
/// Called where a thread is about to block, and not before, so that a call that finds its permit never panics. A thread
/// within `spawn_blocking` or `block_in_place` may block.
#[inline]
#[track_caller]
pub fn assert_may_block() {
    #[cfg(all(feature = "tokio", debug_assertions, not(loom)))]
    {
        // Whether a thread may block, tokio says by a panic of its own alone, whose message says what is wrong.
        let (sent, received) = tokio::sync::oneshot::channel();
        let _ = sent.send(());
        let _ = received.blocking_recv();
    }
}
