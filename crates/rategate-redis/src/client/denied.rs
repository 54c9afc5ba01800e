//! Deny lists in a store: published by whoever reads the logs, and copied by everybody else.
//!
//! The relaxed way to hold a limit over machines that share no file. What such a list is, and is not good for, is told in
//! [`rategate::deny`]; how it is kept in the store, in [`denied`].
//!
//! | I want | it is |
//! |---|---|
//! | to add callers to a list | [`RedisStore::extend_denied`] |
//! | to put another list in its place | [`RedisStore::replace_denied`] |
//! | a list in memory that follows it | [`DenyCopy`] |
//! | to read it once | [`RedisStore::fetch_denied`] |
//!
//! All of these are answered within [`Config::budget`](super::Config::budget), or within [`LIST_WITHIN`] where that is
//! more, because a long list is a long answer and no call waits for it.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use rategate::store::{Fault, Gone, assert_may_block};

use super::item::Item;
use super::{RedisStore, no_driver};
use crate::command::Command;
use crate::denied::{self, Fetched, Listed, Published, Version};
use crate::error::{ReplyError, RequestError};
use crate::key::Key;
use crate::reply::Value;

pub use super::copy::DenyCopy;

/// How long a question about a list may take, however short the budget of calls is.
pub const LIST_WITHIN: Duration = Duration::from_secs(2);

impl RedisStore {
    /// Adds these callers to the list of this name, of which at most `most` are kept, up to
    /// [`MAX_LISTED`](denied::MAX_LISTED). Of two ends for one caller the later one counts, so several may publish to one
    /// list, and saying the same again does no harm.
    ///
    /// A name that cannot be, or too many of them, is a [`Fault::Question`] and changes nothing. After any other
    /// fault nobody knows whether the list was changed.
    pub fn extend_denied(&self, list: &[u8], entries: &[Listed], most: usize) -> Told<Published> {
        self.publish(list, |key| denied::extend(key, entries, most))
    }

    /// Puts these callers in the place of whoever is on the list; no entries lift it.
    ///
    /// As [`extend_denied`](Self::extend_denied) in all else.
    pub fn replace_denied(&self, list: &[u8], entries: &[Listed], most: usize) -> Told<Published> {
        self.publish(list, |key| denied::replace(key, entries, most))
    }

    /// Who is on the list of this name, unless it is the one that is known: `None` then. It takes some
    /// microseconds of the store where nothing is new, and else two to three for each entry, in which it does nothing else.
    pub fn fetch_denied(&self, list: &[u8], known: Version) -> Told<Option<Fetched>> {
        let key = self.keys.key(list);
        let command = denied::fetch(&key, known);
        self.command(&key, command, move |value| denied::read_fetched(value, known))
    }

    fn publish(
        &self,
        list: &[u8],
        command: impl FnOnce(&Key) -> Result<Command, RequestError>,
    ) -> Told<Published> {
        let key = self.keys.key(list);
        match command(&key) {
            Ok(command) => self.command(&key, command, denied::read_published),
            Err(error) => Told::at_once(Err(Fault::Question(error.to_string()))),
        }
    }

    /// Puts a command of one key.
    fn command<A: Send + 'static>(
        &self,
        key: &Key,
        command: Command,
        read: impl FnOnce(&Value) -> Result<A, ReplyError> + Send + 'static,
    ) -> Told<A> {
        let (told, heard) = oneshot::channel();
        let hear = move |answer: Result<&Value, Fault>| {
            let broken = |error: ReplyError| Fault::Gone(Gone::Broken(error.to_string()));
            // Whoever does not wait any more has missed nothing.
            let _ = told.send(answer.and_then(|value| read(value).map_err(broken)));
        };
        let budget = self.config.budget.max(LIST_WITHIN);
        match self.shared() {
            Ok(shared) => {
                shared.put(Item::command(shared, command, key.slot(), Box::new(hear), budget));
            }
            Err(error) => hear(Err(no_driver(&error))),
        }
        Told { heard }
    }
}

/// What the store says about a list, on its way: a future, or a [call](Self::wait) that blocks.
///
/// Whoever drops it hears nothing; what was sent was sent.
#[derive(Debug)]
#[must_use = "whoever drops it does not know what became of the list"]
pub struct Told<A> {
    heard: oneshot::Receiver<Result<A, Fault>>,
}

impl<A> Told<A> {
    /// Blocks the thread until the answer is there: in a task, await it instead. In a debug build with the feature
    /// `tokio` of `rategate` it panics on a thread that drives tasks.
    ///
    /// # Errors
    ///
    /// [`Fault`].
    pub fn wait(self) -> Result<A, Fault> {
        match self.heard.try_recv() {
            Err(oneshot::TryRecvError::Empty) => {
                assert_may_block();
                self.heard.recv().unwrap_or(Err(Fault::Closed))
            }
            heard => heard.unwrap_or(Err(Fault::Closed)),
        }
    }

    /// Blocks the thread for so long at most, as [`wait`](Self::wait) does: `None` if there is no answer yet. Once one was had, there is no other
    /// than [`Fault::Closed`].
    #[must_use = "the answer is gone with it"]
    pub fn wait_for(&self, time: Duration) -> Option<Result<A, Fault>> {
        if !self.heard.has_message() && !time.is_zero() {
            assert_may_block();
        }
        match self.heard.recv_timeout(time) {
            Ok(answer) => Some(answer),
            Err(oneshot::RecvTimeoutError::Timeout) => None,
            Err(oneshot::RecvTimeoutError::Disconnected) => Some(Err(Fault::Closed)),
        }
    }

    fn at_once(answer: Result<A, Fault>) -> Self {
        let (told, heard) = oneshot::channel();
        // The other end is here.
        let _ = told.send(answer);
        Self { heard }
    }
}

impl<A> Future for Told<A> {
    type Output = Result<A, Fault>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.heard).poll(context).map(|heard| heard.unwrap_or(Err(Fault::Closed)))
    }
}
