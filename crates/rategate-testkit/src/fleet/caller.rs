//! A caller: it reserves, works, and commits, each until it is delivered.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use rategate::store::{EndReply, ReservationId, ReserveReply, StoreError};

/// A caller of one operation.
pub(super) struct Caller {
    pub(super) node: u32,
    pub(super) id: ReservationId,
    pub(super) estimate: u64,
    pub(super) actual: u64,
    pub(super) ttl_ns: u64,
    pub(super) work_ns: u64,
    /// `true` if it dies with its node; others go on with another one.
    pub(super) is_local: bool,
    /// The instant from which it no longer begins.
    pub(super) gives_up_ns: u64,
    /// The instant at which the reservation that it has delivered of was decided.
    pub(super) begun_ns: Option<u64>,
    /// The instant at which a node gives up what it holds for it in borrowed permits. Once that
    /// node has crashed, only if it came before.
    pub(super) ends_ns: Option<u64>,
    pub(super) has_sent_commit: bool,
    pub(super) state: CallerState,
}

/// The state of a caller.
pub(super) enum CallerState {
    /// It has to act at an instant that is scheduled.
    Idle,
    /// It waits for a reply.
    Waiting(Pin<Box<dyn Future<Output = Delivered>>>),
    /// It is done.
    Done,
}

/// A reply that a caller has delivered.
pub(super) enum Delivered {
    Reserved(Result<ReserveReply, StoreError>),
    Ended(Result<EndReply, StoreError>),
    /// A charge of what was used, whatever came of it.
    Charged,
}

impl Caller {
    /// Returns the reply that it waits for, if it is there. It is idle then.
    pub(super) fn delivered(&mut self) -> Option<Delivered> {
        let CallerState::Waiting(reply) = &mut self.state else { return None };
        let polled = reply.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        let Poll::Ready(delivered) = polled else { return None };
        self.state = CallerState::Idle;
        Some(delivered)
    }
}
