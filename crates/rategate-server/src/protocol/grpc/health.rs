//! Whether the service serves: `grpc.health.v1`.

use bytes::{BufMut, Bytes, BytesMut};
use tokio::sync::watch;

use super::head::{HEALTH, SERVICE};
use super::status::{Code, Status};
use crate::protocol::rls::proto::{Malformed, Reader, put_integer};

/// Whether the service serves. Clones are of the same fact.
#[derive(Clone, Debug)]
pub struct Health {
    serving: watch::Sender<bool>,
}

/// Who watches a service.
#[derive(Clone, Debug)]
pub(super) struct Watcher {
    pub(super) serving: watch::Receiver<bool>,
    known: bool,
}

impl Health {
    /// At the start it does, or does not yet.
    #[must_use]
    pub fn new(serving: bool) -> Self {
        Self { serving: watch::Sender::new(serving) }
    }

    /// It serves from now on, or no more: whoever watches is told.
    pub fn set(&self, serving: bool) {
        self.serving.send_if_modified(|was| std::mem::replace(was, serving) != serving);
    }

    /// Whether it does.
    #[must_use]
    pub fn is_serving(&self) -> bool {
        *self.serving.borrow()
    }

    /// The answer of `Check`.
    pub(super) fn check(&self, message: &[u8], out: &mut BytesMut) -> Result<(), Status> {
        if !is_known(message)? {
            return Err(Status::new(Code::NotFound, "there is no such service here"));
        }
        state(Some(self.is_serving()), out);
        Ok(())
    }

    /// Whoever begins to watch. A service that is not known may yet come, so it is no error.
    pub(super) fn watch(&self, message: &[u8]) -> Result<Watcher, Status> {
        let known = is_known(message)?;
        let mut serving = self.serving.subscribe();
        serving.mark_changed();
        Ok(Watcher { serving, known })
    }
}

impl Watcher {
    /// What it is to be told, if there is news.
    pub(super) fn news(&mut self) -> Option<Bytes> {
        let is_news = self.serving.has_changed().unwrap_or(false);
        let serving = *self.serving.borrow_and_update();
        is_news.then(|| {
            let mut out = BytesMut::with_capacity(8);
            state(self.known.then_some(serving), &mut out);
            out.freeze()
        })
    }
}

/// Whether the request is about this service, or about the server as a whole.
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
    Ok(service.is_empty() || service == SERVICE || service == HEALTH)
}

/// Writes a framed state: serving (1), not serving (2) or unknown (3).
fn state(serving: Option<bool>, out: &mut BytesMut) {
    out.put_slice(&[0, 0, 0, 0, 2]);
    put_integer(out, 1, serving.map_or(3, |serving| if serving { 1 } else { 2 }));
}
