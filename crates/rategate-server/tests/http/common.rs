//! An API with rules, and short forms of requests.

use std::net::IpAddr;
use std::time::Duration;

use http::Request;
use http_body_util::{BodyExt, Full};
use rategate::{Clock, Concurrency, ManualClock};
use rategate_server::config::load_text;
use rategate_server::engine::{Engine, EngineSettings};
use rategate_server::net::Rights;
use rategate_server::protocol::http::{Api, Caller, Options};
use rategate_server::rule::{DisplayLimit, Enforcement, Limit, Rule, RuleSet};
use serde_json::Value as Json;

use crate::engine::common::{MONDAY, bucket, per_minute};
use crate::lines::{self, Asked};
use crate::serve::clients::Answer;

pub(crate) use crate::engine::common::SECOND;

/// An API on a clock that the test sets.
#[derive(Clone)]
pub(crate) struct Service<C: Clock = ManualClock> {
    pub(crate) api: Api,
    pub(crate) clock: C,
    pub(crate) caller: Caller,
}

pub(crate) fn service(options: Options) -> Service {
    on_clock(on_monday(), RuleSet { rules: rules(), hash: "".into() }, options)
}

/// Returns an API with the rules of a text.
pub(crate) fn with_text(rules: &str) -> Service {
    let loaded =
        load_text("rules.toml", rules).unwrap_or_else(|error| panic!("{}", error.report()));
    on_clock(on_monday(), loaded.rules.set().as_ref().clone(), Options::default())
}

pub(crate) fn on_monday() -> ManualClock {
    let clock = ManualClock::new();
    clock.advance(Duration::from_nanos(MONDAY));
    clock
}

pub(crate) fn on_clock<C>(clock: C, rules: RuleSet, options: Options) -> Service<C>
where
    C: Clock + Clone + 'static,
{
    let engine = Engine::new(clock.clone(), EngineSettings::default());
    engine.load(rules).unwrap();
    Service { api: Api::new(engine, options), clock, caller: Caller::with(Rights::ALL) }
}

pub(crate) fn plain() -> Service {
    service(Options::default())
}

/// Returns the rules. `per_user`: 3 at once, one a second. `per_path`: 10 a minute for each user
/// and path. `all`: 5 a minute. `shadow`: 1 a minute, not enforced. `free`: no limit. `closed`:
/// nothing. `ovens`: 3 at a time, held for 30 s.
fn rules() -> Vec<Rule> {
    let per_user = bucket("per_user", &["user"], 3);
    let ovens = Limit::Policy(Concurrency::new(3).into());
    let window = |name: &str, permits| per_minute(name, &[name], permits);
    let rules = [
        Rule { display_limit: DisplayLimit { permits: 60, ..per_user.display_limit }, ..per_user },
        per_minute("per_path", &["user", "path"], 10),
        per_minute("all", &[], 5),
        Rule { enforcement: Enforcement::Shadow, ..window("shadow", 1) },
        Rule { limit: Limit::Unlimited, ..window("free", 1) },
        Rule { limit: Limit::Nothing, ..window("closed", 1) },
        Rule { limit: ovens, held_ns: 30 * SECOND, ..per_minute("ovens", &["site"], 3) },
    ];
    rules.into_iter().map(|rule| Rule { domain: "edge".into(), ..rule }).collect()
}

impl<C: Clock + Clone + 'static> Service<C> {
    pub(crate) fn from(mut self, address: &str) -> Self {
        self.caller.address = address.parse::<IpAddr>().ok();
        self
    }

    pub(crate) fn call(
        &self,
        method: &str,
        uri: &str,
        fields: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        self.answer(request.body(Full::new(body.to_owned().into())).unwrap())
    }

    fn answer(&self, request: Request<Full<bytes::Bytes>>) -> Answer {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (head, body) = self.api.call(request, &self.caller).await.into_parts();
            let body = body.collect().await.unwrap().to_bytes().to_vec();
            Answer { status: head.status.as_u16(), headers: head.headers, body }
        })
    }

    pub(crate) fn post(&self, uri: &str, body: &str) -> Answer {
        self.call("POST", uri, &[], body)
    }

    pub(crate) fn post_bytes(&self, uri: &str, body: Vec<u8>) -> Answer {
        self.answer(Request::post(uri).body(Full::new(body.into())).unwrap())
    }

    pub(crate) fn get(&self, uri: &str) -> Answer {
        self.call("GET", uri, &[], "")
    }

    /// Calls `/v1/check`, which must succeed.
    pub(crate) fn check(&self, body: &str) -> Json {
        let answer = self.post("/v1/check", body);
        assert_eq!(answer.status, 200, "{body}: {answer:?}");
        answer.json()
    }
}

impl Service {
    /// Plays a story, in which time passes: `pass 20s`.
    pub(crate) fn play(&self, story: &str) {
        lines::each(story, |asked, expected| match asked.strip_prefix("pass ") {
            Some(time) => self.clock.advance(Duration::from_nanos(nanoseconds(time))),
            None => lines::check(asked, expected, |Asked { method, uri, fields, body }| {
                let fields: Vec<_> = fields.iter().map(|(name, it)| (&**name, &**it)).collect();
                self.call(method, uri, &fields, body)
            }),
        });
    }
}

fn nanoseconds(text: &str) -> u64 {
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let number: u64 = text[..text.len() - unit.len()].parse().unwrap();
    number
        * [("ns", 1), ("ms", 1_000_000), ("s", SECOND)]
            .into_iter()
            .find(|it| it.0 == unit)
            .unwrap()
            .1
}
