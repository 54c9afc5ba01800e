//! Deny lists in a store, published by the reader of the logs and copied by the servers.
//!
//! They are the relaxed way to hold a limit over machines that share no file. For the use and the
//! limits of such a list see [`rategate::deny`]; for its form in the store see [`denied`].
//!
//! | task | use |
//! |---|---|
//! | add clients to a list | [`RedisStore::extend_denied`] |
//! | replace a list | [`RedisStore::replace_denied`] |
//! | keep a list in memory that follows it | [`DenyCopy`] |
//! | read it once | [`RedisStore::fetch_denied`] |
//!
//! Each of these is answered within [`Config::budget`](super::Config::budget), or within
//! [`LIST_WITHIN`] where that is longer. A long list is a long reply, and no other call waits for
//! it.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use rategate::store::{StoreError, Unavailable, assert_may_block};

use super::item::Item;
use super::{RedisStore, no_driver};
use crate::command::Command;
use crate::denied::{self, Fetched, Listed, Published, Version};
use crate::error::{ReplyError, RequestError};
use crate::key::Key;
use crate::reply::Value;

pub use super::copy::DenyCopy;

/// The time a request about a list may take, if the budget of calls is shorter.
pub const LIST_WITHIN: Duration = Duration::from_secs(2);

impl RedisStore {
    /// Adds clients to a list, of which at most `max_entries` entries are kept, up to
    /// [`MAX_LISTED`](denied::MAX_LISTED).
    ///
    /// Of two ends for one client the later one counts. So several publishers may share one list,
    /// and repeating an entry does no harm.
    ///
    /// An invalid name, or too many entries, is a [`StoreError::InvalidRequest`] and changes
    /// nothing. After any other error it is unknown whether the list was changed.
    pub fn extend_denied(
        &self,
        list: &[u8],
        entries: &[Listed],
        max_entries: usize,
    ) -> PendingReply<Published> {
        self.publish(list, |key| denied::extend(key, entries, max_entries))
    }

    /// Replaces the clients of a list. Without entries the list becomes empty.
    ///
    /// In all else it is like [`extend_denied`](Self::extend_denied).
    pub fn replace_denied(
        &self,
        list: &[u8],
        entries: &[Listed],
        max_entries: usize,
    ) -> PendingReply<Published> {
        self.publish(list, |key| denied::replace(key, entries, max_entries))
    }

    /// Reads a list, or returns `None` if its version is `known`.
    ///
    /// It takes some microseconds of the store if nothing has changed. Otherwise it takes two to
    /// three microseconds for each entry, in which the store does nothing else.
    pub fn fetch_denied(&self, list: &[u8], known: Version) -> PendingReply<Option<Fetched>> {
        let key = self.keys.key(list);
        let command = denied::fetch(&key, known);
        self.command(&key, command, move |value| denied::read_fetched(value, known))
    }

    fn publish(
        &self,
        list: &[u8],
        command: impl FnOnce(&Key) -> Result<Command, RequestError>,
    ) -> PendingReply<Published> {
        let key = self.keys.key(list);
        match command(&key) {
            Ok(command) => self.command(&key, command, denied::read_published),
            Err(error) => PendingReply::at_once(Err(error.into())),
        }
    }

    /// Submits a command for one key.
    fn command<A: Send + 'static>(
        &self,
        key: &Key,
        command: Command,
        read: impl FnOnce(&Value) -> Result<A, ReplyError> + Send + 'static,
    ) -> PendingReply<A> {
        let (sender, reply) = oneshot::channel();
        let callback = move |answer: Result<&Value, StoreError>| {
            let broken =
                |error: ReplyError| StoreError::Unavailable(Unavailable::Broken(error.to_string()));
            // The caller may have dropped its end, which does no harm.
            let _ = sender.send(answer.and_then(|value| read(value).map_err(broken)));
        };
        let budget = self.config.budget.max(LIST_WITHIN);
        match self.shared() {
            Ok(shared) => {
                shared.submit(Item::command(
                    shared,
                    command,
                    key.slot(),
                    Box::new(callback),
                    budget,
                ));
            }
            Err(error) => callback(Err(no_driver(&error))),
        }
        PendingReply { reply }
    }
}

/// A reply about a list that is on its way: a future, or a [call](Self::wait) that blocks.
///
/// Dropping it discards the reply; the request itself is not withdrawn.
#[derive(Debug)]
#[must_use = "dropping it discards the reply, so the state of the list is unknown"]
pub struct PendingReply<A> {
    reply: oneshot::Receiver<Result<A, StoreError>>,
}

impl<A> PendingReply<A> {
    /// Blocks the thread until the reply is there. In a task, await it instead.
    ///
    /// In a debug build with the feature `tokio` of `rategate` it panics on a thread that drives
    /// tasks.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub fn wait(self) -> Result<A, StoreError> {
        match self.reply.try_recv() {
            Err(oneshot::TryRecvError::Empty) => {
                assert_may_block();
                self.reply.recv().unwrap_or(Err(StoreError::Closed))
            }
            reply => reply.unwrap_or(Err(StoreError::Closed)),
        }
    }

    /// Blocks the thread for at most `time`, as [`wait`](Self::wait) does. Returns `None` if
    /// there is no reply yet.
    ///
    /// Once a reply was returned, every further call returns [`StoreError::Closed`].
    #[must_use = "dropping the value loses the reply"]
    pub fn wait_for(&self, time: Duration) -> Option<Result<A, StoreError>> {
        if !self.reply.has_message() && !time.is_zero() {
            assert_may_block();
        }
        match self.reply.recv_timeout(time) {
            Ok(answer) => Some(answer),
            Err(oneshot::RecvTimeoutError::Timeout) => None,
            Err(oneshot::RecvTimeoutError::Disconnected) => Some(Err(StoreError::Closed)),
        }
    }

    fn at_once(answer: Result<A, StoreError>) -> Self {
        let (sender, reply) = oneshot::channel();
        // The receiver is still alive, so this cannot fail.
        let _ = sender.send(answer);
        Self { reply }
    }
}

impl<A> Future for PendingReply<A> {
    type Output = Result<A, StoreError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.reply)
            .poll(context)
            .map(|reply| reply.unwrap_or(Err(StoreError::Closed)))
    }
}
