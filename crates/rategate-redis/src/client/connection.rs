//! A connection to one server: words out, an answer or a refusal back. The only place that names the client
//! library, with what dials.

use std::future::{Future, ready};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, Pipeline, RedisConnectionInfo, RedisError};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::oneshot;

#[cfg(feature = "tls")]
use super::dial::Dialer;
use super::shared::Shared;
use crate::command::Command;
use crate::fault::{Fault, Remedy};
use crate::group::Marker;
use crate::library::{Library, Script};
use crate::reply::Value;

/// Why there is no answer.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// The server refused.
    Refused {
        fault: Fault,
        /// In its own words.
        text: String,
    },
    /// The connection broke, and the answer with it.
    Lost(String),
}

/// A connection to one server, for as many calls at a time as there are clones.
#[derive(Clone)]
pub(crate) struct Connection {
    multiplexed: MultiplexedConnection,
    kit: Arc<Kit>,
    state: Arc<State>,
    /// Dropped with the last clone, which ends the carrier.
    _is_open: Arc<oneshot::Sender<()>>,
}

/// The work that moves the bytes of a connection. It ends with the connection, or with the last clone of it.
///
/// The driver does it between its other work, so that an answer is told without another task having to run first.
pub(crate) type Carrier = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Does work over a connection that nothing carries yet.
pub(crate) async fn carried<T>(carrier: &mut Carrier, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    tokio::select! {
        biased;
        done = &mut work => return done,
        () = carrier.as_mut() => {}
    }
    // It has ended, and with it what was still to come. A future that has ended is not asked again.
    *carrier = Box::pin(ready(()));
    work.await
}

/// What all connections of a store have in common.
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

impl Connection {
    /// Logs in over a stream, and returns the connection with what carries it.
    pub(crate) async fn over(
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        user: &RedisConnectionInfo,
        kit: Arc<Kit>,
    ) -> Result<(Self, Carrier), RedisError> {
        // Time is kept by those who wait; a call under way is not given up by the connection.
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
            Self { multiplexed, kit, state: Arc::default(), _is_open: Arc::new(is_open) };
        Ok((connection, Box::pin(carrier)))
    }

    /// Calls a function, as [`call_all`](Self::call_all) does.
    pub(crate) async fn call(&mut self, command: Command) -> Result<Value, Failure> {
        let shared = Arc::clone(&self.kit.shared);
        let command = self.marked(command);
        let answered = self.call_all(&[(command, false)], &shared).await.pop();
        answered.unwrap_or_else(|| Err(Failure::Lost(String::from("no answer to a call"))))
    }

    /// Calls functions, in one write; the library is loaded where it is missing, or the script is sent where there are no
    /// functions, and those are called again that need it. They have changed nothing before that.
    pub(crate) async fn call_all(
        &mut self,
        commands: &[(Command, bool)],
        shared: &Shared,
    ) -> Vec<Result<Value, Failure>> {
        let is_script = self.state.uses_scripts.load(Ordering::Relaxed);
        let words = |command: &Command| {
            if is_script {
                command.evalsha(&self.kit.script)
            } else {
                command.fcall(self.kit.library)
            }
        };
        let words = commands.iter().map(|(command, asks)| (words(command), *asks)).collect();
        let mut answered = self.send_all(words).await;
        let mut again = Vec::new();
        for (at, answer) in answered.iter().enumerate() {
            if let Err(Failure::Refused { fault, .. }) = answer {
                again.extend(Some((at, fault.remedy())).filter(|(_, remedy)| is_ours(remedy)));
            }
        }
        let Some((_, remedy)) = again.first() else { return answered };
        match remedy {
            Remedy::LoadThenRetry => {
                if let Err(failure) = self.load().await {
                    for (at, _) in &again {
                        if let Some(answer) = answered.get_mut(*at) {
                            *answer = Err(failure.clone());
                        }
                    }
                    return answered;
                }
            }
            _ => shared.stats.load(),
        }
        let words = again.iter().filter_map(|(at, remedy)| {
            let (command, asks) = commands.get(*at)?;
            shared.stats.resent();
            Some((self.once_more(command, remedy), *asks))
        });
        let words = words.collect();
        for ((at, _), answer) in again.iter().zip(self.send_all(words).await) {
            if let Some(place) = answered.get_mut(*at) {
                *place = answer;
            }
        }
        answered
    }

    /// The words of a call that was refused for want of what it calls.
    fn once_more(&self, command: &Command, remedy: &Remedy) -> Vec<Vec<u8>> {
        if *remedy == Remedy::LoadThenRetry {
            return command.fcall(self.kit.library);
        }
        if *remedy == Remedy::UseScripts {
            self.state.uses_scripts.store(true, Ordering::Relaxed);
        }
        command.eval(&self.kit.script)
    }

    /// Adds the marker that the server is known by, so that the answer says whether it still has it.
    pub(crate) fn marked(&self, command: Command) -> Command {
        let marker = self.state.marker().clone();
        let command = match marker {
            Some(marker) => command.with_marker(&marker),
            None => command,
        };
        match &self.kit.clock {
            Some(clock) => command.at_us(clock.load(Ordering::Relaxed)),
            None => command,
        }
    }

    /// Sends calls in one write. What has to be told that its slot is moved goes after that by itself.
    async fn send_all(&mut self, calls: Vec<(Vec<Vec<u8>>, bool)>) -> Vec<Result<Value, Failure>> {
        let mut pipeline = Pipeline::with_capacity(calls.len());
        for (words, _) in calls.iter().filter(|(_, asks)| !asks) {
            pipeline.add_command(command_of(words));
        }
        let count = pipeline.len();
        let told = match count {
            0 => Ok(Vec::new()),
            _ => self.multiplexed.send_packed_commands(&pipeline, 0, count).await,
        };
        let failed = told.as_ref().err().map(failure_of);
        let mut told = told.unwrap_or_default().into_iter();
        let mut answers = Vec::with_capacity(calls.len());
        for (words, asks) in calls {
            answers.push(match (&failed, asks) {
                (Some(failure), false) => Err(failure.clone()),
                (None, false) => match told.next() {
                    Some(value) => said(value).map(|value| value_of(&value)),
                    None => Err(Failure::Lost(String::from("fewer answers than calls"))),
                },
                (_, true) => self.send(&words, true).await.map(|value| value_of(&value)),
            });
        }
        answers
    }

    /// Sends any words.
    pub(crate) async fn send(
        &mut self,
        words: &[impl AsRef<[u8]>],
        is_asking: bool,
    ) -> Result<redis::Value, Failure> {
        let command = command_of(words);
        let answered = if is_asking {
            let mut both = Pipeline::with_capacity(2);
            both.cmd("ASKING").add_command(command);
            let answered = self.multiplexed.send_packed_commands(&both, 1, 1).await;
            answered.map(|values| values.into_iter().next().unwrap_or_default())
        } else {
            self.multiplexed.send_packed_command(&command).await
        };
        answered.map_err(|error| failure_of(&error)).and_then(said)
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

fn command_of(words: &[impl AsRef<[u8]>]) -> Cmd {
    let mut command = Cmd::new();
    for word in words {
        command.arg(word.as_ref());
    }
    command
}

/// Whether a refusal is mended here.
const fn is_ours(remedy: &Remedy) -> bool {
    matches!(remedy, Remedy::LoadThenRetry | Remedy::UseScripts | Remedy::SendScript)
}

fn said(value: redis::Value) -> Result<redis::Value, Failure> {
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
    Failure::Refused { fault: Fault::of(&text), text }
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
