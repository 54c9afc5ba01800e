//! The health service, `grpc.health.v1`.

use bytes::{Bytes, BytesMut};
use rategate_protocol::grpc::{Code, Status, prefixed};
use rategate_protocol::protobuf::{Malformed, Reader, put_integer};
use tokio::sync::watch;

use super::head::{HEALTH, KUADRANT, QUOTA_SERVICE, SERVICE};

/// The health of the service. Clones share it.
#[derive(Clone, Debug)]
pub struct Health {
    serving: watch::Sender<State>,
}

/// The health state of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Serving,
    NotServing,
    /// The service no longer serves, and the state will not change again.
    Ending,
}

/// A watcher of the service's health.
#[derive(Clone, Debug)]
pub(super) struct Watcher {
    pub(super) serving: watch::Receiver<State>,
    known: bool,
}

impl Health {
    /// Creates the health of a service that serves, or does not serve yet.
    #[must_use]
    pub fn new(serving: bool) -> Self {
        Self { serving: watch::Sender::new(State::of(serving)) }
    }

    /// Sets the health, and notifies the watchers.
    pub fn set(&self, serving: bool) {
        self.become_one(State::of(serving));
    }

    /// Ends the service for good. Watchers are notified, and then their calls end.
    pub fn end(&self) {
        self.become_one(State::Ending);
    }

    fn become_one(&self, state: State) {
        self.serving.send_if_modified(|was| std::mem::replace(was, state) != state);
    }

    /// Subscribes to the next change.
    pub(super) fn subscribe(&self) -> watch::Receiver<State> {
        self.serving.subscribe()
    }

    /// Answers `Check`.
    pub(super) fn check(&self, message: &[u8], out: &mut BytesMut) -> Result<(), Status> {
        if !is_known(message)? {
            return Err(Status::new(Code::NotFound, "there is no such service"));
        }
        state(Some(*self.serving.borrow() == State::Serving), out);
        Ok(())
    }

    /// Begins a watch. An unknown service is no error, since it may appear later.
    pub(super) fn watch(&self, message: &[u8]) -> Result<Watcher, Status> {
        let known = is_known(message)?;
        let mut serving = self.serving.subscribe();
        serving.mark_changed();
        Ok(Watcher { serving, known })
    }
}

impl State {
    const fn of(serving: bool) -> Self {
        if serving { Self::Serving } else { Self::NotServing }
    }
}

impl Watcher {
    /// Returns `true` if the state will not change again.
    pub(super) fn is_over(&self) -> bool {
        *self.serving.borrow() == State::Ending
    }

    /// Returns the next message for the watcher, if the state has changed.
    pub(super) fn news(&mut self) -> Option<Bytes> {
        let is_news = self.serving.has_changed().unwrap_or(false);
        let serving = *self.serving.borrow_and_update() == State::Serving;
        is_news.then(|| {
            let mut out = BytesMut::with_capacity(8);
            state(self.known.then_some(serving), &mut out);
            out.freeze()
        })
    }
}

/// Returns `true` if the request concerns this service, or the server as a whole.
fn is_known(message: &[u8]) -> Result<bool, Status> {
    let malformed = |Malformed(why)| {
        Status::new(Code::InvalidArgument, format!("the request is malformed: {why}"))
    };
    let mut service = "";
    let mut fields = Reader::new(message);
    while let Some((number, value)) = fields.field().map_err(malformed)? {
        if number == 1 {
            service = value.text().map_err(malformed)?;
        }
    }
    Ok(["", SERVICE, KUADRANT, QUOTA_SERVICE, HEALTH].contains(&service))
}

/// Writes a framed state: serving (1), not serving (2) or unknown (3).
fn state(serving: Option<bool>, out: &mut BytesMut) {
    let state = serving.map_or(3, |serving| if serving { 1 } else { 2 });
    prefixed(out, |out| put_integer(out, 1, state));
}
