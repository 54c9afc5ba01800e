//! A client of Envoy's rate limit service, called like `grpcurl`.

use std::time::Duration;

use rategate_server::messages::descriptor::RateLimitDescriptor;
use rategate_server::messages::descriptor::rate_limit_descriptor::Entry;
use rategate_server::messages::rls::rate_limit_response::rate_limit::Unit;
use rategate_server::messages::rls::rate_limit_response::{Code, DescriptorStatus};
use rategate_server::messages::rls::{
    RateLimitRequest, RateLimitResponse, rate_limit_service_client::RateLimitServiceClient,
};
use serde_json::{Value, json};

/// Makes the call of a line `grpcurl -plaintext -d 'JSON' ADDRESS METHOD`, at another address.
pub fn call(line: &str, address: &str) -> Value {
    let (_, rest) = line.split_once("-d '").unwrap();
    let (body, rest) = rest.split_once("' ").unwrap();
    let method = "envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
    assert!(rest.ends_with(method), "{line}");
    let request = request(&serde_json::from_str(body).unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let endpoint = tonic::transport::Endpoint::from_shared(format!("http://{address}")).unwrap();
    let answer = runtime.block_on(async {
        let channel = endpoint.timeout(Duration::from_secs(60)).connect().await.unwrap();
        RateLimitServiceClient::new(channel).should_rate_limit(request).await
    });
    shown(&answer.unwrap().into_inner())
}

fn request(body: &Value) -> RateLimitRequest {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let entry = |entry: &Value| Entry {
        key: text(&entry["key"]).into(),
        value: text(&entry["value"]).into(),
    };
    let descriptor = |descriptor: &Value| RateLimitDescriptor {
        entries: descriptor["entries"].as_array().unwrap().iter().map(entry).collect(),
        ..RateLimitDescriptor::default()
    };
    RateLimitRequest {
        domain: text(&body["domain"]),
        descriptors: body["descriptors"].as_array().unwrap().iter().map(descriptor).collect(),
        ..RateLimitRequest::default()
    }
}

/// Returns the reply as JSON by the rules of protobuf: zero values are left out.
fn shown(answer: &RateLimitResponse) -> Value {
    assert!(answer.response_headers_to_add.is_empty(), "{answer:?}");
    let code = Code::try_from(answer.overall_code).unwrap().as_str_name();
    json!({
        "overallCode": code,
        "statuses": answer.statuses.iter().map(status).collect::<Vec<_>>(),
    })
}

fn status(status: &DescriptorStatus) -> Value {
    let mut shown = json!({ "code": Code::try_from(status.code).unwrap().as_str_name() });
    if let Some(limit) = &status.current_limit {
        let unit = Unit::try_from(limit.unit).unwrap().as_str_name();
        shown["currentLimit"] =
            json!({ "requestsPerUnit": limit.requests_per_unit, "unit": unit, "name": limit.name });
    }
    if status.limit_remaining > 0 {
        shown["limitRemaining"] = status.limit_remaining.into();
    }
    if let Some(reset) = &status.duration_until_reset {
        // Three, six or nine digits, as many as are needed.
        let ns = format!("{:09}", reset.nanos);
        let digits =
            [0, 3, 6, 9].into_iter().find(|&end| ns[end..].bytes().all(|digit| digit == b'0'));
        let fraction = &ns[..digits.unwrap()];
        let point = if fraction.is_empty() { "" } else { "." };
        shown["durationUntilReset"] = format!("{}{point}{fraction}s", reset.seconds).into();
    }
    shown
}
