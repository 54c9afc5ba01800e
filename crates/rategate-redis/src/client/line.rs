//! A connection to one server: words out, an answer or a refusal back. The only place that names the client
//! library, with what dials.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline};

#[cfg(feature = "tls")]
use super::dial::Dialer;
use super::shared::Shared;
use crate::command::Command;
use crate::fault::{Fault, Remedy};
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

    /// Loads the library.
    async fn load(&mut self) -> Result<(), Failure> {
        self.kit.shared.stats.load();
        let words = self.kit.library.load();
        self.send(&words, false).await.map(|_| ())
    }

    /// The server was asked what it has lost.
    pub(crate) fn intact_since(&self, since_us: u64, now_us: u64) {
        self.state.since_us.store(since_us, Ordering::Relaxed);
        self.state.now_us.fetch_max(now_us, Ordering::Relaxed);
    }

    /// For how long it has lost nothing, at an instant of its clock; 0 is one that is not known.
    pub(crate) fn intact_for_ns(&self, now_us: u64) -> u64 {
        let newest_us = self.state.now_us.fetch_max(now_us, Ordering::Relaxed);
        let now_us = if now_us == 0 { newest_us } else { now_us };
        now_us.saturating_sub(self.state.since_us.load(Ordering::Relaxed)).saturating_mul(1_000)
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
