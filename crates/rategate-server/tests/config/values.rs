//! Values with a grammar of their own: what they become, and what is refused.

use std::time::Duration;

use rategate::policy::Anchor;
use rategate::{AnyPolicy, CompactLog, Concurrency, FixedWindow, Gcra, Rate, SlidingLog};
use rategate_redis::client::Server as StoreServer;
use rategate_server::config::settings::{Listener, Secret, Server, Settings, Store, Tls};
use rategate_server::config::{Problem, load_text};
use rategate_server::net::Address;
use rategate_server::rule::{Counting, DisplayLimit, Limit, Rule, Unit};

/// Loads the settings of a text, or returns its problems.
fn settings(text: &str) -> Result<Settings, String> {
    let loaded = load_text("a.toml", text).map_err(|error| error.to_string())?;
    Ok(loaded.settings)
}

/// Loads a rule of these keys, or returns its problems.
fn rule(keys: &str) -> Result<Rule, String> {
    let loaded = load_text("a.toml", &format!("[[rule]]\nname = \"a\"\n{keys}"));
    let rules = loaded.map_err(|error| error.to_string())?.rules;
    Ok(rules.rules[0].clone())
}

/// Asserts that a key is refused with each of these texts, in a message of one problem.
#[track_caller]
fn assert_refused(before: &str, texts: &[&str]) {
    for text in texts {
        let error = load_text("a.toml", &format!("{before}{text:?}\n")).map(|_| *text).unwrap_err();
        assert_eq!(error.problems().len(), 1, "{text}: {error}");
    }
}

#[test]
fn complaints_name_the_types_of_a_file() {
    let long = "99999999999999999999";
    let whole = "not a whole number from 0 to 18446744073709551615";
    for (text, wanted) in [
        ("server = \"x\"", "wrong type: \"x\", not a table"),
        ("log = { filter = 5 }", "wrong type: 5, not a text"),
        ("snapshot = { path = [] }", "wrong type: a list, not a path as text"),
        ("grpc = { shadow = {} }", "wrong type: a table, not true or false"),
        ("keys = { total = 1.5 }", "wrong type: 1.5, not a whole number from 1 on"),
        ("rule = [{ burst = -1 }]", &format!("wrong value: -1, {whole}")),
        (&format!("rule = [{{ burst = {long} }}]"), &format!("wrong value: {long}, {whole}")),
        ("store = { queue = 5 }", "the key `url` is missing"),
        ("server = { drain = \"0s\" }", "a duration of no time; write a longer one, as in \"10s\""),
    ] {
        let error = load_text("a.toml", text).unwrap_err();
        let messages: Vec<_> = error.problems().iter().map(Problem::message).collect();
        assert!(messages.contains(&wanted), "{messages:?}");
    }
}

#[test]
fn durations_have_a_length() {
    let drain = settings("[server]\ndrain = \"20ms\"").unwrap().server.drain;
    assert_eq!(drain, Duration::from_millis(20));
    assert_refused("[server]\ndrain = ", &["0s", "5"]);
}

#[test]
fn addresses_of_listeners() {
    let resp = |text: &str| settings(&format!("[server]\nresp = {text:?}")).unwrap().server.resp;
    assert_eq!(resp("127.0.0.1:1"), [Listener::plain(Address::loopback(1))]);
    assert_eq!(resp("unix:/run/a"), [Listener::plain(Address::Unix("/run/a".into()))]);
    let invalid = ["", "localhost:1", "127.0.0.1", ":1", "unix:", "127.0.0.1:99999"];
    assert_refused("[server]\nresp = ", &invalid);
    let public = |text: &str| Address::Tcp(text.parse().unwrap()).is_public();
    assert!(!public("127.0.0.1:1") && !public("[::1]:1") && !public("[::ffff:127.0.0.1]:1"));
    assert!(public("0.0.0.0:1") && public("[::]:1") && public("10.0.0.1:1"));
    assert!(!Address::Unix("/run/s".into()).is_public());
}

#[test]
fn a_token_or_certificates_of_clients_close_a_listener() {
    let listener = |tls| Listener {
        tls: Some(tls),
        ..Listener::plain(Address::Tcp(([0, 0, 0, 0], 1).into()))
    };
    let mut server = Server::default();
    assert!(server.is_open(&listener(false)));
    assert!(!server.is_open(&Listener::plain(Address::loopback(1))));
    server.tls = Some(Tls { cert: "c".into(), key: "k".into(), client_ca: None });
    assert!(server.is_open(&listener(true)));
    server.tls = Some(Tls { cert: "c".into(), key: "k".into(), client_ca: Some("a".into()) });
    assert!(!server.is_open(&listener(true)) && server.is_open(&listener(false)));
    server.token = Some(Secret::new("t".to_owned()));
    assert!(!server.is_open(&listener(false)));
}

#[test]
fn servers_of_a_store() {
    let store = |url: &str| settings(&format!("[store]\nurl = {url:?}")).unwrap().store.unwrap();
    let server = |store: &Store| store.servers().next().cloned().unwrap();
    let password = |store: &Store| store.password.as_ref().map(|one| one.expose().to_owned());
    let url = store("rediss://us%40er:p%3Aw@h.example:1/3");
    assert_eq!(server(&url), StoreServer::Tls("h.example".into(), 1));
    assert_eq!((url.user.as_deref(), password(&url)), (Some("us@er"), Some("p:w".to_owned())));
    assert_eq!(url.database, Some(3));
    let plain = store("redis://[::1]");
    assert_eq!((server(&plain), plain.user), (StoreServer::tcp("::1", 6379), None));
    let password_only = store("redis://:secret@h:1/");
    assert_eq!((&password_only.user, password(&password_only)), (&None, Some("secret".to_owned())));
    assert_eq!(server(&store("unix:/s")), StoreServer::Unix("/s".into()));
    let invalid =
        ["h:1", "http://h:1", "redis://", "redis://h:x", "redis://h/x", "redis://%zz@h", "unix:"];
    assert_refused("[store]\nurl = ", &invalid);
    let error = settings("[store]\nurl = \"redis://u:sesame@h:port\"").unwrap_err();
    assert!(!error.contains("sesame") && !format!("{url:?}").contains("p:w"));
    assert_eq!(format!("{:?}", Secret::new("sesame".to_owned())), "***");
}

#[test]
#[cfg(feature = "otlp")]
fn receivers_of_spans() {
    let read = |text: &str| settings(&format!("[tracing]\notlp = {text:?}"));
    let of = |text: &str| read(text).unwrap().tracing.otlp.unwrap();
    let plain = of("http://127.0.0.1:4318");
    assert_eq!((plain.host(), plain.port()), ("127.0.0.1", 4318));
    assert_eq!(of("http://[::1]:4318/").host(), "::1");
    for (text, url) in [
        ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
        ("http://[::1]:4318/", "http://[::1]:4318/v1/traces"),
        ("http://a-b.c:1/x/y/", "http://a-b.c:1/x/y/v1/traces"),
    ] {
        assert_eq!(of(text).to_string(), url);
    }
    assert_eq!(read("off").unwrap().tracing.otlp, None);
    let invalid = [
        "",
        "127.0.0.1:4318",
        "http://",
        "http://h",
        "http://h:",
        "http://h:0",
        "http://h:65536",
        "http://:4318",
        "http://::1:4318",
        "http://[::1:4318",
        "http://h:1?x",
        "http://h:1/a b",
        "grpc://h:1",
    ];
    assert_refused("[tracing]\notlp = ", &invalid);
    assert!(!read("http://user:sesame@h:1").unwrap_err().contains("sesame"));
    let tls = read("https://h:4318").unwrap_err();
    assert!(tls.contains("without TLS"), "{tls}");
}

#[test]
fn parts_of_the_decisions_and_extents() {
    let sample = |text: &str| settings(&format!("[tracing]\nsample = {text:?}")).unwrap();
    for (text, millionths) in [("1%", 10_000), ("0.0001%", 1), ("0%", 0), ("100%", 1_000_000)] {
        assert_eq!(sample(text).tracing.sample.of_a_million(), millionths, "{text}");
    }
    let invalid =
        ["", "%", "1", "0.01", "-1%", "100.0001%", "0.00001%", "1.%", ".5%", "9999999999%"];
    assert_refused("[tracing]\nsample = ", &invalid);
    let invalid = ["", "half", "12.5%", "100%", "5"];
    assert_refused("[[rule]]\nname = \"a\"\nlimit = \"1/s\"\nenforce = ", &invalid);
}

#[test]
fn days_and_times() {
    let rule_at = |key: &str| format!("limit = \"1/s\"\n[[rule.schedule]]\nlimit = \"2/s\"\n{key}");
    let days = |text: &str| {
        let rule = rule(&rule_at(&format!("days = [{text:?}]"))).unwrap();
        rule.schedule[0].days.map(u8::from)
    };
    assert_eq!(days("mon-fri"), [1, 1, 1, 1, 1, 0, 0]);
    assert_eq!(days("sat-mon"), [1, 0, 0, 0, 0, 1, 1]);
    assert_eq!(days("wed"), [0, 0, 1, 0, 0, 0, 0]);
    for invalid in ["monday", "mon-", ""] {
        assert!(rule(&rule_at(&format!("days = [{invalid:?}]"))).is_err(), "{invalid}");
    }
    for (text, seconds) in [("09:30", 34_200), ("23:59:59", 86_399), ("24:00", 86_400)] {
        let rule = rule(&rule_at(&format!("to = {text:?}"))).unwrap();
        assert_eq!(rule.schedule[0].until_s, seconds, "{text}");
    }
    let invalid =
        ["", "9:00", "24:01", "25:00", "12:60", "12", "12:00:60", "12:00:00:00", "1a:00", "+9:00"];
    assert_refused(&format!("[[rule]]\nname = \"a\"\n{}to = ", rule_at("")), &invalid);
}

/// Returns the policy of a rule, and how its limit is displayed.
fn built(limit: &str, algorithm: &str) -> (AnyPolicy, String) {
    let rule = rule(&format!("limit = {limit:?}\nalgorithm = {algorithm:?}")).unwrap();
    match rule.limit {
        Limit::Policy(policy) => (policy, rule.display_limit.to_string()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_rate_is_a_bucket_that_holds_a_period_of_it() {
    let rate = |permits, seconds| Rate::new(permits, Duration::from_secs(seconds)).unwrap();
    let bucket = |rate, burst| AnyPolicy::from(Gcra::new(rate, burst).unwrap());
    for (text, policy, display) in [
        ("100/min", bucket(rate(100, 60), 100), "100 per minute"),
        ("1000/10s", bucket(rate(100, 1), 1000), "1000 per 10 seconds"),
        ("0.5/s", bucket(rate(1, 2), 1), "1 per 2 seconds"),
        ("2.5/min", bucket(rate(1, 24), 3), "1 per 24 seconds"),
        ("5/250ms", bucket(rate(20, 1), 5), "20 per second"),
    ] {
        assert_eq!(built(text, "gcra"), (policy, display.to_owned()));
    }
    assert_eq!(built("60/7d", "gcra").1, "60 per 7 days");
}

#[test]
fn windows_keep_the_numbers_that_were_written() {
    let window = FixedWindow::new(1000, Duration::from_secs(10), Anchor::Epoch);
    assert_eq!(built("1000/10s", "fixed-window").0, window.into());
    let log = SlidingLog::new(5, Duration::from_millis(250));
    assert_eq!(built("5/250ms", "sliding-log"), (log.into(), "20 per second".into()));
    let log = CompactLog::new(7, Duration::from_secs(60));
    assert_eq!(built("7/min", "compact-log").0, log.into());
}

#[test]
fn what_does_not_go_together_is_refused() {
    for (keys, fragment) in [
        ("limit = \"100/min\"\nalgorithm = \"sliding-log\"\nburst = 1", "burst"),
        ("limit = \"never\"\nburst = 1", "burst"),
        ("limit = \"100/min\"\nalgorithm = \"concurrency\"", "at a time"),
        ("limit = 5", "5/min"),
        ("limit = \"0.5/s\"\nalgorithm = \"fixed-window\"", "whole"),
        ("limit = \"100/min\"\nburst = 0", "1 permit"),
        ("limit = \"0/s\"", "never"),
        ("limit = \"5\"", "N/PERIOD"),
        ("limit = \"5/fortnight\"", "unit"),
        ("limit = { permits = 1, unit = \"year\", multiplier = 1000 }", "584"),
        ("limit = { permits = 1, unit = \"day\", multiplier = 0 }", "period"),
    ] {
        let error = rule(keys).unwrap_err();
        assert!(error.contains(fragment), "{keys}: {error}");
    }
}

#[test]
fn limits_without_a_rate_have_names() {
    let per_second = |permits| DisplayLimit { permits, multiplier: 1, unit: Unit::Second };
    let two_days = DisplayLimit { permits: 0, multiplier: 2, unit: Unit::Day };
    let at_a_time = DisplayLimit { permits: 3, multiplier: 0, unit: Unit::Second };
    for (keys, limit, display_limit) in [
        ("limit = \"never\"", Limit::Nothing, per_second(0)),
        ("limit = \"unlimited\"", Limit::Unlimited, per_second(4_294_967_295)),
        (
            "limit = { permits = 0, unit = \"day\", multiplier = 2 }\nalgorithm = \"fixed-window\"",
            Limit::Nothing,
            two_days,
        ),
        (
            "limit = 3\nalgorithm = \"concurrency\"",
            Limit::Policy(Concurrency::new(3).into()),
            at_a_time,
        ),
    ] {
        let rule = rule(keys).unwrap();
        assert_eq!((rule.limit, rule.display_limit), (limit, display_limit), "{keys}");
    }
}

/// `over` in Envoy's format: the algorithm without another, and the fault where both disagree.
#[test]
fn what_becomes_of_a_call_that_does_not_fit_agrees_with_the_algorithm() {
    let load = |keys: &str| {
        let text = format!(
            "domain: d\ndescriptors: [{{key: a, rate_limit: {{unit: day, requests_per_unit: 7, \
             {keys}}}}}]"
        );
        let loaded = load_text("a.yaml", &text).map_err(|error| error.report())?;
        Ok::<_, String>(loaded.rules.rules[0].limit)
    };
    let refuses = Ok(load("algorithm: fixed-window").unwrap());
    let charges = Ok(load("").unwrap());
    assert!(matches!((&refuses, &charges), (Ok(Limit::Policy(_)), Ok(Limit::Counted(_)))));
    for keys in ["over: refuse", "over: refuse, algorithm: fixed-window"] {
        assert_eq!(load(keys), refuses, "{keys}");
    }
    for keys in ["over: charge", "over: charge, algorithm: counted-window"] {
        assert_eq!(load(keys), charges, "{keys}");
    }
    let bucket = load("algorithm: gcra, burst: 3");
    assert_eq!(load("over: refuse, algorithm: gcra, burst: 3"), bucket);
    for (keys, message, help) in [
        (
            "over: charge, algorithm: gcra",
            "rate_limit.over: the algorithm gcra refuses what does not fit",
            "write over: refuse, or leave out one of the two",
        ),
        (
            "algorithm: fixed-window, over: charge",
            "the algorithm fixed-window refuses what does not fit",
            "write over: refuse",
        ),
        (
            "over: refuse, algorithm: counted-window",
            "the algorithm counted-window charges what does not fit",
            "write over: charge",
        ),
        ("over: reject", "unknown over \"reject\"", "refuse, charge"),
        ("over: refuse, burst: 5", "a burst belongs to the algorithm", ""),
        ("over: charge, algorithm: concurrency", "permits at a time have no unit", ""),
    ] {
        let error = load(keys).unwrap_err();
        assert!(error.contains(message) && error.contains(help), "{keys}: {error}");
    }
    let unlimited =
        "domain: d\ndescriptors: [{key: a, rate_limit: {unlimited: true, over: refuse}}]";
    let error = load_text("a.yaml", unlimited).unwrap_err().to_string();
    assert!(error.contains("over on an unlimited descriptor"), "{error}");
}

#[test]
fn names_of_header_fields_are_names() {
    let text = "[grpc]\nlimit_header = \"X-RateLimit-Limit\"\ncounting = \"stop\"\n";
    let grpc = settings(text).unwrap().grpc;
    assert_eq!((grpc.limit_header.as_str(), grpc.counting), ("X-RateLimit-Limit", Counting::Stop));
    assert_eq!(grpc.reset_header, "RateLimit-Reset");
    let long = "x".repeat(129);
    assert_refused("[grpc]\nreset_header = ", &["", "a b", ":path", "\u{fc}", &long]);
    let error = settings("[grpc]\ncounting = \"never\"\n").unwrap_err();
    assert!(error.contains("unknown word `never`"), "{error}");
}

#[test]
fn header_fields_are_of_two_styles_each_listed_once() {
    let load = |headers: &str| load_text("rules.toml", &format!("[http]\nheaders = [{headers}]\n"));
    load(r#""ietf", "x-ratelimit""#).unwrap();
    for (headers, parts) in [
        (r#""ietf", "x-ratelimit", "ietf""#, &["\"ietf\"", "twice", "leave out one"][..]),
        (r#""openai""#, &["openai", "ietf", "x-ratelimit"]),
    ] {
        let problems = load(headers).unwrap_err().report();
        for part in ["rules.toml:2:"].iter().chain(parts) {
            assert!(problems.contains(part), "{headers}: {problems}");
        }
    }
}
