//! A caller: it reserves, works, and commits, each until it is heard.

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
    /// The instant at which the reservation that it has heard of was decided.
    pub(super) begun_ns: Option<u64>,
    pub(super) has_sent_commit: bool,
    pub(super) state: CallerState,
}

/// What a caller is about.
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

/// A reply that a caller has heard.
pub(super) enum Heard {
    Reserved(Result<ReserveReply, StoreError>),
    Ended(Result<EndReply, StoreError>),
    Charged,
}

impl Caller {
    /// Returns the reply that it waits for, if it is there. It is idle then.
    pub(super) fn heard(&mut self) -> Option<Heard> {
        let heard = match &mut self.state {
            CallerState::Idle | CallerState::Done => None,
            CallerState::Reserving(pending) => poll(pending).map(Heard::Reserved),
            CallerState::Committing(pending) => poll(pending).map(Heard::Ended),
            CallerState::Charging(pending) => poll(pending).map(|_| Heard::Charged),
        };
        if heard.is_some() {
            self.state = CallerState::Idle;
        }
        heard
    }
}

fn poll<A>(pending: &mut Pending<A>) -> Option<Result<A, StoreError>> {
    match Pin::new(pending).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(reply) => Some(reply),
        Poll::Pending => None,
    }
}
