//! The control plane, which sends the rules over xDS: state of the world, on one aggregated
//! stream.
//!
//! Each response has the rules of all domains. It is accepted or refused as a whole, and the
//! control plane hears which, with the reasons. A refused response changes nothing, nor does a
//! stream that ends.

mod backoff;
mod stream;

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rategate::MonotonicClock;
use tokio::runtime::Builder;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, sleep_until};

use self::backoff::{Backoff, around};
use self::stream::{Stream, StreamError};
use super::persistence;
use crate::config::settings::{Snapshot, Xds};
use crate::config::{CONFIG_TYPE, digest_of_resources, load_resources};
use crate::engine::{Engine, Saver};
use crate::low_priority::low_priority;
use crate::messages::core::Node;
use crate::messages::discovery::{DiscoveryRequest, DiscoveryResponse};
use crate::messages::rpc::Status;
use crate::observe::{Observe, lock};
use crate::protocol::grpc::Health;

/// The pause before a response that was refused already is refused again. Control planes send it
/// anew at once, as long as they have no other.
const REPEAT_PAUSE: Duration = Duration::from_secs(1);
/// The maximum number of resources of a response.
const MAX_RESOURCES: usize = 10_000;
/// The maximum length of the reasons that the control plane hears, in bytes.
const MAX_REASON_BYTES: usize = 4_096;
/// The stack of the thread: as much as that of the reader of YAML, whose trees it reads.
const STACK_BYTES: usize = 32 << 20;

/// A saver of counters, once there is one.
pub(super) type SaverSlot = Arc<Mutex<Option<Saver>>>;

/// A thread that follows the control plane until this is dropped.
#[derive(Debug)]
pub(super) struct ControlPlane {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// The parts of the service that a configuration changes.
pub(super) struct Follower {
    pub(super) xds: Xds,
    pub(super) merge_domains: bool,
    pub(super) engine: Engine<MonotonicClock>,
    pub(super) observe: Arc<Observe>,
    pub(super) health: Health,
    pub(super) is_ready: Arc<AtomicBool>,
    /// The file of counters. It is read once there are rules to have them.
    pub(super) snapshot: Option<Snapshot>,
    pub(super) saver: SaverSlot,
}

/// The responses so far.
#[derive(Debug, Default)]
struct History {
    /// The digest of the resources in force.
    in_force: Option<Arc<str>>,
    /// The response that was refused last, and the reasons.
    refused: Option<(String, String)>,
}

/// The verdict on a response.
enum Verdict {
    Accepted,
    Refused { why: String, is_repeated: bool },
}

impl ControlPlane {
    /// Starts to follow the control plane.
    ///
    /// # Errors
    ///
    /// The system's error if no thread or runtime can be created.
    pub(super) fn follow(follower: Follower) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel();
        follower.observe.status().control_plane(false);
        let builder = thread::Builder::new().name("rategate-xds".to_owned());
        let thread = builder.stack_size(STACK_BYTES).spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    () = follower.run() => {}
                    _ = stopped => {}
                }
            });
            // A lookup of a name may hang; the end of the service does not wait for it.
            runtime.shutdown_background();
        })?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic has been reported already.
            let _ = thread.join();
        }
    }
}

impl Follower {
    async fn run(self) {
        let server = self.xds.server.to_string();
        let mut backoff = Backoff::new(self.xds.backoff, self.xds.max_backoff);
        let mut history = History::default();
        loop {
            let mut stream = self.connect(&server).await;
            self.observe.status().control_plane(true);
            tracing::info!(server, node = self.xds.node, "the control plane is connected");
            let error = self.listen(&mut stream, &mut history, &mut backoff).await;
            drop(stream);
            self.observe.status().control_plane(false);
            let wait = backoff.draw();
            tracing::warn!(
                server,
                %error,
                wait_s = wait.as_secs(),
                "the control plane's stream has ended: the rules in force stay"
            );
            sleep(wait).await;
        }
    }

    /// Connects, however many attempts it takes. The same error is logged as a warning once.
    async fn connect(&self, server: &str) -> Stream {
        let mut known = String::new();
        loop {
            let error = match Stream::open(&self.xds).await {
                Ok(stream) => return stream,
                Err(error) => error.to_string(),
            };
            let wait = around(self.xds.connect_retry);
            if error == known {
                tracing::debug!(server, error, "the control plane is still out of reach");
            } else {
                tracing::warn!(
                    server,
                    error,
                    "the control plane is out of reach: the rules in force stay"
                );
                known = error;
            }
            sleep(wait).await;
        }
    }

    /// Puts responses into force, or refuses them, until the stream ends.
    async fn listen(
        &self,
        stream: &mut Stream,
        history: &mut History,
        backoff: &mut Backoff,
    ) -> StreamError {
        let subscription = DiscoveryRequest {
            node: Some(Node { id: self.xds.node.clone() }),
            type_url: CONFIG_TYPE.to_owned(),
            ..DiscoveryRequest::default()
        };
        // Without a version, even if one is in force: a control plane that has been started anew
        // may count versions from the beginning, and would not send what it takes for known.
        stream.send(subscription.clone());
        let mut version_info = String::new();
        let refusal = |version_info: &str, response_nonce, message| DiscoveryRequest {
            version_info: version_info.to_owned(),
            response_nonce,
            error_detail: Some(Status { code: tonic::Code::InvalidArgument.into(), message }),
            ..subscription.clone()
        };
        let mut delayed: Option<(Instant, String, String)> = None;
        loop {
            let due = delayed.as_ref().map(|(at, ..)| *at);
            let response = tokio::select! {
                response = stream.next() => response,
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                    if let Some((_, nonce, why)) = delayed.take() {
                        stream.send(refusal(&version_info, nonce, why));
                    }
                    continue;
                }
            };
            let response = match response {
                Ok(response) => response,
                Err(error) => return error,
            };
            // A newer response takes the place of one that is yet to be refused.
            delayed = None;
            match self.judge(&response, history) {
                Verdict::Accepted => {
                    self.become_ready().await;
                    version_info.clone_from(&response.version_info);
                    backoff.reset();
                    stream.send(DiscoveryRequest {
                        version_info: response.version_info,
                        response_nonce: response.nonce,
                        ..subscription.clone()
                    });
                }
                Verdict::Refused { why, is_repeated: true } => {
                    let at = Instant::now().checked_add(REPEAT_PAUSE);
                    delayed = Some((at.unwrap_or_else(Instant::now), response.nonce, why));
                }
                Verdict::Refused { why, is_repeated: false } => {
                    stream.send(refusal(&version_info, response.nonce, why));
                }
            }
        }
    }

    /// Puts the rules of a response into force, unless they already are, or returns why not.
    fn judge(&self, response: &DiscoveryResponse, history: &mut History) -> Verdict {
        let DiscoveryResponse { resources, type_url, .. } = response;
        let digest = digest_of_resources(resources);
        let is_of_type = type_url == CONFIG_TYPE;
        let status = self.observe.status();
        if is_of_type && history.in_force.as_ref() == Some(&digest) {
            history.refused = None;
            status.load_restored();
            return Verdict::Accepted;
        }
        let sent = format!("{type_url} {digest}");
        if let Some((_, why)) = history.refused.as_ref().filter(|(known, _)| *known == sent) {
            return Verdict::Refused { why: why.clone(), is_repeated: true };
        }
        match self.put_in_force(response) {
            Ok(()) => {
                *history = History { in_force: Some(digest), refused: None };
                status.update_judged(true);
                Verdict::Accepted
            }
            Err(why) => {
                let version = &response.version_info;
                tracing::error!(
                    error = why,
                    version,
                    "the control plane's configuration is refused: the previous one stays in force"
                );
                status.update_judged(false);
                status.load_failed(&why);
                let end = (0..=MAX_REASON_BYTES.min(why.len()))
                    .rev()
                    .find(|&end| why.is_char_boundary(end));
                let why = why.get(..end.unwrap_or(0)).unwrap_or_default().to_owned();
                history.refused = Some((sent, why.clone()));
                Verdict::Refused { why, is_repeated: false }
            }
        }
    }

    fn put_in_force(&self, response: &DiscoveryResponse) -> Result<(), String> {
        let DiscoveryResponse { resources, type_url, .. } = response;
        if type_url != CONFIG_TYPE {
            return Err(format!("resources of the type {type_url:?}, not {CONFIG_TYPE:?}"));
        }
        if resources.len() > MAX_RESOURCES {
            return Err(format!("more than {MAX_RESOURCES} resources"));
        }
        let received = low_priority(|| load_resources(resources, self.merge_domains));
        let received = received.map_err(|error| error.to_string())?;
        let hash = digest_of_resources(resources);
        persistence::put_in_force(&received.rules, &hash, &self.engine, &self.observe)?;
        low_priority(|| self.engine.drop_unused_rules());
        persistence::warn(&received.warnings);
        Ok(())
    }

    /// Makes the service ready. Counters of an earlier process are restored first.
    async fn become_ready(&self) {
        if let Some(snapshot) = &self.snapshot {
            let mut saver = lock(&self.saver);
            if saver.is_none() {
                match persistence::start_persistence(snapshot, &self.engine) {
                    Ok(started) => *saver = Some(started),
                    Err(error) => tracing::error!(%error, "counters are neither restored nor kept"),
                }
            }
        }
        self.is_ready.store(true, Ordering::Release);
        self.health.set(true).await;
    }
}
