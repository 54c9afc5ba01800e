//! A store of limits that is used through a protocol: its rules are the limits of the scenario
//! files, its clock is theirs.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rategate::error::ExceedsCapacity;
use rategate::store::{
    Callback, Denial, Grant, PlanError, Receipt, Reply, Rule, Store, StoreError, StoreReply,
    StoreRequest, Verdict,
};
use rategate::{AnyPolicy, Clock, ManualClock};
use rategate_server::engine::{Engine, EngineSettings, Verb};
use rategate_server::rule::{DisplayLimit, Limit, RuleSet, Unit};
use rategate_testkit::conformance::Arena;

use crate::engine::common::{SMALL, bucket};

pub(crate) type TestEngine = Engine<ManualClock>;

/// A transport of requests to an engine and of answers back.
pub(crate) trait Carrier: Send + Sync + 'static {
    /// A constant that is `true` if one call can name several rules.
    const SEVERAL: bool = true;

    /// Decides all these rules, each with one value and the same permits.
    fn ask(&self, verb: Verb, rules: &[Arc<str>], value: &[u8], permits: u64) -> CarrierAnswer;
}

/// An answer with the contents that all protocols can express.
#[derive(Debug)]
pub(crate) struct CarrierAnswer {
    pub(crate) allowed: bool,
    pub(crate) results: Vec<ItemAnswer>,
}

#[derive(Debug)]
pub(crate) struct ItemAnswer {
    /// `true` if this rule denies.
    pub(crate) is_over: bool,
    pub(crate) retry_after_ns: Option<u64>,
    pub(crate) remaining: u64,
    pub(crate) debt: u64,
}

/// An engine behind a transport, with the clock of the scenarios.
pub(crate) struct Served<F> {
    carry: F,
    clock: Mutex<ManualClock>,
}

impl<F> Served<F> {
    pub(crate) fn new(carry: F) -> Self {
        Self { carry, clock: Mutex::new(ManualClock::new()) }
    }
}

impl<W: Carrier, F: Fn(TestEngine) -> W> Arena for Served<F> {
    type Store = CarriedStore<W>;

    fn store(&self) -> Arc<CarriedStore<W>> {
        let now_ns = self.clock.lock().unwrap().now_ns();
        let clock = ManualClock::new();
        clock.set(Duration::from_nanos(now_ns));
        *self.clock.lock().unwrap() = clock.clone();
        let settings = EngineSettings { max_keys: 1000, ..SMALL };
        let engine = Engine::new(clock, settings);
        let carrier = (self.carry)(engine.clone());
        Arc::new(CarriedStore { engine, carrier, plans: AtomicUsize::new(0) })
    }

    fn set_now_us(&self, now_us: u64) {
        self.clock.lock().unwrap().set(Duration::from_nanos(now_us * 1_000));
    }

    fn supports_several_limits(&self) -> bool {
        W::SEVERAL
    }
}

pub(crate) struct CarriedStore<W> {
    engine: TestEngine,
    carrier: W,
    plans: AtomicUsize,
}

pub(crate) struct Plan {
    names: Vec<Arc<str>>,
    capacity: u64,
}

impl<W: Carrier> Store for CarriedStore<W> {
    type Plan = Plan;

    fn plan(&self, rules: &[(&str, Rule)]) -> Result<Plan, PlanError> {
        let plan = self.plans.fetch_add(1, Ordering::Relaxed);
        let mut set = self.engine.rules().map_or_else(RuleSet::default, |set| (*set).clone());
        let mut names = Vec::new();
        for (label, rule) in rules {
            let name: Arc<str> = format!("{label}{plan}").into();
            set.rules.push(named(&name, rule));
            names.push(name);
        }
        self.engine.load(set).unwrap();
        let capacity = rules.iter().map(|(_, rule)| rule.capacity()).min().unwrap_or(0);
        Ok(Plan { names, capacity })
    }

    fn submit(&self, question: StoreRequest<Plan>, callback: Callback) {
        let ask = |verb, plan: &Plan, key: &[u8], permits| {
            let outcome = self.carrier.ask(verb, &plan.names, key, permits);
            verdict(plan, permits, &outcome).map(Reply::Verdict)
        };
        let reply = match question {
            StoreRequest::Decide { plan, key, permits, .. } => {
                ask(Verb::Take, &plan, &key, permits.get())
            }
            StoreRequest::Peek { plan, key, permits } => {
                ask(Verb::Peek, &plan, &key, permits.get())
            }
            _ => Err(StoreError::InvalidRequest("not used by the scenarios".to_owned())),
        };
        callback(reply.map(|reply| StoreReply { reply, intact_for_ns: None, now_ns: None }));
    }
}

fn verdict(plan: &Plan, permits: u64, outcome: &CarrierAnswer) -> Result<Verdict, StoreError> {
    if permits > plan.capacity {
        assert!(
            !outcome.allowed
                && outcome
                    .results
                    .iter()
                    .any(|result| result.is_over && result.retry_after_ns.is_none())
        );
        return Err(StoreError::Exceeds(ExceedsCapacity::new(permits, plan.capacity)));
    }
    let remaining = outcome.results.iter().map(|result| result.remaining).min().unwrap();
    assert_eq!(
        outcome.allowed,
        !outcome.results.iter().any(|result| result.is_over),
        "{outcome:?}"
    );
    Ok(if outcome.allowed {
        Verdict::Granted(Grant {
            permits,
            remaining,
            window_ends_in_ns: None,
            is_repeated: false,
            receipt: Receipt::default(),
        })
    } else {
        let waits = outcome
            .results
            .iter()
            .filter(|result| result.is_over)
            .map(|result| result.retry_after_ns);
        let max_wait = waits.map(|wait| wait.unwrap_or(u64::MAX)).max().filter(|ns| *ns < u64::MAX);
        let retry_after_ns = max_wait.and_then(std::num::NonZeroU64::new);
        Verdict::Denied(Denial { retry_after_ns, remaining, debt: 0 })
    })
}

/// Returns a rule of domain `scenario`, for any value of its entry `key`.
fn named(name: &Arc<str>, rule: &Rule) -> rategate_server::rule::Rule {
    let policy: AnyPolicy = match rule {
        Rule::Bucket(bucket) => (*bucket).into(),
        Rule::Log(log) => (*log).into(),
        Rule::Window(window) => (*window).into(),
        Rule::InFlight(in_flight, _) => (*in_flight).into(),
    };
    rategate_server::rule::Rule {
        domain: "scenario".into(),
        limit: Limit::Policy(policy),
        display_limit: DisplayLimit { permits: rule.capacity(), multiplier: 1, unit: Unit::Second },
        ..bucket(name, &[name], 1)
    }
}
