//! HTTP and JSON: requests as clients send them.

use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http_body_util::{BodyExt, Full};
use rategate_server::engine::Verb;
use rategate_server::net::Rights;
use rategate_server::protocol::http::{Api, Caller, Options};
use serde_json::{Value as Json, json};
use tokio::runtime::{Builder, Runtime};

use crate::scenarios::carrier::{Carrier, CarrierAnswer, ItemAnswer, TestEngine};

pub(crate) struct OverHttp {
    api: Api,
    runtime: Mutex<Runtime>,
}

impl OverHttp {
    pub(crate) fn new(engine: TestEngine) -> Self {
        let runtime = Mutex::new(Builder::new_current_thread().enable_all().build().unwrap());
        Self { api: Api::new(engine, Options::default()), runtime }
    }
}

impl Carrier for OverHttp {
    fn ask(&self, verb: Verb, rules: &[Arc<str>], value: &[u8], permits: u64) -> CarrierAnswer {
        let verb = match verb {
            Verb::Take => "take",
            Verb::Peek => "peek",
            Verb::Charge => "charge",
            other => unreachable!("{other:?} is not used by the scenarios"),
        };
        let key = json!({"base64": STANDARD.encode(value)});
        let items =
            rules.iter().map(|rule| json!({"rule": **rule, "key": key, "permits": permits}));
        let body = json!({"verb": verb, "items": items.collect::<Vec<_>>()}).to_string();
        let request = http::Request::post("/v1/check").body(Full::new(body.into())).unwrap();
        let answer: Json = self.runtime.lock().unwrap().block_on(async {
            let response = self.api.call(request, &Caller::with(Rights::ALL)).await;
            assert_eq!(response.status(), 200);
            let body = response.into_body().collect().await.unwrap().to_bytes();
            serde_json::from_slice(&body).unwrap()
        });
        let outcome = answer["items"].as_array().unwrap().iter().map(|item| ItemAnswer {
            is_over: !item["allowed"].as_bool().unwrap(),
            retry_after_ns: item["retry_after_ns"].as_u64(),
            remaining: item["remaining"].as_u64().unwrap(),
            // Left out without a debt.
            debt: item["debt"].as_u64().unwrap_or(0),
        });
        CarrierAnswer { allowed: answer["allowed"].as_bool().unwrap(), results: outcome.collect() }
    }
}
