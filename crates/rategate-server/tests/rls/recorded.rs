//! The service answers the calls of recorded traces as envoyproxy/ratelimit answered them.
//!
//! `testdata/rls/README.md` states the form of the recording, and its source.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use rategate_server::engine::EngineSettings;
use rategate_server::protocol::rls::{Options, json};
use rategate_server::rule::Counting;
use serde_json::{Value, json as object};
use tokio::runtime::Runtime;

use crate::rls::places::Place;

const RECORDED: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/rls/envoyproxy-ratelimit.jsonl");

const CODES: [&str; 3] = ["UNKNOWN", "OK", "OVER_LIMIT"];

/// The numbers of what was compared: a recording that shrinks is found out.
#[derive(Debug, Default, PartialEq, Eq)]
struct Compared {
    traces: usize,
    /// Traces that the place leaves out.
    left_out: usize,
    calls: usize,
    /// Calls whose responses have headers.
    headers: usize,
    /// Calls whose responses have dynamic metadata.
    metadata: usize,
}

/// A recorded configuration, and the settings of the service that loads it.
struct Config {
    line: Value,
    engine: EngineSettings,
    options: Options,
}

impl Config {
    fn new(line: Value) -> Self {
        let engine = EngineSettings {
            max_keys: 10_000,
            inline_keys: 1_000,
            inline_limits: 31,
            counting: if has(&line, "stop") { Counting::Stop } else { Counting::All },
            ..EngineSettings::default()
        };
        let options = Options {
            headers: has(&line, "headers").then(Arc::default),
            shadow: has(&line, "shadow"),
            quota: has(&line, "quota"),
            dynamic_metadata: has(&line, "metadata"),
            verbs: false,
            ..Options::default()
        };
        Self { line, engine, options }
    }

    fn text(&self) -> &str {
        self.line["config"].as_str().unwrap()
    }

    /// Returns `true` if a place leaves out a trace of this configuration: [`Place`] says why.
    fn leaves_out(&self, trace: &Value, place: &Place) -> bool {
        let calls = trace["calls"].as_array().unwrap().iter();
        let mut named = calls.flat_map(|call| call[2].as_array().unwrap());
        let has_own_limit = |item: &Value| {
            let number = item.as_u64().or_else(|| item[0].as_u64()).unwrap();
            self.line["descriptors"][usize::try_from(number).unwrap()][1].is_array()
        };
        place.is_store() && (has(&self.line, "stop") || named.any(has_own_limit))
    }

    /// Returns a recorded call as a `RateLimitRequest`.
    fn request(&self, domain: &Value, call: &Value) -> Value {
        let descriptors = call[2].as_array().unwrap().iter().map(|item| {
            let number = item.as_u64().or_else(|| item[0].as_u64()).unwrap();
            let descriptor = &self.line["descriptors"][usize::try_from(number).unwrap()];
            let entries = descriptor[0].as_array().unwrap().iter();
            let entries = entries.map(|entry| object!({"key": entry[0], "value": entry[1]}));
            let mut written = object!({ "entries": entries.collect::<Value>() });
            if let Some(limit) = descriptor[1].as_array() {
                let unit = upper(&limit[1]);
                written["limit"] = object!({"requestsPerUnit": limit[0], "unit": unit});
            }
            if item.is_array() {
                written["hitsAddend"] = item[1].clone();
            }
            written
        });
        let descriptors: Value = descriptors.collect();
        object!({"domain": domain, "hitsAddend": call[1], "descriptors": descriptors})
    }

    /// Returns the response to a recorded call as a `RateLimitResponse`, in the JSON mapping.
    fn response(&self, call: &Value) -> Value {
        let statuses = call[4].as_array().unwrap().iter().map(|status| self.status(status));
        let mut response =
            object!({"overallCode": code(&call[3]), "statuses": statuses.collect::<Value>()});
        if let Some(values) = call[5].as_array() {
            let names = ["RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"];
            let headers = names
                .iter()
                .zip(values)
                .map(|(name, value)| object!({"key": name, "value": value.to_string()}));
            response["responseHeadersToAdd"] = headers.collect();
        }
        if let Some(metadata) = call[6].as_object() {
            response["dynamicMetadata"] = metadata.clone().into();
        }
        response
    }

    fn status(&self, status: &Value) -> Value {
        if status.is_u64() {
            return present(object!({"code": "OK", "limitRemaining": status}));
        }
        let limit = &self.line["limits"][usize::try_from(status[1].as_u64().unwrap()).unwrap()];
        let limit = object!(
            {"name": limit[0], "requestsPerUnit": limit[1], "unit": upper(&limit[2])}
        );
        let reset = format!("{}s", status[3]);
        let code = code(&status[0]);
        present(object!({
            "code": code,
            "currentLimit": present(limit),
            "limitRemaining": status[2],
            "durationUntilReset": reset,
        }))
    }

    /// Drops from a response what the two services decide differently on purpose: that project
    /// loses the metadata of rules with metrics of their own.
    fn drop_known_differences(&self, response: &mut Value) {
        if self.text().contains("detailed_metric") || self.text().contains("value_to_metric") {
            let metadata = response["dynamicMetadata"].as_object_mut();
            metadata.map(|metadata| metadata.remove("metadata"));
        }
    }

    /// Plays a trace on an engine of its own, and adds what was compared.
    fn play(&self, trace: &Value, place: &Place, runtime: &Runtime, compared: &mut Compared) {
        let mut placed = place.service(self.text(), self.engine, 0);
        let (random, mut now_s) = (&mut Rng::with_seed(5), 0);
        for (nth, call) in (0..).zip(trace["calls"].as_array().unwrap()) {
            now_s += call[0].as_u64().unwrap();
            // A moment within the second: only whole seconds are recorded.
            placed.clock.set(Duration::from_secs(now_s) + Duration::from_millis(10 * nth));
            placed.pass(place, random);
            let request = self.request(&trace["domain"], call);
            let text = request.to_string();
            let answer =
                runtime.block_on(json(text.as_bytes(), &placed.engine, &self.options, true));
            let mut answered: Value = serde_json::from_str(&answer.body)
                .unwrap_or_else(|_| panic!("{}: {request}", answer.body));
            let mut expected = self.response(call);
            for response in [&mut answered, &mut expected] {
                self.drop_known_differences(response);
            }
            assert_eq!(
                answered, expected,
                "call {nth} at {now_s}: {request}\nin {trace}\nof {}",
                self.line
            );
            compared.calls += 1;
            compared.headers += usize::from(expected["responseHeadersToAdd"].is_array());
            compared.metadata += usize::from(expected["dynamicMetadata"].is_object());
        }
        compared.traces += 1;
    }
}

fn has(line: &Value, setting: &str) -> bool {
    line["settings"].as_array().unwrap().iter().any(|it| it == setting)
}

fn upper(unit: &Value) -> String {
    unit.as_str().unwrap().to_ascii_uppercase()
}

fn code(number: &Value) -> &'static str {
    CODES[usize::try_from(number.as_u64().unwrap()).unwrap()]
}

/// Leaves out zeros and empty texts, as the JSON mapping of protocol buffers does.
fn present(mut message: Value) -> Value {
    message.as_object_mut().unwrap().retain(|_, value| *value != 0 && *value != "");
    message
}

/// Plays every nth of the recorded traces with the counters in some place.
fn play(place: &Place, every: usize) -> Compared {
    let runtime = crate::rls::common::runtime();
    let text = std::fs::read_to_string(RECORDED).unwrap();
    let (mut config, mut compared) = (None, Compared::default());
    for (nth, line) in text.lines().enumerate() {
        let line: Value = serde_json::from_str(line).unwrap();
        if line["config"].is_string() {
            config = Some(Config::new(line));
            continue;
        }
        let config = config.as_ref().unwrap();
        if nth % every > 0 {
            continue;
        }
        if config.leaves_out(&line, place) {
            compared.left_out += 1;
        } else {
            config.play(&line, place, &runtime, &mut compared);
        }
    }
    compared
}

/// Returns which part of the traces the tests of other places play: all if the variable
/// `RATEGATE_TRACES` is set, or every nth.
fn part(every: usize) -> usize {
    std::env::var_os("RATEGATE_TRACES").map_or(every, |_| 1)
}

#[test]
fn recorded_traces_go_on_over_reloads_and_restarts() {
    let compared = play(&Place::restarted(), part(7));
    println!("over reloads and restarts: {compared:?}");
    assert!(compared.calls > 3_000, "{compared:?}");
}

#[test]
fn a_store_in_memory_answers_recorded_calls_alike() {
    let compared = play(&Place::Memory, 1);
    println!("in a store in memory: {compared:?}");
    assert!(compared.calls > 3_000, "{compared:?}");
}

#[test]
fn redis_and_valkey_answer_recorded_calls_alike() {
    for place in Place::each_redis() {
        let compared = play(&place, part(9));
        println!("in a server: {compared:?}");
        assert!(compared.calls > 300, "{compared:?}");
    }
}

#[test]
fn every_recorded_call_is_answered_alike() {
    assert_eq!(
        play(&Place::Here, 1),
        Compared { traces: 2_582, left_out: 0, calls: 26_058, headers: 9_624, metadata: 1_383 }
    );
}
