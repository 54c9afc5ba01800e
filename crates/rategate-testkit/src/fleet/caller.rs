//! A caller: it reserves, works, and commits, each until it is delivered.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use rategate::store::{ChargeReply, EndReply, Pending, ReservationId, ReserveReply, StoreError};

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
    /// It waits to hear that its estimate is held.
    Reserving(Pending<ReserveReply>),
    /// It waits to hear that its commit has been booked.
    Committing(Pending<EndReply>),
    /// It waits to hear of a charge of what was used, whatever comes of it.
    Charging(Pending<ChargeReply>),
    /// It is done.
    Done,
}

/// A reply that a caller has delivered.
pub(super) enum Delivered {
    Reserved(Result<ReserveReply, StoreError>),
    Ended(Result<EndReply, StoreError>),
    Charged,
}

impl Caller {
    /// Returns the reply that it waits for, if it is there. It is idle then.
    pub(super) fn delivered(&mut self) -> Option<Delivered> {
        let delivered = match &mut self.state {
            CallerState::Idle | CallerState::Done => None,
            CallerState::Reserving(pending) => poll(pending).map(Delivered::Reserved),
            CallerState::Committing(pending) => poll(pending).map(Delivered::Ended),
            CallerState::Charging(pending) => poll(pending).map(|_| Delivered::Charged),
        };
        if delivered.is_some() {
            self.state = CallerState::Idle;
        }
        delivered
    }
}

fn poll<A>(pending: &mut Pending<A>) -> Option<Result<A, StoreError>> {
    match Pin::new(pending).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(reply) => Some(reply),
        Poll::Pending => None,
    }
}
