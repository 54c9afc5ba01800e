//! An engine with rules and traffic, and the admin API over a real connection.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rategate::policy::Anchor;
use rategate::{Clock, FixedWindow, Gcra, ManualClock, SlidingLog};
use rategate_server::config::settings::LogKeys;
use rategate_server::engine::{
    Engine, EngineSettings, Inline, Item, Observer, Request, Target, Verb,
};
use rategate_server::net::Rights;
use rategate_server::net::Tally as _;
use rategate_server::observe::admin::Admin;
use rategate_server::observe::{Observe, Protocol, Store};
use rategate_server::protocol::http::{Api, Caller};
use rategate_server::rule::{DisplayLimit, Enforcement, Limit, Origin, Rule, RuleSet, Unit};

use crate::engine::common::{now, per_minute};

pub(crate) const SECOND_NS: u64 = 1_000_000_000;

/// Returns a rule with a limit per unit, for the entries of these keys.
pub(crate) fn rule(name: &str, keys: &[&str], limit: Limit, permits: u64, unit: Unit) -> Rule {
    Rule {
        domain: "edge".into(),
        limit,
        display_limit: DisplayLimit { permits, multiplier: 1, unit },
        max_keys: Some(1_000),
        origin: Origin { file: Arc::new(PathBuf::from("limits.toml")), line: 3, column: 1 },
        ..per_minute(name, keys, 1)
    }
}

pub(crate) fn bucket(permits: u64, burst: u64) -> Limit {
    let rate = rategate::Rate::per_second(permits);
    Limit::Policy(Gcra::new(rate, burst).unwrap().into())
}

/// Returns four rules: a bucket for each address, a log for all, a shadow for each user, and a
/// window for two values.
pub(crate) fn rules() -> RuleSet {
    let log = Limit::Policy(SlidingLog::new(60, Duration::from_nanos(SECOND_NS)).into());
    let window = FixedWindow::new(100, Duration::from_nanos(60 * SECOND_NS), Anchor::Epoch);
    let window = Limit::Policy(window.into());
    let hour = FixedWindow::new(400, Duration::from_nanos(3_600 * SECOND_NS), Anchor::Epoch);
    let shadow = Rule {
        enforcement: Enforcement::Shadow,
        ..rule("uploads", &["user"], Limit::Policy(hour.into()), 400, Unit::Hour)
    };
    let rules = vec![
        rule("per-address", &["remote_address"], bucket(10, 20), 10, Unit::Second),
        rule("search", &[], log, 60, Unit::Second),
        shadow,
        rule("free-plan", &["plan", "user"], window, 100, Unit::Minute),
    ];
    RuleSet { rules, hash: "3f1c9a52d7be40f8".into() }
}

/// Takes permits under a rule. Returns `true` if they were allowed.
pub(crate) fn take<C: Clock + Clone + 'static>(
    engine: &Engine<C>,
    name: &str,
    values: &[&str],
    permits: u64,
) -> bool {
    let values: Vec<&[u8]> = values.iter().map(|value| value.as_bytes()).collect();
    let items = [Item::of(Target::Rule { name, values: &values }, permits)];
    let request = Request { verb: Verb::Take, items: &items, counts_denied: false };
    now(engine.decide(&request)).unwrap().allowed
}

/// An engine with an observer, on a clock that the test sets.
pub(crate) struct Bench {
    pub(crate) clock: ManualClock,
    pub(crate) engine: Engine<ManualClock>,
    pub(crate) observe: Arc<Observe>,
    pub(crate) admin: Api,
}

/// A Monday, on the hour.
pub(crate) const START_NS: u64 = 1_790_000_000 / 3_600 * 3_600 * SECOND_NS;

impl Bench {
    pub(crate) fn new(rules: RuleSet) -> Self {
        Self::with_log_keys(rules, LogKeys::default())
    }

    pub(crate) fn with_log_keys(rules: RuleSet, keys: LogKeys) -> Self {
        let clock = ManualClock::new();
        clock.set(Duration::from_nanos(START_NS));
        let observe = Arc::new(Observe::with_log_keys(START_NS, keys));
        let observer = Arc::clone(&observe) as Arc<dyn Observer>;
        let engine =
            Engine::with_observer(clock.clone(), EngineSettings::default(), Some(observer));
        engine.load(rules).unwrap();
        observe.status().loaded(START_NS / SECOND_NS);
        observe.tick(START_NS);
        let admin = Admin::new(Arc::clone(&observe), Arc::new(engine.clone()));
        let admin = Api::of(admin.routes());
        Self { clock, engine, observe, admin }
    }

    /// Ends a second.
    pub(crate) fn second(&self) {
        self.clock.advance(Duration::from_nanos(SECOND_NS));
        self.observe.tick(self.clock.now_ns());
    }

    pub(crate) fn take(&self, name: &str, values: &[&str], permits: u64) -> bool {
        take(&self.engine, name, values, permits)
    }

    /// Returns the status and body of the answer to a request.
    pub(crate) fn call(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        self.call_as(Rights::ALL, method, path, body)
    }

    pub(crate) fn call_as(
        &self,
        rights: Rights,
        method: &str,
        path: &str,
        body: &str,
    ) -> (u16, String) {
        use http_body_util::BodyExt as _;
        let body = http_body_util::Full::new(bytes::Bytes::copy_from_slice(body.as_bytes()));
        let request = http::Request::builder().method(method).uri(path).body(body).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let response = self.admin.call(request, &Caller::with(rights)).await;
            let status = response.status().as_u16();
            let body = response.into_body().collect().await.unwrap().to_bytes();
            (status, String::from_utf8(body.to_vec()).unwrap())
        })
    }

    pub(crate) fn json(&self, path: &str) -> serde_json::Value {
        let (status, body) = self.call("GET", path, "");
        assert_eq!(status, 200, "{path}: {body}");
        serde_json::from_str(&body).unwrap()
    }
}

/// Real time since 1970, for an engine in live use.
#[derive(Clone, Debug)]
pub(crate) struct Wall;

impl Clock for Wall {
    fn now_ns(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        u64::try_from(since.as_nanos()).unwrap()
    }

    fn wait(&self, _until_ns: u64, _cancel: &rategate::wait::CancelToken) -> rategate::wait::Wake {
        unreachable!("an engine never waits")
    }
}

/// A server on its own port, with traffic until it is dropped.
pub(crate) struct Site {
    pub(crate) address: SocketAddr,
    pub(crate) observe: Arc<Observe>,
    pub(crate) engine: Engine<Wall>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Site {
    /// Starts a server with traffic. With `token`, clients must present it to read.
    pub(crate) fn start(token: Option<&'static str>) -> Self {
        let mut site = Self::quiet(token);
        let (stopped, driven) = (Arc::clone(&site.stop), site.engine.clone());
        site.threads.push(thread::spawn(move || drive(&driven, &stopped)));
        site
    }

    /// Starts a server without traffic.
    pub(crate) fn quiet(token: Option<&'static str>) -> Self {
        Self::of(rules(), token)
    }

    /// Starts a server with these rules and without traffic.
    pub(crate) fn of(rules: RuleSet, token: Option<&'static str>) -> Self {
        let observe = Arc::new(Observe::new(Wall.now_ns()));
        let observer = Arc::clone(&observe) as Arc<dyn Observer>;
        let engine = Engine::with_observer(Wall, EngineSettings::default(), Some(observer));
        engine.load(rules).unwrap();
        observe.status().loaded(Wall.now_ns() / SECOND_NS);
        observe.status().store_is(Store::Healthy);
        let admin = Admin::new(Arc::clone(&observe), Arc::new(engine.clone()));
        let admin = Api::of(admin.routes());
        let stop = Arc::new(AtomicBool::new(false));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut threads = Vec::new();
        let (stopped, watched) = (Arc::clone(&stop), Arc::clone(&observe));
        threads.push(thread::spawn(move || serve(listener, &admin, token, &stopped, &watched)));
        let (stopped, watched) = (Arc::clone(&stop), Arc::clone(&observe));
        threads.push(thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                thread::park_timeout(Duration::from_millis(200));
                watched.tick(Wall.now_ns());
            }
        }));
        Self { address, observe, engine, stop, threads }
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().unwrap();
        }
    }
}

fn serve(
    listener: std::net::TcpListener,
    admin: &Api,
    token: Option<&'static str>,
    stop: &AtomicBool,
    observe: &Arc<Observe>,
) {
    listener.set_nonblocking(true).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        let calls = observe.status().listener(Protocol::Http, "127.0.0.1:8080", false);
        while !stop.load(Ordering::Relaxed) {
            let next = tokio::time::timeout(Duration::from_millis(100), listener.accept()).await;
            let Ok(Ok((stream, _))) = next else { continue };
            let (admin, calls) = (admin.clone(), Arc::clone(&calls));
            tokio::spawn(async move {
                calls.opened();
                let answer = service_fn(|request: http::Request<hyper::body::Incoming>| {
                    let admin = admin.clone();
                    let shown = request.headers().get("authorization").cloned();
                    let may = token.is_none_or(|token| {
                        shown.is_some_and(|shown| shown == format!("Bearer {token}").as_str())
                    });
                    let rights = if may { Rights::ALL } else { Rights::NONE };
                    async move {
                        let caller = Caller::with(rights);
                        Ok::<_, std::convert::Infallible>(admin.call(request, &caller).await)
                    }
                });
                let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await;
                calls.closed();
            });
        }
    });
}

/// Makes some 400 calls a second: one address far over its limit, others under theirs.
fn drive(engine: &Engine<Wall>, stop: &AtomicBool) {
    let inline = Inline { capacity: 5, count: 5, period_ns: SECOND_NS };
    let mut round = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        thread::park_timeout(Duration::from_millis(10));
        round = round.wrapping_add(1);
        let wave = (round / 100) % 7;
        take(engine, "per-address", &["203.0.113.7"], 1);
        if round.is_multiple_of(3) {
            take(engine, "per-address", &["2001:db8::1f"], 1);
        }
        for other in 0..wave.min(3) {
            take(engine, "per-address", &[&format!("198.51.100.{}", (round * 7 + other) % 40)], 1);
        }
        for _ in 0..wave / 2 {
            take(engine, "search", &[], 1);
        }
        if round.is_multiple_of(8) {
            take(engine, "uploads", &[&format!("user/{}", round % 5)], 40);
            take(engine, "free-plan", &["free", "käthe"], 1);
            let _ = engine.inline(inline, b"cell", Verb::Take, 1);
        }
    }
}
