//! Calls that are refused, ask for nothing that is there, or match nothing: each shows in a metric.

use crate::rls::unary::Gateway;
use crate::serve::clients::Service;

const EDGE: &str = "[[rule]]\nname = \"api\"\ndomain = \"edge\"\nmatch = [\"user\"]\nlimit = \"5/h\"\n\
                    ttl = \"10s\"\nmax_ttl = \"1min\"\n";

const UNUSED: &str = "00000000000000000000000000000001";

fn figure(service: &Service, name: &str) -> u64 {
    let figure = service.metric(name).unwrap_or_else(|| panic!("no {name}"));
    figure.parse().unwrap()
}

fn refused(service: &Service, protocol: &str, reason: &str) -> u64 {
    let labels = format!("{{protocol=\"{protocol}\",reason=\"{reason}\"}}");
    figure(service, &format!("rategate_calls_refused_total{labels}"))
}

/// A mistyped key of a descriptor lets everything pass, and would show nowhere else.
#[test]
fn what_no_rule_matches_is_counted_by_protocol() {
    let service = Service::of(EDGE);
    let mut http = service.http();
    for (key, status) in [("usr", 200), ("user", 200), ("usr", 200)] {
        let body = format!("{{\"domain\":\"edge\",\"descriptor\":{{\"{key}\":\"ann\"}}}}");
        assert_eq!(http.post("/v1/check", &body).0, status);
    }
    let body = "{\"id\":\"00112233445566778899aabbccddeeff\",\"verb\":\"reserve\",\"domain\":\"edge\",\
                \"descriptor\":{\"usr\":\"ann\"}}";
    assert_eq!(http.post("/v1/check", body).0, 200);
    let mut gateway = Gateway::at(service.at("grpc").parse().unwrap(), &[("usr", "ann")]);
    assert_eq!(gateway.take(1).unwrap(), 1);
    let unmatched = ["resp", "http", "grpc"].map(|protocol| {
        figure(&service, &format!("rategate_unmatched_total{{protocol=\"{protocol}\"}}"))
    });
    assert_eq!(unmatched, [0, 3, 1]);
}

#[test]
fn operations_that_are_ignored_are_counted_over_grpc() {
    let service = Service::of(EDGE);
    let entries = [("user", "ann"), ("rategate.verb", "reserve")];
    let mut gateway = Gateway::at(service.at("grpc").parse().unwrap(), &entries);
    assert_eq!(gateway.take(1).unwrap(), 1);
    assert_eq!(gateway.take(1).unwrap(), 1);
    let ignored = ["http", "grpc"].map(|protocol| {
        figure(&service, &format!("rategate_ignored_verbs_total{{protocol=\"{protocol}\"}}"))
    });
    assert_eq!(ignored, [0, 2]);
}

/// The reasons are equal over all protocols: an id of another operation, and a time that is too
/// long, are faults and no malformed bytes.
#[test]
fn an_id_with_other_items_and_a_time_too_long_are_faults_over_grpc() {
    let service = Service::of(&format!("[grpc]\nverbs = true\n{EDGE}"));
    let send = |stated: &[(&str, &str)], hits| {
        let entries = [&[("user", "ann")], stated].concat();
        Gateway::at(service.at("grpc").parse().unwrap(), &entries).take(hits)
    };
    let id = ("rategate.id", "0123456789abcdef0123456789abcdef");
    assert_eq!(send(&[id], 1).unwrap(), 1);
    assert_eq!(send(&[id], 2).unwrap_err().code(), tonic::Code::InvalidArgument);
    let long = [("rategate.id", UNUSED), ("rategate.verb", "reserve"), ("rategate.ttl", "61s")];
    assert_eq!(send(&long, 1).unwrap_err().code(), tonic::Code::InvalidArgument);
    let refused = || ["malformed", "fault"].map(|reason| refused(&service, "grpc", reason));
    assert_eq!(refused(), [0, 2]);
    assert!(send(&[("rategate.id", "nonsense")], 1).is_err());
    assert_eq!(refused(), [1, 2]);
}

#[test]
fn what_is_not_served_is_counted() {
    let service = Service::of(EDGE);
    let mut http = service.http();
    assert_eq!(http.get("/v1/chek").0, 404);
    assert_eq!(http.get("/v1/check").0, 405);
    assert_eq!(http.get("/json").0, 405);
    assert_eq!(http.post("/v1/rules", "").0, 405);
    assert_eq!(refused(&service, "http", "not_served"), 4);
}

#[test]
fn what_is_mistyped_is_refused() {
    let service = Service::of(EDGE);
    let mut http = service.http();
    let body = "{\"rule\":\"api\",\"key\":\"k\",\"permts\":3}";
    let (status, text) = http.post("/v1/check", body);
    assert_eq!(status, 400, "{text}");
    assert!(text.contains("`permts`"), "{text}");
    for query in ["key=%zz", "key=%4", "key=a%", "k%zzey=a"] {
        assert_eq!(http.get(&format!("/v1/auth?rule=api&{query}")).0, 400, "{query}");
    }
    assert_eq!(http.get("/v1/auth?rule=api&key=%7az").0, 204);
    let (status, text) = http.get("/v1/events?rule=nope");
    assert_eq!(status, 404, "{text}");
}

/// Clients probe for subcommands when they connect, and go on without them.
#[test]
fn an_unknown_subcommand_is_an_error_and_no_refused_call() {
    let service = Service::of(EDGE);
    let mut resp = service.resp();
    let error = resp.ask(&["CLIENT", "MAINT_NOTIFICATIONS", "ON"]);
    assert!(error[0].starts_with("ERR unknown subcommand 'MAINT_NOTIFICATIONS'"), "{error:?}");
    assert!(resp.ask(&["CLIENT", "SETINFO", "LIB-AGE", "1"])[0].starts_with("ERR"));
    assert_eq!(refused(&service, "resp", "malformed"), 0);
    assert!(resp.ask(&["CLIENT", "SETNAME"])[0].starts_with("ERR wrong number"));
    assert_eq!(refused(&service, "resp", "malformed"), 1);
}

/// A take of a rule with `over = "charge"` makes a debt, and makes it grow.
#[test]
fn takes_that_charge_count_as_charged_over() {
    let service = Service::of(&format!("{EDGE}over = \"charge\"\n"));
    let mut http = service.http();
    let take = |permits: u64| format!("{{\"rule\":\"api\",\"key\":\"ann\",\"permits\":{permits}}}");
    let over = |service: &Service| figure(service, "rategate_charged_over_total{rule=\"api\"}");
    http.post("/v1/check", &take(4));
    assert_eq!(over(&service), 0);
    http.post("/v1/check", &take(4));
    assert_eq!(over(&service), 1, "the debt begins");
    http.post("/v1/check", &take(4));
    assert_eq!(over(&service), 2, "the debt grows");
    http.post("/v1/check", &take(0));
    assert_eq!(over(&service), 2, "a look adds nothing");
}
