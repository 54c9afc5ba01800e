//! A connection to one server: words out, an answer or a refusal back. The only place that names the client
//! library, with what dials.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline};

#[cfg(feature = "tls")]
use super::dial::Dialer;
use super::shared::Shared;
use crate::command::Command;
use crate::fault::{Fault, Remedy};
use crate::group::Marker;
use crate::library::{Library, Script};
use crate::reply::Value;

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The server refused.
    Refused {
        fault: Fault,
        /// In its own words.
        line: String,
    },
    /// The connection broke, and the answer with it.
    Lost(String),
}

/// A connection to one server, for as many calls at a time as there are clones.
#[derive(Clone)]
pub(crate) struct Line {
    connection: MultiplexedConnection,
    kit: Arc<Kit>,
    state: Arc<State>,
    /// What carries the words, where this crate has connected.
    #[cfg(feature = "tls")]
    _carrier: Option<Arc<Carrier>>,
}

/// A task that ends with the last clone of its connection.
#[cfg(feature = "tls")]
pub(crate) struct Carrier(tokio::task::AbortHandle);

#[cfg(feature = "tls")]
impl Carrier {
    pub(crate) fn spawn(work: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(tokio::spawn(work).abort_handle())
    }
}

#[cfg(feature = "tls")]
impl Drop for Carrier {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What all lines of a store have in common.
pub(crate) struct Kit {
    pub(crate) library: Library,
    pub(crate) script: Script,
    /// What time it is, for tests.
    pub(crate) clock: Option<Arc<AtomicU64>>,
    #[cfg(feature = "tls")]
    pub(crate) dialer: Dialer,
    pub(crate) shared: Arc<Shared>,
}

/// What has been learnt of this server.
#[derive(Default)]
struct State {
    uses_scripts: AtomicBool,
    /// Since when it has lost nothing, by its clock.
    since_us: AtomicU64,
    /// The newest that its clock has shown.
    now_us: AtomicU64,
    /// What its marker was when it was greeted last.
    marker: Mutex<Option<Arc<Marker>>>,
    /// An answer has said that the marker is gone.
    is_lost: AtomicBool,
    /// A question was late here, and no greeting has been answered in time since.
    is_silent: AtomicBool,
    /// It may drop states of ours when its memory is full.
    may_evict: AtomicBool,
}

impl Line {
    pub(crate) fn new(connection: MultiplexedConnection, kit: Arc<Kit>) -> Self {
        Self {
            connection,
            kit,
            state: Arc::default(),
            #[cfg(feature = "tls")]
            _carrier: None,
        }
    }

    /// The connection over a stream of this crate's, with what carries it.
    #[cfg(feature = "tls")]
    pub(crate) fn over(self, carrier: Carrier) -> Self {
        Self { _carrier: Some(Arc::new(carrier)), ..self }
    }

    /// Calls a function; the library is loaded where it is missing, or the script is sent where there are no
    /// functions. Neither has changed anything before that.
    pub(crate) async fn call(
        &mut self,
        command: Command,
        is_asking: bool,
    ) -> Result<Value, Failure> {
        let marker = self.state.marker().clone();
        let command = match marker {
            Some(marker) => command.with_marker(&marker),
            None => command,
        };
        let command = match &self.kit.clock {
            Some(clock) => command.at_us(clock.load(Ordering::Relaxed)),
            None => command,
        };
        let is_script = self.state.uses_scripts.load(Ordering::Relaxed);
        let words = if is_script {
            command.evalsha(&self.kit.script)
        } else {
            command.fcall(self.kit.library)
        };
        let refused = match self.send(&words, is_asking).await {
            Err(Failure::Refused { fault, line }) => {
                (fault.remedy(), Failure::Refused { fault, line })
            }
            answered => return answered.map(|value| value_of(&value)),
        };
        let words = match refused {
            (Remedy::LoadThenRetry, _) => {
                self.load().await?;
                command.fcall(self.kit.library)
            }
            (Remedy::UseScripts, _) => {
                self.state.uses_scripts.store(true, Ordering::Relaxed);
                self.kit.shared.stats.load();
                command.eval(&self.kit.script)
            }
            (Remedy::SendScript, _) => {
                self.kit.shared.stats.load();
                command.eval(&self.kit.script)
            }
            (_, failure) => return Err(failure),
        };
        self.kit.shared.stats.resent();
        self.send(&words, is_asking).await.map(|value| value_of(&value))
    }

    /// Sends any words.
    pub(crate) async fn send(
        &mut self,
        words: &[impl AsRef<[u8]>],
        is_asking: bool,
    ) -> Result<redis::Value, Failure> {
        let mut command = Cmd::new();
        for word in words {
            command.arg(word.as_ref());
        }
        let answered = if is_asking {
            let mut both = Pipeline::with_capacity(2);
            both.cmd("ASKING").add_command(command);
            let answered = self.connection.send_packed_commands(&both, 1, 1).await;
            answered.map(|values| values.into_iter().next().unwrap_or_default())
        } else {
            self.connection.send_packed_command(&command).await
        };
        match answered {
            Ok(redis::Value::ServerError(error)) => {
                Err(refusal(error.code(), error.details().unwrap_or("")))
            }
            Ok(value) => Ok(value),
            Err(error) => match error.code() {
                Some(code) => Err(refusal(code, error.detail().unwrap_or(""))),
                None => Err(Failure::Lost(error.to_string())),
            },
        }
    }

    /// The functions of this program.
    pub(crate) fn library(&self) -> Library {
        self.kit.library
    }

    /// Loads the library.
    pub(crate) async fn load(&mut self) -> Result<(), Failure> {
        self.kit.shared.stats.load();
        let words = self.kit.library.load();
        self.send(&words, false).await.map(|_| ())
    }

    /// Keeps what the server was found to have lost, and the marker that it has now.
    pub(crate) fn intact_since(&self, since_us: u64, now_us: u64, marker: Marker) {
        self.state.since_us.store(since_us, Ordering::Relaxed);
        self.state.now_us.fetch_max(now_us, Ordering::Relaxed);
        *self.state.marker() = Some(Arc::new(marker));
        self.state.is_lost.store(false, Ordering::Relaxed);
    }

    /// Keeps whether the server may drop states of ours.
    pub(crate) fn evicts(&self, may_evict: bool) {
        self.state.may_evict.store(may_evict, Ordering::Relaxed);
    }

    /// For how long it has lost nothing, at an instant of its clock, by an answer that came with its marker or without.
    /// `None` if it may drop states at any time.
    pub(crate) fn intact_for_ns(&self, now_us: u64, is_marked: bool) -> Option<u64> {
        self.state.now_us.fetch_max(now_us, Ordering::Relaxed);
        if !is_marked {
            self.state.is_lost.store(true, Ordering::Relaxed);
        }
        if self.state.may_evict.load(Ordering::Relaxed) {
            return None;
        }
        let since_us = self.state.since_us.load(Ordering::Relaxed);
        let intact_us = if is_marked { now_us.saturating_sub(since_us) } else { 0 };
        Some(intact_us.saturating_mul(1_000))
    }

    /// A question was late.
    pub(crate) fn falls_silent(&self) {
        self.state.is_silent.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_silent(&self) -> bool {
        self.state.is_silent.load(Ordering::Relaxed)
    }

    /// Ends a silence. Returns whether there was one.
    pub(crate) fn speaks(&self) -> bool {
        self.state.is_silent.swap(false, Ordering::Relaxed)
    }

    /// Whether it has to be greeted again to know what it has lost.
    pub(crate) fn is_lost(&self) -> bool {
        self.state.is_lost.load(Ordering::Relaxed)
    }
}

impl State {
    fn marker(&self) -> MutexGuard<'_, Option<Arc<Marker>>> {
        self.marker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn refusal(code: &str, rest: &str) -> Failure {
    let line = format!("{code} {rest}");
    Failure::Refused { fault: Fault::of(&line), line }
}

/// The value without what no function answers.
fn value_of(value: &redis::Value) -> Value {
    match value {
        redis::Value::Int(number) => Value::Int(*number),
        redis::Value::Array(items) => Value::List(items.iter().map(value_of).collect()),
        redis::Value::BulkString(bytes) => Value::Bytes(bytes.clone()),
        _ => Value::Other,
    }
}
