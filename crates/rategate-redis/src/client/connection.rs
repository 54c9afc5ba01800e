//! A connection to one server, which sends commands and returns replies or failures.
//!
//! Only this module and the one that dials name the client library.

use std::future::{Future, ready};
use std::mem;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, Pipeline, RedisConnectionInfo, RedisError};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::oneshot;

#[cfg(feature = "tls")]
use super::dial::Dialer;
use super::observed::Observed;
use super::shared::Shared;
use crate::command::{Callee, Command};
use crate::library::{Library, Script};
use crate::refusal::{Remedy, ServerRefusal};
use crate::reply::Value;

/// The reason why there is no reply.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// The server refused the call.
    Refused {
        refusal: ServerRefusal,
        /// The error text of the server.
        text: String,
    },
    /// The connection broke before the reply came.
    Lost(String),
}

/// A connection to one server. Its clones may call at the same time.
#[derive(Clone)]
pub(crate) struct Connection {
    multiplexed: MultiplexedConnection,
    kit: Arc<Kit>,
    pub(crate) observed: Arc<Observed>,
    /// Dropped with the last clone, which ends the carrier.
    _is_open: Arc<oneshot::Sender<()>>,
}

/// The future that moves the bytes of a connection. It ends with the connection, or with its last
/// clone.
///
/// The driver polls it between its other work, so a reply is delivered without waiting for
/// another task to run.
pub(crate) type Carrier = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Runs `work` over a connection whose carrier is not polled elsewhere yet.
pub(crate) async fn carried<T>(carrier: &mut Carrier, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    tokio::select! {
        biased;
        done = &mut work => return done,
        () = carrier.as_mut() => {}
    }
    // The carrier has ended, and no more replies come. A completed future must not be polled
    // again.
    *carrier = Box::pin(ready(()));
    work.await
}

/// The parts that all connections of a store share.
pub(crate) struct Kit {
    pub(crate) library: Library,
    pub(crate) script: Script,
    /// The clock of tests.
    pub(crate) clock: Option<Arc<AtomicU64>>,
    #[cfg(feature = "tls")]
    pub(crate) dialer: Dialer,
    pub(crate) shared: Arc<Shared>,
}

impl Connection {
    /// Logs in over a stream, and returns the connection with its carrier.
    pub(crate) async fn over(
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        user: &RedisConnectionInfo,
        kit: Arc<Kit>,
    ) -> Result<(Self, Carrier), RedisError> {
        // The waiters keep the time: the connection itself never times out a call.
        let quiet = AsyncConnectionConfig::new().set_response_timeout(None);
        let (multiplexed, work) =
            MultiplexedConnection::new_with_config(user, stream, quiet).await?;
        let (is_open, closed) = oneshot::channel();
        let carrier = async move {
            tokio::select! {
                () = work => {}
                _ = closed => {}
            }
        };
        let connection =
            Self { multiplexed, kit, observed: Arc::default(), _is_open: Arc::new(is_open) };
        Ok((connection, Box::pin(carrier)))
    }

    /// Calls one function, as [`call_all`](Self::call_all) does.
    pub(crate) async fn call(&mut self, command: Command) -> Result<Value, Failure> {
        let command = self.marked(command);
        let answered = self.call_all(&[(command, false)]).await.pop();
        answered.unwrap_or_else(|| Err(Failure::Lost(String::from("no reply to a call"))))
    }

    /// Calls functions in one write, and repeats calls refused for want of the library.
    ///
    /// Where the library is missing it is loaded; where there are no functions the script is
    /// sent. The refused calls have changed nothing.
    pub(crate) async fn call_all(
        &mut self,
        commands: &[(Command, bool)],
    ) -> Vec<Result<Value, Failure>> {
        let is_script = self.observed.uses_scripts();
        let callee = if is_script {
            Callee::Hash(&self.kit.script)
        } else {
            Callee::Function(self.kit.library)
        };
        let calls =
            commands.iter().map(|(command, is_asking)| (packed(command, callee), *is_asking));
        let mut answered = self.send_all(calls.collect()).await;
        let refused = |answer: &Result<_, _>| match answer {
            Err(Failure::Refused { refusal, .. }) => Some(refusal.remedy()).filter(is_ours),
            _ => None,
        };
        let again = answered.iter().enumerate();
        let again: Vec<_> = again.filter_map(|(at, answer)| Some((at, refused(answer)?))).collect();
        if !again.is_empty() {
            // On the heap, because it is rare and large.
            Box::pin(self.mend(commands, &again, &mut answered)).await;
        }
        answered
    }

    /// Loads the library, or sends the script, and repeats the calls that were refused for want
    /// of it.
    async fn mend(
        &mut self,
        commands: &[(Command, bool)],
        again: &[(usize, Remedy)],
        answered: &mut [Result<Value, Failure>],
    ) {
        let mut set = |at: usize, answer| {
            if let Some(slot) = answered.get_mut(at) {
                *slot = answer;
            }
        };
        if again.first().is_some_and(|(_, remedy)| *remedy == Remedy::LoadThenRetry) {
            if let Err(failure) = self.load().await {
                for &(at, _) in again {
                    set(at, Err(failure.clone()));
                }
                return;
            }
        } else {
            self.kit.shared.stats.loads.one();
        }
        let calls = again.iter().filter_map(|(at, remedy)| {
            let (command, is_asking) = commands.get(*at)?;
            self.kit.shared.stats.resent.one();
            Some((self.once_more(command, remedy), *is_asking))
        });
        let calls = calls.collect();
        for ((at, _), answer) in again.iter().zip(self.send_all(calls).await) {
            set(*at, answer);
        }
    }

    /// Returns a call that was refused for want of its function, in the form that now works.
    fn once_more(&self, command: &Command, remedy: &Remedy) -> Cmd {
        if *remedy == Remedy::LoadThenRetry {
            return packed(command, Callee::Function(self.kit.library));
        }
        if *remedy == Remedy::UseScripts {
            self.observed.lacks_functions();
        }
        packed(command, Callee::Source(&self.kit.script))
    }

    /// Adds the marker the server is known by, so that the reply says whether the server still
    /// has it.
    pub(crate) fn marked(&self, command: Command) -> Command {
        let marker = self.observed.marker();
        let command = match marker {
            Some(marker) => command.with_marker(&marker),
            None => command,
        };
        match &self.kit.clock {
            Some(clock) => command.at_us(clock.load(Ordering::Relaxed)),
            None => command,
        }
    }

    /// Sends calls in one write. A call that needs `ASKING` follows in a write of its own.
    async fn send_all(&mut self, calls: Vec<(Cmd, bool)>) -> Vec<Result<Value, Failure>> {
        if let [(call, is_asking)] = calls.as_slice() {
            return vec![self.send_one(call, *is_asking).await.map(value_of)];
        }
        Box::pin(self.send_many(calls)).await
    }

    async fn send_many(&mut self, mut calls: Vec<(Cmd, bool)>) -> Vec<Result<Value, Failure>> {
        let mut pipeline = Pipeline::with_capacity(calls.len());
        for (call, _) in calls.iter_mut().filter(|(_, is_asking)| !is_asking) {
            pipeline.add_command(mem::take(call));
        }
        let count = pipeline.len();
        let replies = match count {
            0 => Ok(Vec::new()),
            _ => self.multiplexed.send_packed_commands(&pipeline, 0, count).await,
        };
        let failed = replies.as_ref().err().map(failure_of);
        let mut replies = replies.unwrap_or_default().into_iter();
        let mut answers = Vec::with_capacity(calls.len());
        for (call, is_asking) in calls {
            answers.push(match (&failed, is_asking) {
                (Some(failure), false) => Err(failure.clone()),
                (None, false) => match replies.next() {
                    Some(value) => into_result(value).map(value_of),
                    None => Err(Failure::Lost(String::from("fewer replies than calls"))),
                },
                (_, true) => self.send_one(&call, true).await.map(value_of),
            });
        }
        answers
    }

    /// Sends a command of any words.
    pub(crate) async fn send(
        &mut self,
        words: &[impl AsRef<[u8]>],
    ) -> Result<redis::Value, Failure> {
        let mut command = Cmd::new();
        for word in words {
            command.arg(word.as_ref());
        }
        self.send_one(&command, false).await
    }

    async fn send_one(&mut self, call: &Cmd, is_asking: bool) -> Result<redis::Value, Failure> {
        let answered = if is_asking {
            Box::pin(self.send_asking(call)).await
        } else {
            self.multiplexed.send_packed_command(call).await
        };
        answered.map_err(|error| failure_of(&error)).and_then(into_result)
    }

    /// Sends a call after `ASKING`, since its slot is being moved to this server.
    async fn send_asking(&mut self, call: &Cmd) -> Result<redis::Value, RedisError> {
        let mut both = Pipeline::with_capacity(2);
        both.cmd("ASKING").add_command(call.clone());
        let answered = self.multiplexed.send_packed_commands(&both, 1, 1).await;
        answered.map(|values| values.into_iter().next().unwrap_or_default())
    }

    /// Returns the function library of this program.
    pub(crate) fn library(&self) -> Library {
        self.kit.library
    }

    /// Loads the library.
    pub(crate) async fn load(&mut self) -> Result<(), Failure> {
        self.kit.shared.stats.loads.one();
        let words = self.kit.library.load();
        self.send(&words).await.map(|_| ())
    }
}

/// Returns a call in the client library's form.
fn packed(command: &Command, callee: Callee<'_>) -> Cmd {
    let mut packed = Cmd::with_capacity(16, 256);
    command.each_word(callee, |word| {
        packed.arg(word);
    });
    packed
}

/// Returns `true` if a refusal is remedied within the connection.
const fn is_ours(remedy: &Remedy) -> bool {
    matches!(remedy, Remedy::LoadThenRetry | Remedy::UseScripts | Remedy::SendScript)
}

fn into_result(value: redis::Value) -> Result<redis::Value, Failure> {
    match value {
        redis::Value::ServerError(error) => {
            Err(refusal(error.code(), error.details().unwrap_or("")))
        }
        value => Ok(value),
    }
}

fn failure_of(error: &RedisError) -> Failure {
    match error.code() {
        Some(code) => refusal(code, error.detail().unwrap_or("")),
        None => Failure::Lost(error.to_string()),
    }
}

fn refusal(code: &str, rest: &str) -> Failure {
    let text = format!("{code} {rest}");
    Failure::Refused { refusal: ServerRefusal::of(&text), text }
}

/// Converts a value, dropping variants that no function returns.
fn value_of(value: redis::Value) -> Value {
    match value {
        redis::Value::Int(number) => Value::Int(number),
        redis::Value::Array(items) => Value::List(items.into_iter().map(value_of).collect()),
        redis::Value::BulkString(bytes) => Value::Bytes(bytes),
        _ => Value::Other,
    }
}
