//! Calls of the model over each wire, and the replies in the model's form.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use prost::Message;
use prost_types::Struct;
use prost_types::value::Kind;
use rategate_server::engine::Engine;
use rategate_server::messages::descriptor::RateLimitDescriptor;
use rategate_server::messages::descriptor::rate_limit_descriptor::{Entry, RateLimitOverride};
use rategate_server::messages::rls::rate_limit_response::DescriptorStatus;
use rategate_server::messages::rls::{RateLimitRequest, RateLimitResponse};
use rategate_server::net::Rights;
use rategate_server::protocol::grpc::{Grpc, Health, Settings};
use rategate_server::protocol::rls::{self, Options};
use rategate_server::rule::Unit;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tonic::{Code, Status};

use crate::rls::common::Clock;
use crate::rls::oracle::{Call, Reply, Status as ModelStatus};

/// The method that decides.
pub(crate) const PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// A way to send calls.
pub(crate) type Wire = Box<dyn Fn(&Call) -> Reply>;

/// Returns a way to send calls as bytes of gRPC.
pub(crate) fn grpc(runtime: Arc<Runtime>, engine: Engine<Clock>, options: Options) -> Wire {
    let settings = Settings { options, ..Settings::default() };
    let health = runtime.block_on(Health::new(true));
    let grpc = Grpc::new(engine, &health, settings);
    Box::new(move |call| over_grpc(&runtime, &grpc, call))
}

/// Returns a way to send calls as JSON.
pub(crate) fn json(runtime: Arc<Runtime>, engine: Engine<Clock>, options: Options) -> Wire {
    Box::new(move |call| over_json(&runtime, &engine, &options, call))
}

fn over_grpc(runtime: &Runtime, grpc: &Grpc, call: &Call) -> Reply {
    of_message(&send(runtime, grpc, &message(call).encode_to_vec()).unwrap())
}

/// Sends the bytes of a message.
pub(crate) fn send(
    runtime: &Runtime,
    grpc: &Grpc,
    message: &[u8],
) -> Result<RateLimitResponse, Status> {
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    let body = Full::new(Bytes::from([&[0][..], &length, message].concat()));
    let request = http::Request::post(PATH).header("content-type", "application/grpc");
    runtime.block_on(async {
        let response = grpc.call(request.body(body).unwrap(), Rights::ALL).await;
        let status = Status::from_header_map(response.headers());
        if let Some(status) = status.filter(|status| status.code() != Code::Ok) {
            return Err(status);
        }
        let body = response.into_body().collect().await.unwrap().to_bytes();
        Ok(RateLimitResponse::decode(&body[5..]).unwrap())
    })
}

fn over_json(runtime: &Runtime, engine: &Engine<Clock>, options: &Options, call: &Call) -> Reply {
    let descriptors = call.requested.iter().map(|requested| {
        let entry = |(key, value)| format!(r#"{{"key":"{key}","value":"{value}"}}"#);
        let entries: Vec<_> = requested.entries.iter().copied().map(entry).collect();
        let limit = requested.own.map(|(permits, unit)| {
            let unit = unit.name().to_uppercase();
            format!(r#","limit":{{"requestsPerUnit":{permits},"unit":"{unit}"}}"#)
        });
        // Integers of 64 bits are texts in the mapping.
        let hits = requested.hits.map(|hits| format!(r#","hitsAddend":"{hits}""#));
        let (limit, hits) = (limit.unwrap_or_default(), hits.unwrap_or_default());
        let refund = if requested.refund { r#","isNegativeHits":true"# } else { "" };
        format!(r#"{{"entries":[{}]{limit}{hits}{refund}}}"#, entries.join(","))
    });
    let descriptors = descriptors.collect::<Vec<_>>().join(",");
    let Call { domain, hits, .. } = call;
    let text =
        format!(r#"{{"domain":"{domain}","descriptors":[{descriptors}],"hitsAddend":{hits}}}"#);
    let answer = runtime.block_on(rls::json(text.as_bytes(), engine, options, true));
    let reply = of_json(&serde_json::from_str(&answer.body).unwrap());
    assert_eq!(answer.status, if reply.is_over { 429 } else { 200 });
    reply
}

fn message(call: &Call) -> RateLimitRequest {
    let descriptors = call.requested.iter().map(|requested| RateLimitDescriptor {
        entries: requested
            .entries
            .iter()
            .map(|(key, value)| Entry { key: (*key).into(), value: (*value).into() })
            .collect(),
        limit: requested.own.map(|(requests_per_unit, unit)| RateLimitOverride {
            requests_per_unit,
            unit: unit.number().into(),
        }),
        hits_addend: requested.hits,
        is_negative_hits: requested.refund,
    });
    RateLimitRequest {
        domain: call.domain.to_owned(),
        descriptors: descriptors.collect(),
        hits_addend: call.hits,
    }
}

/// Returns a status in the model's form.
fn status_of(status: &DescriptorStatus) -> ModelStatus {
    ModelStatus {
        is_over: status.code == 2,
        limit: status.current_limit.as_ref().map(|limit| {
            let unit = Unit::of_number(u32::try_from(limit.unit).unwrap()).unwrap();
            (limit.name.clone(), limit.requests_per_unit, unit)
        }),
        remaining: status.limit_remaining,
        reset_s: status.duration_until_reset.map(|reset| u64::try_from(reset.seconds).unwrap()),
    }
}

fn of_message(response: &RateLimitResponse) -> Reply {
    let headers = response.response_headers_to_add.iter();
    Reply {
        is_over: response.overall_code == 2,
        statuses: response.statuses.iter().map(status_of).collect(),
        headers: headers.map(|field| (field.key.clone(), field.value.clone())).collect(),
        metadata: response.dynamic_metadata.as_ref().map(of_struct),
    }
}

fn of_struct(fields: &Struct) -> Value {
    let fields =
        fields.fields.iter().map(|(name, value)| (name.clone(), of_kind(value.kind.as_ref())));
    Value::Object(fields.collect())
}

fn of_kind(kind: Option<&Kind>) -> Value {
    match kind.unwrap() {
        Kind::NullValue(_) => Value::Null,
        Kind::NumberValue(number) => json!(number),
        Kind::StringValue(text) => json!(text),
        Kind::BoolValue(value) => json!(value),
        Kind::StructValue(fields) => of_struct(fields),
        Kind::ListValue(all) => all.values.iter().map(|one| of_kind(one.kind.as_ref())).collect(),
    }
}

fn of_json(reply: &Value) -> Reply {
    let list = |name: &str| reply[name].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let status = |status: &Value| ModelStatus {
        is_over: status["code"] == "OVER_LIMIT",
        limit: status.get("currentLimit").map(|limit| {
            let unit = Unit::ALL.into_iter().find(|it| limit["unit"] == it.name().to_uppercase());
            let permits = limit.get("requestsPerUnit").map_or(0, |all| all.as_u64().unwrap());
            (text(&limit["name"]), u32::try_from(permits).unwrap(), unit.unwrap())
        }),
        remaining: status
            .get("limitRemaining")
            .map_or(0, |left| u32::try_from(left.as_u64().unwrap()).unwrap()),
        reset_s: status
            .get("durationUntilReset")
            .map(|reset| text(reset).strip_suffix('s').unwrap().parse().unwrap()),
    };
    let headers = list("responseHeadersToAdd");
    Reply {
        is_over: reply["overallCode"] == "OVER_LIMIT",
        statuses: list("statuses").iter().map(status).collect(),
        headers: headers.iter().map(|field| (text(&field["key"]), text(&field["value"]))).collect(),
        metadata: reply.get("dynamicMetadata").map(in_floats),
    }
}

/// Returns a value with all numbers in one form, which 3 and 3.0 do not have in JSON.
fn in_floats(value: &Value) -> Value {
    match value {
        Value::Number(number) => json!(number.as_f64()),
        Value::Array(all) => all.iter().map(in_floats).collect(),
        Value::Object(fields) => {
            fields.iter().map(|(name, value)| (name.clone(), in_floats(value))).collect()
        }
        other => other.clone(),
    }
}
