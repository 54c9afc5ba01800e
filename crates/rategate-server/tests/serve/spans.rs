//! Spans of decisions reach their receiver, and the receiver cannot harm the service.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;

use crate::serve::clients::{Resp, Service, envoy, envoy_in, until};
use crate::serve::receiver::{Received, Receiver, ReceiverMode, value};

/// A limit of 3 an hour by user.
const RULES: &str = "
[[rule]]
name = \"api\"
match = [\"user\"]
limit = { permits = 3, unit = \"hour\" }
algorithm = \"sliding-log\"
";

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CALLER: &str = "00f067aa0ba902b7";
const CHECK: &str = "{\"rule\":\"api\",\"key\":\"ann\"}";

/// The number of decisions, far more than the bounded queue holds.
const MANY: usize = 6_000;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

fn unix_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(since.as_nanos()).unwrap()
}

/// Returns a `traceparent` of a caller that samples its span, or does not.
fn traceparent(is_sampled: bool) -> String {
    format!("00-{TRACE}-{CALLER}-0{}", u8::from(is_sampled))
}

/// Returns all spans of a service that has ended, in the order of their ends.
fn ended(service: Service, receiver: &Receiver) -> Vec<Received> {
    service.end();
    let mut all = receiver.received();
    all.sort_by_key(|one| one.span.end_time_unix_nano);
    all
}

fn grpc<T>(ask: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.unwrap().block_on(ask)
}

#[test]
fn each_decision_is_a_span_that_says_what_was_decided() {
    let receiver = Receiver::start(ReceiverMode::Takes);
    let service = Service::of(&(receiver.table("100%") + RULES));
    let begun_ns = unix_ns();
    let mut resp = service.resp();
    resp.ask(&["RATEGATE.CHECK", "api", "3", "ann"]);
    resp.ask(&["RATEGATE.CHECK", "api", "1", "ann"]);
    resp.ask(&["RATEGATE.PEEK", "api", "1", "bob"]);
    resp.ask(&["CL.THROTTLE", "key", "0", "1", "3600"]);
    resp.ask(&["CL.THROTTLE", "key", "0", "1", "3600"]);
    resp.ask(&["RATEGATE.CHECK", "nothing", "1"]);
    resp.ask(&["PING"]);
    let mut http = service.http();
    http.post("/v1/check", CHECK);
    http.get("/readyz");
    grpc(envoy(service.at("grpc"), "user", "ann", 1));
    let all = ended(service, &receiver);
    let seen: Vec<_> = all
        .iter()
        .map(|one| {
            let fields = ["protocol", "verb", "rules", "allowed", "store"];
            fields.map(|name| one.attribute(&format!("rategate.{name}"))).join(" ")
        })
        .collect();
    let expected = [
        "resp take api true none",
        "resp take api false none",
        "resp peek api true none",
        "resp take  true none",
        "resp take  false none",
        "resp take - - -",
        "http take api false none",
        "grpc take api false none",
    ];
    assert_eq!(seen, expected);
    for one in &all {
        let span = &one.span;
        assert_eq!(span.name, "rategate.decide");
        assert_eq!(span.kind, i32::from(SpanKind::Server));
        assert!(
            span.trace_id.len() == 16 && span.span_id.len() == 8 && span.parent_span_id.is_empty()
        );
        assert!(begun_ns <= span.start_time_unix_nano);
        assert!(span.start_time_unix_nano <= span.end_time_unix_nano);
        assert!(span.end_time_unix_nano <= unix_ns());
        assert_eq!(value(&one.of, "service.name"), "limits");
        assert_eq!(value(&one.of, "service.version"), env!("CARGO_PKG_VERSION"));
        assert_eq!(one.scope, "rategate-server");
        // A denied caller knows the wait: here nearly the hour of the limit.
        let is_denied = one.attribute("rategate.allowed") == "false";
        let wait_ns = one.attribute("rategate.wait_ns").parse::<u64>().ok();
        assert_eq!(wait_ns.is_some(), is_denied, "{one:?}");
        assert!(wait_ns.is_none_or(|ns| (3_590_000_000_000..=3_600_000_000_000).contains(&ns)));
    }
    let traces: std::collections::HashSet<_> = all.iter().map(|one| &one.span.trace_id).collect();
    assert_eq!(traces.len(), all.len(), "each is a trace of its own");
    let failed = all[5].span.status.clone().unwrap();
    assert_eq!(failed.code, i32::from(StatusCode::Error));
    assert!(failed.message.starts_with("there is no rule `nothing`; known: "), "{failed:?}");
    let is_fine = |one: &&Received| {
        one.span.status.as_ref().is_none_or(|status| status.code == i32::from(StatusCode::Unset))
    };
    assert_eq!(all.iter().filter(is_fine).count(), all.len() - 1);
}

#[test]
fn a_decision_is_part_of_the_callers_span_and_kept_if_that_is() {
    // No share of its own: only the callers decide.
    let receiver = Receiver::start(ReceiverMode::Takes);
    let service = Service::of(&(receiver.table("0%") + RULES));
    let (sampled, not) = (traceparent(true), traceparent(false));
    let mut http = service.http();
    for field in [&sampled, &not, "nonsense"] {
        http.post_with("/v1/check", &format!("traceparent: {field}\r\n"), CHECK);
        let path = "/v1/auth?rule=api&key=ann";
        http.get_with(path, &format!("TraceParent: {field}\r\n"));
        http.post_with("/json", &format!("traceparent: {field}\r\n"), ENVOY);
        for protocol in ["grpc", "http"] {
            grpc(envoy_in(Some(field), service.at(protocol), "user", "ann", 2));
        }
    }
    // The span of one call is not that of the next on the same connection.
    http.post("/v1/check", CHECK);
    let all = ended(service, &receiver);
    let seen: Vec<_> = all.iter().map(|one| one.attribute("rategate.protocol")).collect();
    assert_eq!(seen, ["http", "http", "http", "grpc", "grpc", "grpc", "grpc"]);
    for one in &all {
        assert_eq!(hex(&one.span.trace_id), TRACE);
        assert_eq!(hex(&one.span.parent_span_id), CALLER);
        assert_ne!(hex(&one.span.span_id), CALLER);
    }
}

const ENVOY: &str = "{\"domain\":\"default\",\"descriptors\":[{\"entries\":[\
                      {\"key\":\"user\",\"value\":\"ann\"}]}]}";

#[test]
fn a_caller_that_does_not_keep_its_span_is_followed_though_all_others_are_sampled() {
    let receiver = Receiver::start(ReceiverMode::Takes);
    let service = Service::of(&(receiver.table("100%") + RULES));
    let mut http = service.http();
    let field = format!("traceparent: {}\r\n", traceparent(false));
    for _ in 0..10 {
        http.post_with("/v1/check", &field, CHECK);
    }
    grpc(envoy_in(Some(&traceparent(false)), service.at("grpc"), "user", "ann", 10));
    http.post("/v1/check", CHECK);
    let all = ended(service, &receiver);
    assert_eq!(all.len(), 1);
    assert!(all[0].span.parent_span_id.is_empty());
}

#[test]
fn the_sampled_share_of_decisions_has_spans() {
    let receiver = Receiver::start(ReceiverMode::Takes);
    let service = Service::of(&(receiver.table("10%") + RULES));
    ask_many(&service);
    let all = ended(service, &receiver);
    // 600, give or take six standard deviations.
    assert!((460..740).contains(&all.len()), "{}", all.len());
}

/// Makes many calls in a row, each after the answer to the previous one. Returns how long the slowest
/// took.
fn ask_many(service: &Service) -> Duration {
    let mut resp = service.resp();
    let calls = (0..MANY).map(|_| {
        let begun = Instant::now();
        let fields = resp.ask(&["RATEGATE.CHECK", "api", "1", "ann"]);
        assert!(["0", "1"].contains(&Resp::field(&fields, "allowed").as_str()));
        begun.elapsed()
    });
    calls.max().unwrap()
}

#[test]
fn a_silent_receiver_delays_no_request_and_no_end() {
    let receiver = Receiver::start(ReceiverMode::IsSilent);
    let service = Service::of(&(receiver.table("100%") + RULES));
    // One batch is being sent, and the queue fills up behind it.
    let before = ask_many(&service);
    until("the receiver is called", || receiver.calls() > 0);
    let slowest = ask_many(&service).max(before);
    // A batch is given up after 5 s: no request may wait for that.
    assert!(slowest < Duration::from_secs(2), "{slowest:?}");
    let begun = Instant::now();
    service.end();
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
}

#[test]
fn what_cannot_be_sent_is_lost_and_harms_nobody() {
    // No receiver listens there; or one that cannot accept them.
    let closed_port =
        std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let refusing = Receiver::start(ReceiverMode::Refuses);
    for port in [closed_port, refusing.port] {
        let receiver = refusing.at(port);
        let service = Service::of(&(receiver.table("100%") + RULES));
        for _ in 0..20 {
            service.resp().ask(&["RATEGATE.CHECK", "api", "1", "ann"]);
        }
        service.end();
    }
    assert!(refusing.calls() > 0 && refusing.received().is_empty());
}

#[test]
fn spans_that_are_left_are_sent_in_the_end() {
    let receiver = Receiver::start(ReceiverMode::Takes);
    let service = Service::of(&(receiver.table("100%") + RULES));
    for _ in 0..700 {
        service.resp().ask(&["RATEGATE.CHECK", "api", "1", "ann"]);
    }
    assert_eq!(ended(service, &receiver).len(), 700);
}
