//! Replies that wait for a store. Replies keep the order of their commands, so later replies wait
//! behind them.

use std::collections::VecDeque;
use std::task::{Context, Poll};

use super::MAX_UNWRITTEN;
use crate::net::RefusalReason;
use crate::protocol::resp::own::Pending;

/// The maximum number of decisions that a connection waits for at the same time.
pub(super) const MAX_LATER: usize = 32;

/// The decisions that a connection waits for, in order.
#[derive(Default)]
pub(super) struct Answers(VecDeque<Later>);

/// A pending decision, and the replies behind it.
struct Later {
    pending: Option<Pending>,
    /// The reply once it is decided, followed by the replies to later commands.
    replies: Vec<u8>,
}

impl Answers {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns `true` if another decision may be waited for, or another reply queued.
    pub(super) fn has_capacity(&self) -> bool {
        self.0.len() < MAX_LATER && self.buffered() < MAX_UNWRITTEN
    }

    /// Returns the number of bytes of waiting replies.
    pub(super) fn buffered(&self) -> usize {
        self.0.iter().map(|later| later.replies.len()).sum()
    }

    pub(super) fn push(&mut self, pending: Pending) {
        self.0.push_back(Later { pending: Some(pending), replies: Vec::new() });
    }

    /// Returns the buffer in which the next reply has to wait, if it has to.
    pub(super) fn behind(&mut self) -> Option<&mut Vec<u8>> {
        self.0.back_mut().map(|later| &mut later.replies)
    }

    /// Collects the decisions that have arrived, and appends to `output` all replies that no longer
    /// wait for an earlier one. `refused` receives the reason of each command that counts as
    /// refused.
    pub(super) fn collect(
        &mut self,
        cx: &mut Context<'_>,
        output: &mut Vec<u8>,
        mut refused: impl FnMut(RefusalReason),
    ) {
        for later in &mut self.0 {
            let Some(pending) = &mut later.pending else { continue };
            let Poll::Ready((mut replies, refusal)) = pending.as_mut().poll(cx) else { continue };
            if let Some(reason) = refusal {
                refused(reason);
            }
            replies.append(&mut later.replies);
            (later.replies, later.pending) = (replies, None);
        }
        while self.0.front().is_some_and(|later| later.pending.is_none()) {
            let Some(later) = self.0.pop_front() else { break };
            output.extend_from_slice(&later.replies);
        }
    }
}
