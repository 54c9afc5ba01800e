//! Rules, an engine on a clock that tests set, and servers within this process.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use rategate::ManualClock;
use rategate_server::engine::{Engine, EngineSettings, Item, Request, Target, Verb, Verdict};

use rategate_server::net::{Access, TokenShown};
use rategate_server::protocol::grpc::{Grpc, Health, Settings};
use rategate_server::protocol::http::{ConnectionLimits, serve_connection};
use rategate_server::protocol::rls::Decide;
use rategate_server::rule::{DisplayLimit, Entry, Limit, Rule, RuleSet, Value};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::engine::common::{SMALL, now, per_minute};

pub(crate) type Clock = ManualClock;

/// An instant 10 s after the beginning of a minute.
pub(crate) const START_NS: u64 = 1_700_000_050_000_000_000;

pub(crate) fn entry(key: &str, value: &str) -> Entry {
    let value = match value {
        "" => Value::Any,
        pattern if pattern.contains('*') => Value::Pattern { text: pattern.into(), shared: false },
        exact => Value::Exact(exact.into()),
    };
    Entry { key: key.into(), value }
}

/// Returns a rule of domain `edge` with a limit per minute; 0 denies everything.
pub(crate) fn rule(name: &str, entries: &[(&str, &str)], permits: u64) -> Rule {
    let rule = per_minute(name, &[], permits.max(1));
    Rule {
        domain: "edge".into(),
        entries: entries.iter().map(|(key, value)| entry(key, value)).collect(),
        limit: if permits == 0 { Limit::Nothing } else { rule.limit },
        display_limit: DisplayLimit { permits, ..rule.display_limit },
        ..rule
    }
}

pub(crate) fn engine(rules: Vec<Rule>) -> (Engine<Clock>, Clock) {
    engine_with(rules, SMALL)
}

pub(crate) fn engine_with(rules: Vec<Rule>, settings: EngineSettings) -> (Engine<Clock>, Clock) {
    let clock = ManualClock::new();
    clock.set(Duration::from_nanos(START_NS));
    let engine = Engine::new(clock.clone(), settings);
    if !rules.is_empty() {
        engine.load(RuleSet { rules, hash: "tested".into() }).unwrap();
    }
    (engine, clock)
}

/// Returns the rules of most tests.
pub(crate) fn rules() -> Vec<Rule> {
    let mut unlimited = rule("internal", &[("internal", "")], 1);
    unlimited.limit = Limit::Unlimited;
    let mut shadow = rule("shadow", &[("shadow", "")], 1);
    shadow.enforcement = rategate_server::rule::Enforcement::Shadow;
    let mut stands_in = rule("stands_in", &[("plan", "paid")], 50);
    stands_in.replaces = vec!["address".into()];
    let mut quotas = [rule("quota_a", &[("quota", "a")], 1), rule("quota_b", &[("quota", "b")], 2)];
    for rule in &mut quotas {
        rule.quota = true;
    }
    let [a, b] = quotas;
    vec![
        rule("address", &[("remote_address", "")], 10),
        rule("blocked", &[("remote_address", "50.0.0.5")], 0),
        rule("pair", &[("a", ""), ("b", "")], 3),
        unlimited,
        shadow,
        stands_in,
        a,
        b,
    ]
}

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) health: Health,
    drain: watch::Sender<bool>,
}

impl Server {
    pub(crate) fn start(engine: impl Decide + Send + Sync + 'static, settings: Settings) -> Self {
        Self::guarded(engine, settings, None)
    }

    pub(crate) fn guarded(
        engine: impl Decide + Send + Sync + 'static,
        settings: Settings,
        token: Option<&[u8]>,
    ) -> Self {
        let health = runtime().block_on(Health::new(true));
        let access = token.map(Access::token).unwrap_or_default();
        let grpc = Grpc::new(engine, &health, settings);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let (drain, drained) = watch::channel(false);
        let guarded = token.is_some();
        thread::spawn(move || {
            runtime().block_on(accept(listener, (grpc, access), guarded, drained));
        });
        Self { address, health, drain }
    }

    pub(crate) fn drain(&self) {
        self.drain.send_replace(true);
    }
}

async fn accept(
    listener: std::net::TcpListener,
    (grpc, access): (Grpc, Access),
    guarded: bool,
    drained: watch::Receiver<bool>,
) {
    let listener = TcpListener::from_std(listener).unwrap();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let (grpc, access, mut drained) = (grpc.clone(), access.clone(), drained.clone());
        tokio::spawn(async move {
            let drain = async {
                if drained.wait_for(|drained| *drained).await.is_err() {
                    std::future::pending::<()>().await;
                }
            };
            let answer = move |request: http::Request<_>| {
                let field = request.headers().get("authorization");
                let shown =
                    field.map_or(TokenShown::Nothing, |field| access.shown_by(field.as_bytes()));
                let (grpc, rights) = (grpc.clone(), access.rights(shown, guarded));
                async move { grpc.call(request, rights).await }
            };
            serve_connection(stream, ConnectionLimits::default(), drain, answer).await;
        });
    }
}

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// Returns how much of its limit a rule of one value has left, and by how much it is exceeded.
pub(crate) fn left(engine: &Engine<Clock>, name: &str, value: &str) -> (u64, u64) {
    let values: &[&[u8]] = &[value.as_bytes()];
    left_of(engine, Target::Rule { name, values })
}

/// Returns that of a counter.
pub(crate) fn left_of(engine: &Engine<Clock>, target: Target<'_>) -> (u64, u64) {
    let items = [Item::of(target, 0)];
    let answer =
        now(engine.decide(&Request { verb: Verb::Peek, items: &items, counts_denied: false }));
    let result = &answer.unwrap().results[0];
    assert!(matches!(result.verdict, Verdict::Granted | Verdict::Denied { .. }), "{result:?}");
    (result.remaining.unwrap(), result.debt)
}
