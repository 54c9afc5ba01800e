//! Requests without capacity to count them are denied and counted, over every protocol: clients
//! can invent keys and limits.

use rategate_server::messages::descriptor::RateLimitDescriptor;
use rategate_server::messages::descriptor::rate_limit_descriptor::Entry;
use rategate_server::messages::rls::RateLimitRequest;
use rategate_server::messages::rls::rate_limit_service_client as rls_client;
use serde_json::{Value as Json, json};
use tonic::transport::Endpoint;

use crate::serve::clients::{Resp, Service};

const RULES: &str = "[inline]\nlimits = 1\nkeys = 64\n\
    [[rule]]\nname = \"api\"\nmatch = [\"user\"]\nlimit = \"5/h\"\n";

fn denied_for_capacity(service: &Service, protocol: &str) -> u64 {
    let name =
        format!("rategate_calls_refused_total{{protocol=\"{protocol}\",reason=\"table_full\"}}");
    service.metric(&name).unwrap().parse().unwrap()
}

/// One inline limit more than there are tiers.
#[test]
fn a_limit_too_many_is_denied() {
    let service = Service::of(RULES);
    let mut resp = service.resp();
    // A table has 31 tiers.
    let mut denied = 0;
    for burst in 1..200 {
        let response = resp.ask(&["CL.THROTTLE", "k", &burst.to_string(), "1", "3600000"]);
        assert!(!response[0].starts_with("ERR"), "{response:?}");
        denied += u64::from(response[0] == "1");
    }
    assert!(denied > 100, "{denied}");
    assert_eq!(denied_for_capacity(&service, "resp"), denied);
    let response = resp.ask(&["THROTTLE", "k", "999", "1", "3600000"]);
    assert_eq!(response, ["0", "999", "0", "1", "1"]);
    let body = r#"{"limit":"1/h","burst":999,"key":"k"}"#;
    let (status, answer) = service.http().post("/v1/check", body);
    assert_eq!(status, 200, "{answer}");
    assert!(answer.starts_with(r#"{"allowed":false,"#), "{answer}");
    assert!(answer.contains(r#""verdict":"denied""#), "{answer}");
    assert!(answer.contains(r#""retry_after_ms":1000"#), "{answer}");
    assert_eq!(denied_for_capacity(&service, "http"), 1);
}

/// One reservation more than are known, and one id more of `once`. The error says so, and is
/// counted by itself. A proxy gets a denial, as it would let the call pass on an error.
#[test]
fn a_reservation_too_many_says_so() {
    let service = Service::of(&RULES.replace("[inline]", "[keys]\nreservations = 1\n[inline]"));
    let mut resp = service.resp();
    let mut reserve = |user: &str| {
        let words = ["RATEGATE.RESERVE", "*", "60000", "ITEMS", "2", "api", "1", "1", user];
        resp.ask(&[&words[..], &["api", "1", "1", "bob"]].concat())
    };
    assert_eq!(Resp::field(&reserve("ann"), "allowed"), "1");
    let why = "all 1 reservations that `keys.reservations` admits are known, open or ended in the \
               last ten minutes; send the same again when some are forgotten";
    assert_eq!(reserve("eve"), [format!("ERR {why}")]);
    let id = "00112233445566778899aabbccddeeff";
    assert_eq!(resp.ask(&["RATEGATE.CHECK", id, "api", "1", "eve"]), [format!("ERR {why}")]);
    let refused = |protocol: &str, reason: &str| {
        let labels = format!("protocol=\"{protocol}\",reason=\"{reason}\"");
        service.metric(&format!("rategate_calls_refused_total{{{labels}}}")).unwrap()
    };
    assert_eq!(refused("resp", "too_many_reservations"), "2");
    let response = resp.ask(&["RATEGATE.PEEK", "api", "1", "bob"]);
    assert_eq!(Resp::field(&response, "remaining"), "4");
    for body in [
        r#"{"verb":"reserve","rule":"api","key":"eve"}"#,
        r#"{"verb":"charge","once":"00112233445566778899aabbccddeeff","rule":"api","key":"eve"}"#,
    ] {
        let (status, problem) = service.http().post("/v1/check", body);
        assert_eq!(status, 503, "{problem}");
        let problem: serde_json::Value = serde_json::from_str(&problem).unwrap();
        assert_eq!(
            (&problem["code"], &problem["detail"]),
            (&"too_many_reservations".into(), &why.into())
        );
    }
    let (status, _) = service.http().get(&format!("/v1/auth?rule=api&key=eve&id={id}"));
    assert_eq!(status, 429);
    assert_eq!(refused("http", "too_many_reservations"), "3");
    assert_eq!(refused("http", "table_full"), "0");
}

/// Over Envoy's protocol a reservation too many is a denial, and counted as what it is.
#[test]
fn a_reservation_too_many_is_a_denial_to_a_proxy() {
    let settings = "[keys]\nreservations = 1\n[grpc]\nverbs = true\n";
    let rules =
        "[[rule]]\nname = \"api\"\ndomain = \"edge\"\nmatch = [\"user\"]\nlimit = \"5/h\"\n";
    let service = Service::of(&format!("{settings}{rules}"));
    let entry = |key: &str, value: &str| json!({ "key": key, "value": value });
    let ask = |id: &str, verb: &str| {
        let entries =
            [entry("user", "ann"), entry("rategate.id", id), entry("rategate.verb", verb)];
        let body = json!({ "domain": "edge", "descriptors": [{ "entries": entries }] });
        let (status, answer) = service.http().post("/json", &body.to_string());
        (status, serde_json::from_str::<Json>(&answer).unwrap())
    };
    let refused = |protocol: &str, reason: &str| {
        let labels = format!("protocol=\"{protocol}\",reason=\"{reason}\"");
        service.metric(&format!("rategate_calls_refused_total{{{labels}}}")).unwrap()
    };
    let (first, other) = ("3f2504e04f8941d39a0c0305e82c3301", "3f2504e04f8941d39a0c0305e82c3302");
    assert_eq!(ask(first, "reserve").0, 200);
    for verb in ["reserve", "charge", "take"] {
        let (status, answer) = ask(other, verb);
        assert_eq!((status, &answer["overallCode"]), (429, &json!("OVER_LIMIT")), "{verb}");
        assert!(answer["statuses"].as_array().is_none_or(Vec::is_empty), "{answer}");
    }
    assert_eq!(refused("http", "too_many_reservations"), "3");
    // What is known goes on.
    assert_eq!((ask(first, "reserve").0, ask(first, "commit").0), (200, 200));
    // The same over gRPC.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let codes = runtime.block_on(async {
        let endpoint = Endpoint::from_shared(format!("http://{}", service.at("grpc"))).unwrap();
        let mut client = rls_client::RateLimitServiceClient::new(endpoint.connect().await.unwrap());
        let mut codes = Vec::new();
        for id in [first, other] {
            let entries = [("user", "bob"), ("rategate.id", id), ("rategate.verb", "reserve")];
            let entry = |(key, value): (&str, &str)| Entry { key: key.into(), value: value.into() };
            let entries = entries.map(entry).to_vec();
            let descriptors = vec![RateLimitDescriptor { entries, ..Default::default() }];
            let domain = "edge".to_owned();
            let request = RateLimitRequest { domain, descriptors, hits_addend: 0 };
            let answer = client.should_rate_limit(request).await;
            codes.push(
                answer.map(|reply| reply.into_inner().overall_code).map_err(|why| why.code()),
            );
        }
        codes
    });
    // The first id is of another user's operation.
    assert_eq!(codes, [Err(tonic::Code::InvalidArgument), Ok(2)]);
    assert_eq!(refused("grpc", "too_many_reservations"), "1");
    assert_eq!(
        (refused("grpc", "table_full"), refused("http", "table_full")),
        ("0".into(), "0".into())
    );
}
