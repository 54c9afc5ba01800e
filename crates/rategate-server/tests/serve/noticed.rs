//! Calls that are refused, ask for nothing that is there, or match nothing: each shows in a metric.

use tonic::Code;

use crate::serve::clients::Service;

const EDGE: &str = "[[rule]]\nname = \"api\"\ndomain = \"edge\"\nmatch = [\"user\"]\nlimit = \"5/h\"\n\
                    ttl = \"10s\"\nmax_ttl = \"1min\"\n";

/// A mistyped key of a descriptor lets everything pass, and would show nowhere else. Operations that
/// are ignored do not, either.
#[test]
fn what_no_rule_matches_and_what_is_ignored_is_counted_by_protocol() {
    let service = Service::of(EDGE);
    let rls = service.rls();
    assert_eq!(rls.take(&[("usr", "ann")], 1).unwrap(), 1);
    for _ in 0..2 {
        assert_eq!(rls.take(&[("user", "ann"), ("rategate.verb", "reserve")], 1).unwrap(), 1);
    }
    service.play(
        "
        {domain: edge, descriptor: {usr: ann}} => 200
        {domain: edge, descriptor: {user: ann}} => 200
        {domain: edge, descriptor: {usr: ann}} => 200
        {id: $1, verb: reserve, domain: edge, descriptor: {usr: ann}} => 200
        rategate_unmatched_total{protocol=\"resp\"} => 0
        rategate_unmatched_total{protocol=\"http\"} => 3
        rategate_unmatched_total{protocol=\"grpc\"} => 3
        rategate_ignored_verbs_total{protocol=\"http\"} => 0
        rategate_ignored_verbs_total{protocol=\"grpc\"} => 2
        ",
    );
}

/// The reasons are equal over all protocols: an id of another operation, and a time that is too
/// long, are faults and no malformed bytes.
#[test]
fn an_id_with_other_items_and_a_time_too_long_are_faults_over_grpc() {
    let service = Service::of(&format!("[grpc]\nverbs = true\n{EDGE}"));
    let rls = service.rls();
    let send = |stated: &[(&str, &str)], hits| {
        let code = rls.take(&[&[("user", "ann")], stated].concat(), hits);
        code.map_or_else(|status| status.code(), |_| Code::Ok)
    };
    let (id, other) = ("0123456789abcdef0123456789abcdef", "00000000000000000000000000000001");
    assert_eq!(send(&[("rategate.id", id)], 1), Code::Ok);
    assert_eq!(send(&[("rategate.id", id)], 2), Code::InvalidArgument);
    let long = [("rategate.id", other), ("rategate.verb", "reserve"), ("rategate.ttl", "61s")];
    assert_eq!(send(&long, 1), Code::InvalidArgument);
    assert_eq!(send(&[("rategate.id", "nonsense")], 1), Code::InvalidArgument);
    service.play(
        "
        rategate_calls_refused_total{protocol=\"grpc\",reason=\"malformed\"} => 1
        rategate_calls_refused_total{protocol=\"grpc\",reason=\"fault\"} => 2
        ",
    );
}

#[test]
fn what_is_not_served_or_mistyped_is_refused_and_counted() {
    Service::of(EDGE).play(
        "
        GET /v1/chek => 404
        GET /v1/check => 405
        GET /json => 405
        POST /v1/rules => 405
        rategate_calls_refused_total{protocol=\"http\",reason=\"not_served\"} => 4
        {rule: api, key: k, permts: 3} => 400 & ~ `permts`
        GET /v1/auth?rule=api&key=%zz => 400
        GET /v1/auth?rule=api&key=%4 => 400
        GET /v1/auth?rule=api&key=a% => 400
        GET /v1/auth?rule=api&k%zzey=a => 400
        GET /v1/auth?rule=api&k%65y=%7az => 204
        GET /v1/events?rule=nope => 404
        // Clients probe for subcommands when they connect, and go on without them.
        CLIENT MAINT_NOTIFICATIONS ON => -ERR unknown subcommand 'MAINT_NOTIFICATIONS'...
        CLIENT SETINFO LIB-AGE 1 => -ERR...
        rategate_calls_refused_total{protocol=\"resp\",reason=\"malformed\"} => 0
        CLIENT SETNAME => -ERR wrong number...
        rategate_calls_refused_total{protocol=\"resp\",reason=\"malformed\"} => 1
        ",
    );
}

/// A take of a rule with `over = "charge"` makes a debt, and makes it grow.
#[test]
fn takes_that_charge_count_as_charged_over() {
    Service::of(&format!("{EDGE}over = \"charge\"\n")).play(
        "
        {rule: api, key: ann, permits: 4}
        rategate_charged_over_total{rule=\"api\"} => 0
        {rule: api, key: ann, permits: 4}
        rategate_charged_over_total{rule=\"api\"} => 1
        {rule: api, key: ann, permits: 4}
        rategate_charged_over_total{rule=\"api\"} => 2
        // A look adds nothing.
        {rule: api, key: ann, permits: 0}
        rategate_charged_over_total{rule=\"api\"} => 2
        ",
    );
}

/// Calls that leave less than a tenth are near the limit; denied ones are not. There is no debug
/// port, as that of envoyproxy/ratelimit: everything is at the HTTP port.
#[test]
fn calls_near_the_limit_are_counted() {
    let service = Service::of(
        "[[rule]]\nname = \"api\"\nmatch = [\"user\"]\nlimit = { permits = 20, unit = \"year\" }\n\
         algorithm = \"counted-window\"\n",
    );
    let ask =
        "{domain: default, descriptors: [{entries: [{key: user, value: ann}], hitsAddend: H}]}";
    let story = "
        POST /json {ask 18}
        rategate_near_limit_total{rule=\"api\"} => 0
        POST /json {ask 1}
        POST /json {ask 1}
        POST /json {ask 1} => 429
        rategate_near_limit_total{rule=\"api\"} => 2
        GET /rlconfig => 404
        GET /debug/pprof/ => 404
        GET /stats => 404
    ";
    let of = |story: String, hits: &str| {
        story.replace(&format!("{{ask {hits}}}"), &ask.replace('H', hits))
    };
    service.play(&["18", "1"].into_iter().fold(story.to_owned(), of));
    assert_eq!(service.protocols(), ["grpc", "http", "resp"]);
}
