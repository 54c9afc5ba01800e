//! A check for threads that must not block.

/// Panics if this thread drives tasks of a tokio runtime, which would stand still meanwhile.
///
/// It does so in debug builds with the feature `tokio` only. It is called where a thread is about
/// to block, and not before, so that a call that finds its permit never panics. A thread within
/// `spawn_blocking` or `block_in_place` may block.
#[inline]
#[track_caller]
pub fn assert_may_block() {
    #[cfg(all(feature = "tokio", debug_assertions, not(loom)))]
    {
        // Tokio reports only by a panic of its own that a thread must not block. The message
        // states the cause.
        let (sent, received) = tokio::sync::oneshot::channel();
        let _ = sent.send(());
        let _ = received.blocking_recv();
    }
}
