//! One limit that several processes keep together, in Redis or Valkey.

use std::error::Error;
use std::fmt;
use std::future::poll_fn;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use rategate::distributed::{DecidedBy, DecisionFuture, Distributed};
use rategate::error::ExceedsCapacity;
use rategate::error::SetupError;
use rategate::store::{PerProcess, Rule, StoreError, Unavailable};
use rategate::wait::Sleep;
use rategate::{AnyPolicy, Clock as _, MonotonicClock};
use rategate_core::span::whole_ns;
use rategate_redis::client::{Address, AddressError, Config, OpenError, RedisStore, Server};
use rategate_testkit::scenario::policy_body;

pub use rategate::distributed::{
    Counts as SharedCounts, Decision as SharedDecision, Denial, Grant as SharedGrant, Health,
    Leases, Mode, OnUnavailable,
};

use crate::code::Code;
use crate::line::{Lines, Place, Turn};
use crate::policies::Policies;
use crate::receipt::{id_of_key, next_id};
use crate::replies::Later;

/// The default time that a call waits for the store: 100 ms.
///
/// It is longer than that of Rust, 20 ms: a process of another language may pause its threads for
/// longer, and its first call connects.
pub const DEFAULT_SHARED_BUDGET: Duration = Duration::from_millis(100);

/// The longest label of a limit in a store.
const MAX_LABEL_BYTES: usize = 32;
/// The longest name, behind which the label of one of several limits has its number.
const MAX_NAME_BYTES: usize = MAX_LABEL_BYTES - ".15".len();

/// The configuration of a [`Shared`].
#[derive(Clone, Debug)]
pub struct SharedConfig {
    /// The address of the store: `redis://user:password@host:port/database`, or `unix:/path`.
    pub url: String,
    /// The prefix of all keys in the store; `None` for `rategate`.
    pub prefix: Option<String>,
    /// The label of the limit in the store; `None` for one made of its text.
    ///
    /// With a name, other numbers of the limit continue with the state of the former ones. Without
    /// one they are another limit, which begins anew.
    pub name: Option<String>,
    /// The way in which processes keep the limit.
    pub mode: Mode,
    /// The way in which calls are decided while the store is gone.
    pub when_gone: OnUnavailable,
    /// `true` if the store counts as gone until what it may have lost matters no more.
    ///
    /// The limit then holds over a restart that empties the store, and calls are decided without
    /// it for as long as the limit remembers, also after the first start.
    pub has_quarantine: bool,
    /// The longest time that a call waits for the store.
    pub budget: Duration,
}

/// A limit for each key, which all processes with the same store, name and limit keep together.
///
/// Clones are handles of the same limit. A forked child connects anew at its first call, and has
/// none of the permits that its parent has borrowed.
///
/// # Order
///
/// Callers of one process that wait for as many permits of one key pass in the order of their
/// calls; of calls under way together a smaller one may pass before a larger that was denied.
/// Between processes there is no order: of those whose first caller asks when permits are free, the
/// store grants the one that it hears first.
#[derive(Clone, Debug)]
pub struct Shared {
    setup: Arc<Setup>,
}

#[derive(Debug)]
struct Setup {
    id: u64,
    store: Config,
    /// The place of the counts in the store, of a limit without a name.
    unnamed: Option<Unnamed>,
    rules: Vec<(String, Rule)>,
    mode: Mode,
    when_gone: OnUnavailable,
    has_quarantine: bool,
    budget: Duration,
    /// The most permits that one call can take.
    capacity: u64,
    kept: PerProcess<Arc<Connected>>,
}

#[derive(Debug, PartialEq, Eq)]
struct Unnamed {
    server: Server,
    database: u16,
    prefix: Option<String>,
}

/// The parts that each process has of its own.
#[derive(Debug)]
struct Connected {
    store: Arc<RedisStore>,
    limiter: Distributed<RedisStore>,
    clock: MonotonicClock,
    lines: Arc<Lines>,
    is_deny: bool,
    /// The pause before a call is made again that was denied without an instant.
    pause_ns: u64,
}

/// A reply that is there, or will come.
pub enum Reply {
    /// Decided in this process.
    Now(Result<SharedDecision, SharedError>),
    /// Decided by the store.
    Later(Later<Result<SharedDecision, SharedError>>),
}

/// An error of a [`Shared`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum SharedError {
    /// The address of the store is none. The text omits it, as it may hold a password.
    Address(AddressError),
    /// The address begins with what the packages do not take. The text omits it, too.
    Scheme,
    /// The address asks for TLS, which the packages are built without.
    Tls,
    /// A store does not know this policy.
    Policy(Box<AnyPolicy>),
    /// The name cannot be part of a key in the store.
    Name(String),
    /// The prefix, or what TLS needs, cannot be used, or the system has no thread or no files for
    /// the connection.
    Open(Arc<OpenError>),
    /// The limit and the mode do not fit each other, or not the store.
    Setup(SetupError),
    /// The store is gone, and calls are denied meanwhile; or this process's part of the limit does
    /// not begin within the timeout.
    Unavailable {
        /// The store's latest failure.
        why: Unavailable,
        /// The wait until a call may go to the store again, where it is known.
        retry_after: Option<Duration>,
    },
    /// The start lies past the timeout. Nothing was taken.
    TooLong {
        /// The wait until the store would grant as much; `None` behind others of this process.
        retry_after: Option<Duration>,
    },
    /// No wait ends in a grant.
    TimeCannotHelp,
    /// More permits than could ever pass together.
    Exceeds(ExceedsCapacity),
    /// The store refuses the request itself, or was closed.
    Store(StoreError),
}

impl Shared {
    /// Creates a limit. It connects at the first call, in the background.
    ///
    /// # Errors
    ///
    /// [`SharedError::Address`], [`SharedError::Scheme`], [`SharedError::Tls`],
    /// [`SharedError::Policy`], [`SharedError::Name`], [`SharedError::Open`] and
    /// [`SharedError::Setup`].
    pub fn new(policies: &Policies, config: &SharedConfig) -> Result<Self, SharedError> {
        if config.url.starts_with("rediss:") {
            return Err(SharedError::Tls);
        }
        if !["redis://", "unix:"].iter().any(|scheme| config.url.starts_with(scheme)) {
            return Err(SharedError::Scheme);
        }
        let address: Address = config.url.parse().map_err(SharedError::Address)?;
        let unnamed = config.name.is_none().then(|| Unnamed {
            server: address.server.clone(),
            database: address.database.unwrap_or(0),
            prefix: config.prefix.clone(),
        });
        let mut store = address.config().budget(config.budget);
        if let Some(prefix) = &config.prefix {
            store = store.prefix(prefix);
        }
        let rules = rules(policies, config.name.as_deref())?;
        let capacity = rules.iter().map(|(_, rule)| rule.capacity()).min().unwrap_or(0);
        let setup = Setup {
            id: next_id(),
            store,
            unnamed,
            rules,
            mode: config.mode,
            when_gone: config.when_gone,
            has_quarantine: config.has_quarantine,
            budget: config.budget,
            capacity,
            kept: PerProcess::new(),
        };
        // A mistake in the configuration is found here; the connection is made in the background.
        setup.connected()?;
        Ok(Self { setup: Arc::new(setup) })
    }

    /// Takes permits of a key, all or none, or denies them.
    ///
    /// The reply comes within the budget and a quarter: without the store, what
    /// [decides](SharedConfig::when_gone) while it is gone does.
    #[must_use]
    pub fn decide(&self, key: &[u8], permits: u64) -> Reply {
        self.reply(|connected| connected.limiter.try_acquire(key, permits))
    }

    /// Decides as [`decide`](Self::decide), and blocks the thread for the reply.
    ///
    /// # Errors
    ///
    /// [`SharedError::Exceeds`], [`SharedError::Store`], and [`SharedError::Open`] in a forked
    /// child without threads.
    pub fn decide_blocking(&self, key: &[u8], permits: u64) -> Result<SharedDecision, SharedError> {
        self.setup.connected()?.limiter.try_acquire(key, permits).wait().map_err(Into::into)
    }

    /// Returns the decision that a call would get. Takes nothing.
    ///
    /// The store makes it, without the permits that processes have borrowed.
    #[must_use]
    pub fn peek(&self, key: &[u8], permits: u64) -> Reply {
        self.reply(|connected| connected.limiter.peek(key, permits))
    }

    /// Takes permits of a key as soon as they may start. The decision is a grant.
    ///
    /// A timeout refuses at once what could only start later. While the store is gone and calls
    /// are denied, or this process's part of the limit has not begun within the timeout, the reply
    /// is [`SharedError::Unavailable`]: a caller that would rather wait on calls again.
    #[must_use]
    pub fn acquire(&self, key: &[u8], permits: u64, timeout: Option<Duration>) -> Reply {
        if permits > self.setup.capacity {
            let error = ExceedsCapacity::new(permits, self.setup.capacity);
            return Reply::Now(Err(SharedError::Exceeds(error)));
        }
        let connected = match self.setup.connected() {
            Ok(connected) => connected,
            Err(error) => return Reply::Now(Err(error)),
        };
        let number = connected.lines.number();
        let first = if connected.lines.has(key) {
            None
        } else {
            match connected.limiter.try_acquire(key, permits).at_once() {
                Ok(Ok(granted @ SharedDecision::Granted(_))) => return Reply::Now(Ok(granted)),
                first => Some(first),
            }
        };
        let deadline_ns =
            timeout.map(|timeout| connected.clock.now_ns().saturating_add(whole_ns(timeout)));
        let (connected, key) = (Arc::clone(connected), Arc::from(key));
        let call = Call { connected, key, number, permits, deadline_ns };
        Reply::Later(Box::pin(call.acquire(first)))
    }

    /// Returns `true` if this limit and another one have no name, and count together because their
    /// texts and their stores are equal.
    #[must_use]
    pub fn counts_with(&self, other: &Self) -> bool {
        let labels = |setup: &Setup, label: &str| setup.rules.iter().any(|(each, _)| each == label);
        self.setup.unnamed.is_some()
            && self.setup.unnamed == other.setup.unnamed
            && self.setup.rules.iter().any(|(label, _)| labels(&other.setup, label))
    }

    /// Returns the number of a key's limit in this process, which [receipts](crate::Receipt) name.
    #[must_use]
    pub fn id_of(&self, key: &[u8]) -> u64 {
        id_of_key(self.setup.id, key)
    }

    /// Brings back permits of a grant that had no effect, each permit once.
    ///
    /// The request is sent in the background. If it is lost, the permits age out as if used.
    ///
    /// # Errors
    ///
    /// [`SharedError::Open`] in a forked child without threads.
    pub fn refund(&self, key: &[u8], permits: u64, grant: SharedGrant) -> Result<(), SharedError> {
        if let Some(permits) = NonZeroU64::new(permits) {
            self.setup.connected()?.limiter.refund(key, permits, grant);
        }
        Ok(())
    }

    /// Blocks the thread until the store has replied once, for at most `timeout`.
    ///
    /// # Errors
    ///
    /// [`SharedError::Unavailable`] after that time, and at once where only an operator can help,
    /// as with a wrong password.
    pub fn ready(&self, timeout: Duration) -> Result<(), SharedError> {
        self.setup.connected()?.store.ready(timeout).map_err(Into::into)
    }

    /// Returns the number of callers of this process that wait for a key.
    #[must_use]
    pub fn waiting(&self, key: &[u8]) -> usize {
        self.setup.connected().map_or(0, |connected| connected.lines.waiting(key))
    }

    /// Returns the status of the store, as this process sees it.
    #[must_use]
    pub fn health(&self) -> Health {
        self.setup.connected().map_or_else(|_| Health::default(), |kept| kept.limiter.health())
    }

    /// Returns the number of this process's calls, by who decided them.
    #[must_use]
    pub fn counts(&self) -> SharedCounts {
        let counts = self.setup.connected().map(|connected| connected.limiter.counts());
        counts.unwrap_or_default()
    }

    fn reply(&self, request: impl FnOnce(&Connected) -> DecisionFuture) -> Reply {
        match self.setup.connected() {
            Err(error) => Reply::Now(Err(error)),
            Ok(connected) => match request(connected).at_once() {
                Ok(decision) => Reply::Now(decision.map_err(Into::into)),
                Err(later) => Reply::Later(Box::pin(async { later.await.map_err(Into::into) })),
            },
        }
    }
}

impl Setup {
    /// Returns what this process has of its own, and connects if there is none.
    fn connected(&self) -> Result<&Arc<Connected>, SharedError> {
        self.kept.get_or_try_init(|| {
            let store = RedisStore::open(self.store.clone());
            let store = Arc::new(store.map_err(|error| SharedError::Open(Arc::new(error)))?);
            let mut builder = Distributed::builder(Arc::clone(&store));
            for (label, rule) in &self.rules {
                builder = builder.limit(label, *rule);
            }
            let clock = MonotonicClock::new();
            let builder = builder.mode(self.mode).on_unavailable(self.when_gone);
            let mut builder = builder.with_budget(self.budget);
            if self.has_quarantine {
                builder = builder.with_quarantine();
            }
            let limiter = builder.build().map_err(SharedError::Setup)?;
            let is_deny = self.when_gone == OnUnavailable::Deny;
            let pause_ns = whole_ns(self.budget).max(1);
            let lines = Arc::new(Lines::new(limiter.clone()));
            Ok(Arc::new(Connected { store, limiter, clock, lines, is_deny, pause_ns }))
        })
    }
}

/// A call that waits until its permits are granted.
struct Call {
    connected: Arc<Connected>,
    key: Arc<[u8]>,
    number: u64,
    permits: u64,
    deadline_ns: Option<u64>,
}

/// A decision that was there at once, or comes from the store.
type First = Result<Result<SharedDecision, StoreError>, DecisionFuture>;

impl Call {
    async fn acquire(self, mut first: Option<First>) -> Result<SharedDecision, SharedError> {
        let Self { connected, key, number, permits, .. } = &self;
        let join = |retry_ns| connected.lines.join(key, *number, *permits, retry_ns);
        let mut place = first.is_none().then(|| join(0));
        loop {
            if let Some(waiting) = &place
                && let Some(grant) = self.turn(waiting).await?
            {
                if let Some(place) = place {
                    place.granted(grant.remaining);
                }
                return Ok(SharedDecision::Granted(grant));
            }
            let decision = match first.take() {
                Some(Ok(decision)) => decision?,
                Some(Err(later)) => later.await?,
                None => connected.limiter.try_acquire(key, *permits).await?,
            };
            let retry_ns = match decision {
                SharedDecision::Granted(grant) => {
                    let lines = &connected.lines;
                    let grant = lines.hand_to_earlier(key, *number, *permits, grant);
                    if let Some(grant) = grant {
                        if let Some(place) = place {
                            place.granted(grant.remaining);
                        }
                        return Ok(SharedDecision::Granted(grant));
                    }
                    0
                }
                SharedDecision::Denied(denial) => self.retry_ns(&denial)?,
            };
            match &place {
                Some(place) => place.denied(retry_ns),
                None => place = Some(join(retry_ns)),
            }
        }
    }

    /// Returns the instant of the next try after a denial.
    fn retry_ns(&self, denial: &Denial) -> Result<u64, SharedError> {
        let connected = &self.connected;
        let retry_after = denial.retry_after;
        if denial.by == DecidedBy::Fallback && connected.is_deny {
            return Err(connected.gone(retry_after));
        }
        if denial.by == DecidedBy::Store && retry_after.is_none() {
            return Err(SharedError::TimeCannotHelp);
        }
        let wait_ns = retry_after.map_or(connected.pause_ns, whole_ns);
        let retry_ns = connected.clock.now_ns().saturating_add(wait_ns);
        if self.deadline_ns.is_some_and(|deadline_ns| retry_ns > deadline_ns) {
            // Before this process's part begins, no limit has decided.
            let is_undecided = denial.by == DecidedBy::Fallback && denial.remaining.is_none();
            return Err(if is_undecided {
                connected.gone(retry_after)
            } else {
                SharedError::TooLong { retry_after }
            });
        }
        Ok(retry_ns)
    }

    /// Waits until the caller may ask the store, or has the grant of a later one.
    async fn turn(&self, place: &Place) -> Result<Option<SharedGrant>, SharedError> {
        let clock = &self.connected.clock;
        let mut slept: Option<(u64, Sleep)> = None;
        poll_fn(|context| {
            loop {
                let now_ns = clock.now_ns();
                let until_ns = match place.turn(now_ns, context.waker()) {
                    Turn::Ask => return Poll::Ready(Ok(None)),
                    Turn::Granted(grant) => return Poll::Ready(Ok(Some(grant))),
                    // Not past the deadline, or the call would have ended with its denial.
                    Turn::Until(at_ns) => Some(at_ns),
                    Turn::Behind => self.deadline_ns,
                };
                if self.deadline_ns.is_some_and(|deadline_ns| deadline_ns < now_ns) {
                    return Poll::Ready(Err(SharedError::TooLong { retry_after: None }));
                }
                let Some(until_ns) = until_ns else { return Poll::Pending };
                let (_, sleep) = match &mut slept {
                    Some(slept) if slept.0 == until_ns => slept,
                    slept => slept.insert((until_ns, clock.sleep_until(until_ns))),
                };
                match sleep.as_mut().poll(context) {
                    Poll::Ready(()) => slept = None,
                    Poll::Pending => return Poll::Pending,
                }
            }
        })
        .await
    }
}

impl Connected {
    /// Returns the error of a call that is denied because the store is gone.
    fn gone(&self, retry_after: Option<Duration>) -> SharedError {
        let why = self.limiter.health().last_unavailable.unwrap_or(Unavailable::Late);
        SharedError::Unavailable { why, retry_after }
    }
}

impl Reply {
    /// Blocks the thread until the reply has come.
    ///
    /// # Errors
    ///
    /// That of the call.
    pub fn wait(self) -> Result<SharedDecision, SharedError> {
        let mut later = match self {
            Self::Now(reply) => return reply,
            Self::Later(later) => later,
        };
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        loop {
            if let Poll::Ready(reply) = later.as_mut().poll(&mut Context::from_waker(&waker)) {
                return reply;
            }
            thread::park();
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Returns the rules of policies, with their labels in the store.
fn rules(policies: &Policies, name: Option<&str>) -> Result<Vec<(String, Rule)>, SharedError> {
    if let Some(name) = name {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if name.is_empty() || name.len() > MAX_NAME_BYTES || !name.chars().all(is_plain) {
            return Err(SharedError::Name(name.to_owned()));
        }
    }
    let numbered = policies.policies().iter().enumerate();
    let named = numbered.map(|(at, policy)| {
        let rule = match *policy {
            AnyPolicy::Gcra(policy) => policy.into(),
            AnyPolicy::SlidingLog(policy) => policy.into(),
            AnyPolicy::FixedWindow(policy) => policy.into(),
            policy => return Err(SharedError::Policy(Box::new(policy))),
        };
        let label = match (name, at) {
            (None, _) => label_of(&policy.to_string()),
            (Some(name), 0) => name.to_owned(),
            (Some(name), at) => format!("{name}.{at}"),
        };
        Ok((label, rule))
    });
    named.collect()
}

/// Makes a label of a limit's text: `100/s burst 20` is `100-s-burst-20`.
fn label_of(text: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' };
    let label: String = text.chars().map(plain).collect();
    if label.len() <= MAX_LABEL_BYTES {
        return label;
    }
    // FNV-1a, which is the same in each process and version.
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325, mix);
    label.chars().take(15).chain(format!("-{hash:016x}").chars()).collect()
}

impl SharedError {
    /// Returns the number of the error.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::Open(error) => match **error {
                OpenError::Driver(_) => Code::Failed,
                _ => Code::Invalid,
            },
            Self::Unavailable { .. } => Code::Unavailable,
            Self::TooLong { .. } => Code::TooLong,
            Self::TimeCannotHelp | Self::Exceeds(_) => Code::Never,
            Self::Store(StoreError::Closed) => Code::Closed,
            Self::Address(_)
            | Self::Scheme
            | Self::Tls
            | Self::Policy(_)
            | Self::Name(_)
            | Self::Setup(_)
            | Self::Store(_) => Code::Invalid,
        }
    }
}

impl From<StoreError> for SharedError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unavailable(why) => Self::Unavailable { why, retry_after: None },
            StoreError::Exceeds(error) => Self::Exceeds(error),
            error => Self::Store(error),
        }
    }
}

impl fmt::Display for SharedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(error) => write!(f, "the address of the store: {error}"),
            Self::Scheme => f.write_str(
                "the address of the store must begin with \"redis://\" or \"unix:/\", as in \
                 \"redis://127.0.0.1:6379\"",
            ),
            Self::Tls => f.write_str(
                "the address of the store begins with \"rediss:\", and this package has no TLS: run a \
                 proxy for TLS, such as stunnel, and give its \"redis://\" or \"unix:/\" address",
            ),
            Self::Policy(policy) => {
                let body = policy_body(policy).unwrap_or_else(|| policy.to_string());
                write!(
                    f,
                    "a store does not know the policy ({}); it knows gcra (\"10/s burst 5\"), \
                     sliding-log (\"100 per any minute\") and fixed-window",
                    body.trim().replace('\n', ", ")
                )
            }
            Self::Name(name) => write!(
                f,
                "the name {name:?} is none; must be 1 to {MAX_NAME_BYTES} letters, digits, `-`, `_` \
                 and `.`"
            ),
            Self::Open(error) => error.fmt(f),
            Self::Setup(error) => error.fmt(f),
            Self::Unavailable { why, .. } => write!(f, "the store is unavailable: {why}"),
            Self::TooLong { retry_after: Some(wait) } => {
                write!(f, "the permits are not free within the timeout, but in {wait:?}")
            }
            Self::TooLong { retry_after: None } => {
                f.write_str("the permits were not free within the timeout")
            }
            Self::TimeCannotHelp => f.write_str("no wait ends in a grant"),
            Self::Exceeds(error) => error.fmt(f),
            Self::Store(error) => error.fmt(f),
        }
    }
}

impl Error for SharedError {}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Now(reply) => f.debug_tuple("Now").field(reply).finish(),
            Self::Later(_) => f.write_str("Later"),
        }
    }
}
