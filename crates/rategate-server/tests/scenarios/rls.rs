//! Envoy's request over gRPC. Its answer has no retry time, which comes from the engine.

use std::sync::{Arc, Mutex};

use bytes::{BufMut, Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use prost::Message;
use rategate_server::engine::Verb;
use rategate_server::messages::descriptor::RateLimitDescriptor;
use rategate_server::messages::descriptor::rate_limit_descriptor::Entry;
use rategate_server::messages::rls::rate_limit_response::Code;
use rategate_server::messages::rls::{RateLimitRequest, RateLimitResponse};
use rategate_server::net::Rights;
use rategate_server::protocol::grpc::{Grpc, Health, Settings};
use tokio::runtime::{Builder, Runtime};

use crate::scenarios::carrier::{Carrier, CarrierAnswer, ItemAnswer, TestEngine};
use crate::scenarios::engine::Directly;

pub(crate) struct OverRls {
    grpc: Grpc,
    engine: Directly,
    runtime: Mutex<Runtime>,
}

impl OverRls {
    pub(crate) fn new(engine: TestEngine) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let health = runtime.block_on(Health::new(true));
        let grpc = Grpc::new(engine.clone(), &health, Settings::default());
        Self { grpc, engine: Directly(engine), runtime: Mutex::new(runtime) }
    }

    fn call(&self, request: &RateLimitRequest) -> RateLimitResponse {
        let mut message = BytesMut::new();
        message.put_u8(0);
        message.put_u32(request.encoded_len() as u32);
        request.encode(&mut message).unwrap();
        let path = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
        let request = http::Request::post(path)
            .version(http::Version::HTTP_2)
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(Full::<Bytes>::new(message.freeze()))
            .unwrap();
        let body = self.runtime.lock().unwrap().block_on(async {
            let response = self.grpc.call(request, Rights::ALL).await;
            response.into_body().collect().await.unwrap().to_bytes()
        });
        RateLimitResponse::decode(&body[5..]).unwrap()
    }
}

impl Carrier for OverRls {
    fn ask(&self, verb: Verb, rules: &[Arc<str>], value: &[u8], permits: u64) -> CarrierAnswer {
        let peeked = self.engine.ask(Verb::Peek, rules, value, permits);
        // Envoy's service has no peek for a number of permits: only for what is left.
        if verb == Verb::Peek {
            return peeked;
        }
        // It charges only by a rule that counts what is over.
        if verb == Verb::Charge {
            return self.engine.ask(verb, rules, value, permits);
        }
        let descriptor = |rule: &Arc<str>| RateLimitDescriptor {
            entries: vec![Entry { key: rule.as_bytes().to_vec(), value: value.to_vec() }],
            ..RateLimitDescriptor::default()
        };
        // A number beyond the protocol's range is more than can ever pass, too.
        let hits_addend = u32::try_from(permits).unwrap_or(u32::MAX);
        let response = self.call(&RateLimitRequest {
            domain: "scenario".to_owned(),
            descriptors: rules.iter().map(descriptor).collect(),
            hits_addend,
        });
        let results =
            response.statuses.iter().zip(peeked.results).map(|(status, peeked)| ItemAnswer {
                is_over: status.code() == Code::OverLimit,
                retry_after_ns: peeked.retry_after_ns,
                remaining: status.limit_remaining.into(),
                debt: peeked.debt,
            });
        CarrierAnswer { allowed: response.overall_code() == Code::Ok, results: results.collect() }
    }
}
