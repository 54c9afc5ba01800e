//! A connection to one server, which sends commands and returns replies or failures.

use std::future::{Future, ready};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, oneshot};

use super::carrier::{Commands, Submission, carry};
use super::config::Config;
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
    /// Dropped with the last clone, which ends the carrier.
    submissions: mpsc::Sender<Submission>,
    store_context: Arc<StoreContext>,
    pub(crate) observed: Arc<Observed>,
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
pub(crate) struct StoreContext {
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
        config: &Config,
        store_context: Arc<StoreContext>,
    ) -> Result<(Self, Carrier), Failure> {
        let (submissions, work) = carry(stream);
        let mut carrier: Carrier = Box::pin(work);
        let connection = Self { submissions, store_context, observed: Arc::default() };
        let mut login = Commands::default();
        if let Some(password) = &config.password.0 {
            let words = [Some("AUTH"), config.user.as_deref(), Some(password)];
            let words: Vec<_> = words.into_iter().flatten().collect();
            login.add(words);
        }
        if config.database != 0 {
            login.add(["SELECT", &config.database.to_string()]);
        }
        for reply in carried(&mut carrier, connection.submit(login)).await? {
            into_result(reply)?;
        }
        Ok((connection, carrier))
    }

    /// Calls one function, as [`call_all`](Self::call_all) does.
    pub(crate) async fn call(&self, command: Command) -> Result<Value, Failure> {
        let command = self.marked(command);
        let answered = self.call_all(&[(command, false)]).await.pop();
        answered.unwrap_or_else(|| Err(Failure::Lost(String::from("no reply to a call"))))
    }

    /// Calls functions in one write, and repeats calls refused for want of the library.
    ///
    /// Where the library is missing it is loaded; where there are no functions the script is
    /// sent. The refused calls have changed nothing.
    pub(crate) async fn call_all(
        &self,
        commands: &[(Command, bool)],
    ) -> Vec<Result<Value, Failure>> {
        let is_script = self.observed.uses_scripts();
        let callee = if is_script {
            Callee::Hash(&self.store_context.script)
        } else {
            Callee::Function(self.store_context.library)
        };
        let calls = commands.iter().map(|(command, is_asking)| (command, callee, *is_asking));
        let mut answered = self.send_all(calls).await;
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
        &self,
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
            self.store_context.shared.stats.loads.one();
        }
        let calls = again.iter().filter_map(|(at, remedy)| {
            let (command, is_asking) = commands.get(*at)?;
            self.store_context.shared.stats.resent.one();
            Some((command, self.once_more(remedy), *is_asking))
        });
        for ((at, _), answer) in again.iter().zip(self.send_all(calls).await) {
            set(*at, answer);
        }
    }

    /// Returns the callee of a call that was refused for want of its function, which now works.
    fn once_more(&self, remedy: &Remedy) -> Callee<'_> {
        if *remedy == Remedy::LoadThenRetry {
            return Callee::Function(self.store_context.library);
        }
        if *remedy == Remedy::UseScripts {
            self.observed.lacks_functions();
        }
        Callee::Source(&self.store_context.script)
    }

    /// Adds the marker the server is known by, so that the reply says whether the server still
    /// has it.
    pub(crate) fn marked(&self, command: Command) -> Command {
        let marker = self.observed.marker();
        let command = match marker {
            Some(marker) => command.with_marker(&marker),
            None => command,
        };
        match &self.store_context.clock {
            Some(clock) => command.at_us(clock.load(Ordering::Relaxed)),
            None => command,
        }
    }

    /// Sends calls in one write. A call whose slot is being moved to this server follows
    /// `ASKING`.
    async fn send_all<'a>(
        &self,
        calls: impl Iterator<Item = (&'a Command, Callee<'a>, bool)>,
    ) -> Vec<Result<Value, Failure>> {
        let (mut sent, mut skips) = (Commands::default(), Vec::new());
        for (command, callee, is_asking) in calls {
            if is_asking {
                sent.add(["ASKING"]);
            }
            sent.add_call(command, callee);
            skips.push(usize::from(is_asking));
        }
        let mut replies = match self.submit(sent).await {
            Ok(replies) => replies.into_iter(),
            Err(failure) => return vec![Err(failure); skips.len()],
        };
        let missing = || Failure::Lost(String::from("fewer replies than calls"));
        let own = skips.into_iter().map(|skip| replies.nth(skip));
        own.map(|reply| reply.ok_or_else(missing).and_then(into_result)).collect()
    }

    /// Sends a command of any words.
    pub(crate) async fn send(&self, words: &[impl AsRef<[u8]>]) -> Result<Value, Failure> {
        let mut commands = Commands::default();
        commands.add(words);
        let reply = self.submit(commands).await?.pop();
        into_result(reply.unwrap_or(Value::Null))
    }

    /// Sends commands, and returns all their replies, errors among them.
    async fn submit(&self, commands: Commands) -> Result<Vec<Value>, Failure> {
        if commands.count == 0 {
            return Ok(Vec::new());
        }
        let (respond, replies) = oneshot::channel();
        let closed = || Failure::Lost(String::from("the connection is closed"));
        self.submissions.send((commands, respond)).await.map_err(|_| closed())?;
        replies.await.map_err(|_| closed())?.map_err(Failure::Lost)
    }

    /// Returns the function library of this program.
    pub(crate) fn library(&self) -> Library {
        self.store_context.library
    }

    /// Loads the library.
    pub(crate) async fn load(&self) -> Result<(), Failure> {
        self.store_context.shared.stats.loads.one();
        let words = self.store_context.library.load();
        self.send(&words).await.map(|_| ())
    }
}

/// Returns `true` if a refusal is remedied within the connection.
const fn is_ours(remedy: &Remedy) -> bool {
    matches!(remedy, Remedy::LoadThenRetry | Remedy::UseScripts | Remedy::SendScript)
}

fn into_result(reply: Value) -> Result<Value, Failure> {
    match reply {
        Value::Error(text) => Err(Failure::Refused { refusal: ServerRefusal::of(&text), text }),
        reply => Ok(reply),
    }
}
