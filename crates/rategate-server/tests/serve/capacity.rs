//! Requests without capacity to count them are denied and counted, over every protocol: clients
//! can invent keys and limits.

use rategate_server::messages::rls::RateLimitRequest;

use crate::serve::clients::{Service, descriptor};

const RULES: &str = "[inline]\nlimits = 1\nkeys = 64\n\
    [[rule]]\nname = \"api\"\ndomain = \"edge\"\nmatch = [\"user\"]\nlimit = \"5/h\"\n";

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
    service.play(&format!(
        "
        rategate_calls_refused_total{{protocol=\"resp\",reason=\"table_full\"}} => {denied}
        THROTTLE k 999 1 3600000 => [0, 999, 0, 1, 1]
        {{limit: 1/h, burst: 999, key: k}} => {{allowed: false}}
            & [{{verdict: denied, retry_after_ms: 1000}}]
        rategate_calls_refused_total{{protocol=\"http\",reason=\"table_full\"}} => 1
        "
    ));
}

/// One reservation more than are known, and one id more of `once`. The error says so, and is
/// counted by itself. A proxy gets a denial, as it would let the call pass on an error.
#[test]
fn a_reservation_too_many_says_so() {
    let settings = "[keys]\nreservations = 1\n[grpc]\nverbs = true\n";
    let service = Service::of(&format!("{settings}{RULES}"));
    let story = "
        RATEGATE.RESERVE $1 60000 ITEMS 2 api 1 1 ann api 1 1 bob => {allowed: 1}
        RATEGATE.RESERVE * 60000 ITEMS 2 api 1 1 eve api 1 1 bob => -ERR {why}
        RATEGATE.CHECK $2 api 1 eve => -ERR {why}
        rategate_calls_refused_total{protocol=\"resp\",reason=\"too_many_reservations\"} => 2
        RATEGATE.PEEK api 1 bob => {remaining: 4}
        {verb: reserve, rule: api, key: eve} => 503 & {code: too_many_reservations, detail: '{why}'}
        {verb: charge, once: $2, rule: api, key: eve} => 503 & {code: too_many_reservations}
        GET /v1/auth?rule=api&key=eve&id=$2 => 429
        rategate_calls_refused_total{protocol=\"http\",reason=\"too_many_reservations\"} => 3
        // What is known goes on, and over Envoy's protocol it is a denial, too.
        POST /json {json $1 commit} => 400
        POST /json {json $2 reserve} => 429 & {overallCode: OVER_LIMIT, statuses: []}
        POST /json {json $2 charge} => 429 & {overallCode: OVER_LIMIT, statuses: []}
        POST /json {json $2 take} => 429 & {overallCode: OVER_LIMIT, statuses: []}
        rategate_calls_refused_total{protocol=\"http\",reason=\"too_many_reservations\"} => 6
        rategate_calls_refused_total{protocol=\"http\",reason=\"table_full\"} => 0
        RATEGATE.COMMIT $1 ITEMS 2 api 1 1 ann api 1 1 bob => {allowed: 1}
    ";
    let why = "all 1 reservations that `keys.reservations` admits are known, open or ended in the \
               last ten minutes; send the same again when some are forgotten";
    let json = |words: &str, rest: &str| {
        let (id, verb) = words.split_once(' ').unwrap();
        let entry = |key: &str, value: &str| format!("{{key: {key}, value: {value}}}");
        let entries =
            [entry("user", "ann"), entry("rategate.id", id), entry("rategate.verb", verb)];
        let entries = entries.join(", ");
        format!("{{domain: edge, descriptors: [{{entries: [{entries}]}}]}}{rest}")
    };
    let mut parts = story.split("{json ");
    let mut whole = parts.next().unwrap().to_owned();
    for (words, rest) in parts.map(|part| part.split_once('}').unwrap()) {
        whole.push_str(&json(words, rest));
    }
    service.play(&whole.replace("{why}", why));
    let entries = |id| [("user", "bob"), ("rategate.id", id), ("rategate.verb", "reserve")];
    let other = "3f2504e04f8941d39a0c0305e82c3302";
    assert_eq!(service.rls().take(&entries(other), 1).unwrap(), 2);
    service.play(
        "
        rategate_calls_refused_total{protocol=\"grpc\",reason=\"too_many_reservations\"} => 1
        rategate_calls_refused_total{protocol=\"grpc\",reason=\"table_full\"} => 0
        ",
    );
}

/// A proxy may put fields of its clients into the head of its call, and would let the request pass
/// if the call failed.
#[test]
fn a_head_that_a_client_makes_long_is_a_denial() {
    let service = Service::of(RULES);
    let rls = service.rls();
    let call = |bytes: usize| {
        let descriptors = vec![descriptor(&[("user", "ann")])];
        let domain = "edge".to_owned();
        let request = RateLimitRequest { domain, descriptors, ..RateLimitRequest::default() };
        let field = "x".repeat(bytes);
        rls.runtime.block_on(rls.call(request, Some(&field))).map(|reply| reply.overall_code)
    };
    for _ in 0..20 {
        assert_eq!(call(20_000).unwrap(), 2);
        assert_eq!(call(250_000).unwrap(), 2);
    }
    assert_eq!(call(10).unwrap(), 1, "neither counts, and the connection goes on");
    service.play("rategate_calls_refused_total{protocol=\"grpc\",reason=\"too_long\"} => 40");
}
