//! The native format: the rules and settings that files load to, and the problems of wrong ones.

use std::sync::Arc;
use std::time::Duration;

use rategate::{AnyPolicy, Concurrency, FixedWindow, Gcra, Rate, SlidingLog};
use rategate_server::config::settings::{Dialect, Listener, LogFormat, Settings, StoreKind};
use rategate_server::config::{ConfigError, Loaded, load_text, to_toml};
use rategate_server::engine::OnCorruptSnapshot;
use rategate_server::net::Address;
use rategate_server::rule::{
    CounterLocation, Enforcement, Entry, Limit, OnUnavailable, Rule, Scheduled, Unit, Value,
};

fn load(text: &str) -> Loaded {
    load_text("rules.toml", text).unwrap_or_else(|error| panic!("{}", error.report()))
}

fn invalid(text: &str) -> ConfigError {
    load_text("rules.toml", text).map(|_| panic!("accepted: {text}")).unwrap_err()
}

fn rules(text: &str) -> Vec<Rule> {
    load(text).rules.rules.clone()
}

fn rule(text: &str) -> Rule {
    let mut all = rules(&format!("[[rule]]\nname = \"r\"\n{text}"));
    assert_eq!(all.len(), 1);
    all.pop().unwrap()
}

fn bucket(permits: u64, seconds: u64, burst: u64) -> Limit {
    let rate = Rate::new(permits, Duration::from_secs(seconds)).unwrap();
    Limit::Policy(Gcra::new(rate, burst).unwrap().into())
}

fn names(all: &[Arc<str>]) -> Vec<&str> {
    all.iter().map(|name| &**name).collect()
}

fn entry(key: &str, value: Value) -> Entry {
    Entry { key: key.into(), value }
}

#[test]
fn a_rule_with_little_has_safe_defaults() {
    let rule = rule("limit = \"100/min\"");
    assert_eq!((&*rule.name, &*rule.domain), ("r", "r"));
    assert_eq!(rule.limit, bucket(100, 60, 100));
    assert_eq!(rule.display_limit.to_string(), "100 per minute");
    assert_eq!(
        (rule.enforcement, rule.quota, rule.detailed_metric),
        (Enforcement::All, false, false)
    );
    assert_eq!(
        (rule.location, rule.on_unavailable, rule.max_keys),
        (CounterLocation::Here, OnUnavailable::Local, None)
    );
    assert!(rule.entries.is_empty() && rule.replaces.is_empty() && rule.schedule.is_empty());
    assert_eq!(rule.origin.to_string(), "rules.toml:2:8");
}

#[test]
fn all_keys_of_a_rule() {
    let text = r#"
        [store]
        url = "redis://127.0.0.1"

        [[rule]]
        name = "other"
        limit = "unlimited"

        [[rule]]
        name = "api"
        domain = "edge"
        match = ["user", { key = "plan", value = "free" }, { key = "path", value = "/api/*", shared = true }, { key = "method", values = ["GET", "PUT"] }]
        limit = "10/s"
        burst = 30
        enforce = "soft"
        quota = true
        replaces = ["other"]
        detailed_metric = true
        store = "leased"
        lease = "50ms"
        on_unavailable = "deny"
        keys = 5000
    "#;
    let rule = rules(text).pop().unwrap();
    let methods: Vec<_> = ["GET", "PUT"].into_iter().map(Into::into).collect();
    let entries = [
        entry("user", Value::Any),
        entry("plan", Value::Exact("free".into())),
        entry("path", Value::Pattern { text: "/api/*".into(), shared: true }),
        entry("method", Value::OneOf(methods.into())),
    ];
    assert_eq!((&*rule.domain, rule.entries.as_slice()), ("edge", entries.as_slice()));
    assert_eq!(rule.limit, bucket(10, 1, 30));
    assert_eq!(rule.enforcement, Enforcement::Soft);
    assert!(rule.quota && rule.detailed_metric);
    assert_eq!(names(&rule.replaces), ["other"]);
    assert_eq!(rule.location, CounterLocation::StoreLeased { lease_ns: 50_000_000 });
    assert_eq!((rule.on_unavailable, rule.max_keys), (OnUnavailable::Deny, Some(5_000)));
}

#[test]
fn each_algorithm() {
    let policy = |text: &str| rule(text).limit;
    let is = |policy: AnyPolicy| Limit::Policy(policy);
    assert_eq!(policy("limit = \"5/s\"\nalgorithm = \"gcra\"\nburst = 1"), bucket(5, 1, 1));
    let log = SlidingLog::new(5, Duration::from_secs(1));
    assert_eq!(policy("limit = \"5/s\"\nalgorithm = \"sliding-log\""), is(log.into()));
    let window =
        FixedWindow::new(7, Duration::from_secs(30 * 86_400), rategate::policy::Anchor::Epoch);
    let month = "limit = { permits = 7, unit = \"month\" }\nalgorithm = \"fixed-window\"";
    assert_eq!(policy(month), is(window.into()));
    assert_eq!(rule(month).display_limit.unit, Unit::Month);
    let held = Concurrency::new(20);
    assert_eq!(policy("limit = 20\nalgorithm = \"concurrency\""), is(held.into()));
    let held_ns =
        |text: &str| rule(&format!("limit = 2\nalgorithm = \"concurrency\"\n{text}")).held_ns;
    assert_eq!((held_ns(""), held_ns("lease = \"1.5s\"")), (60_000_000_000, 1_500_000_000));
    assert_eq!(policy("limit = \"never\""), Limit::Nothing);
    assert_eq!(policy("limit = \"unlimited\""), Limit::Unlimited);
}

#[test]
fn tiers_are_rules_of_their_own() {
    let text = r#"
        [[rule]]
        name = "other"
        limit = "1/s"
        [[rule]]
        name = "api"
        match = [{ key = "path", value = "/api/*" }, "user"]
        limit = "10/min"
        enforce = "shadow"
        replaces = ["other"]
        [[rule.schedule]]
        limit = "1/min"
        [[rule.tiers]]
        name = "gold"
        values = ["alice", "bob"]
        limit = "1000/min"
        burst = 50
        [[rule.tiers]]
        name = "robots"
        key = "user"
        pattern = "bot-*"
        limit = "never"
    "#;
    let rules = rules(text);
    let called: Vec<_> = rules.iter().map(|rule| &*rule.name).collect();
    assert_eq!(called, ["other", "api/gold", "api/robots", "api"]);
    let [_, gold, robots, base] = rules.as_slice() else { panic!() };
    assert_eq!(gold.entries[0], base.entries[0]);
    assert_eq!(gold.entries[1].value, Value::OneOf(["alice".into(), "bob".into()].into()));
    assert_eq!(gold.limit, bucket(1000, 60, 50));
    assert_eq!(robots.entries[1].value, Value::Pattern { text: "bot-*".into(), shared: false });
    assert_eq!(robots.limit, Limit::Nothing);
    for tier in [gold, robots] {
        assert_eq!(tier.enforcement, Enforcement::Shadow);
        assert_eq!(names(&tier.replaces), ["other"]);
        assert!(tier.schedule.is_empty());
    }
    assert_eq!(base.schedule.len(), 1);
}

#[test]
fn replacing_a_rule_replaces_its_tiers() {
    let text = r#"
        rule = [
            { name = "all", limit = "1/s", replaces = ["api"] },
            { name = "api", match = ["user"], limit = "1/s", tiers = [{ name = "a", values = ["x"], limit = "2/s" }] },
        ]
    "#;
    let replaced = rules(text).swap_remove(0).replaces;
    assert_eq!(names(&replaced), ["api/a", "api"]);
}

#[test]
fn schedules() {
    let rule = rule(
        r#"limit = "100/min"
        [[rule.schedule]]
        days = ["mon-fri"]
        from = "09:00"
        to = "17:30"
        zone = "Europe/Berlin"
        limit = "10/min"
        burst = 2
        [[rule.schedule]]
        limit = "50/min""#,
    );
    let [office, always] = rule.schedule.as_slice() else { panic!() };
    let expected = Scheduled {
        days: [true, true, true, true, true, false, false],
        from_s: 9 * 3600,
        until_s: 17 * 3600 + 1800,
        zone: "Europe/Berlin".into(),
        limit: bucket(10, 60, 2),
        display_limit: office.display_limit,
    };
    assert_eq!(*office, expected);
    assert_eq!(
        (always.days, always.from_s, always.until_s, &*always.zone),
        ([true; 7], 0, 86_400, "UTC")
    );
}

#[test]
fn all_settings() {
    let text = r#"
        [server]
        resp = ["127.0.0.1:1", { address = "unix:/run/r", auth = true, mode = "0660" }]
        http = { address = "0.0.0.0:2", tls = false }
        grpc = []
        token = "sesame"
        threads = 3
        drain = "3s"
        [server.tls]
        cert = "c.pem"
        key = "k.pem"
        client_ca = "ca.pem"
        [server.limits]
        frame = "64KiB"
        header = 1000
        body = "2MiB"
        streams = 7
        connections = 8
        connections_per_address = 9
        idle = "1min"
        header_time = "2s"
        [http]
        headers = ["ietf", "x-ratelimit"]
        hosts = ["limits.example"]
        trusted_proxies = ["10.0.0.0/8", "::1"]
        [grpc]
        count_denied = true
        headers = true
        [store]
        kind = "sentinel"
        name = "main"
        url = ["redis://u:p@a:1/4", "redis://u:p@b:2/4"]
        budget = "5ms"
        prefix = "x"
        nodes = 6
        [snapshot]
        path = "s.bin"
        every = "5s"
        when_torn = "refuse"
        [inline]
        keys = 10
        limits = 11
        [log]
        format = "json"
        filter = "warn"
        [tracing]
        otlp = "off"
        sample = "0.5%"
        service = "limits"
        [keys]
        total = 12
    "#;
    let settings = load(text).settings;
    let server = &settings.server;
    let unix = Address::Unix("/run/r".into());
    assert_eq!(server.resp[0], Listener::plain(Address::loopback(1)));
    let mode = Some(0o660);
    assert_eq!(server.resp[1], Listener { auth: Some(true), mode, ..Listener::plain(unix) });
    let public = Address::Tcp(([0, 0, 0, 0], 2).into());
    assert_eq!(server.http, [Listener { tls: Some(false), ..Listener::plain(public) }]);
    let resolved = |one| (server.uses_tls(one), server.requires_token(one));
    let resolved: Vec<_> = server.listeners().map(|(_, one)| resolved(one)).collect();
    assert_eq!(resolved, [(true, false), (false, true), (false, true)]);
    assert!(server.grpc.is_empty() && server.token.as_ref().unwrap().expose() == "sesame");
    assert_eq!((server.threads.unwrap().get(), server.drain), (3, Duration::from_secs(3)));
    let limits = server.limits;
    assert_eq!(
        (limits.frame_bytes, limits.header_bytes, limits.body_bytes),
        (65_536, 1_000, 2 << 20)
    );
    let connections = (limits.connections.get(), limits.connections_per_address.get());
    assert_eq!((limits.streams.get(), connections), (7, (8, 9)));
    assert_eq!(
        (limits.idle, limits.header_time),
        (Duration::from_secs(60), Duration::from_secs(2))
    );
    assert_eq!(settings.http.headers, [Dialect::Current, Dialect::Legacy]);
    assert_eq!(settings.http.hosts, ["limits.example"]);
    let trusted: Vec<_> = ["10.0.0.0/8", "::1"].map(|one| one.parse().unwrap()).into();
    assert_eq!(settings.http.trusted_proxies, trusted);
    assert!(settings.grpc.count_denied && settings.grpc.headers);
    let store = settings.store.as_ref().unwrap();
    assert_eq!((store.kind, store.name.as_deref()), (StoreKind::Sentinel, Some("main")));
    assert_eq!(store.servers().count(), 2);
    assert_eq!((store.user.as_deref(), store.database), (Some("u"), Some(4)));
    assert_eq!((store.prefix.as_str(), store.budget), ("x", Duration::from_millis(5)));
    assert_eq!(store.password.as_ref().unwrap().expose(), "p");
    assert_eq!(store.nodes.get(), 6);
    let snapshot = settings.snapshot.as_ref().unwrap();
    assert_eq!(
        (snapshot.every, snapshot.when_torn),
        (Duration::from_secs(5), OnCorruptSnapshot::Refuse)
    );
    let inline = settings.inline;
    assert_eq!((inline.keys.get(), inline.limits.get(), settings.keys.total.get()), (10, 11, 12));
    assert_eq!((settings.log.format, settings.log.filter.as_str()), (LogFormat::Json, "warn"));
    assert_eq!(settings.tracing.sample.of_a_million(), 5_000);
    assert_eq!((&settings.tracing.otlp, settings.tracing.service.as_str()), (&None, "limits"));
    for secret in ["sesame", "\"p\""] {
        assert!(!format!("{settings:?}").contains(secret));
    }
}

#[test]
fn answers_of_envoys_protocol_have_the_rules_name_or_another() {
    let names = |more: &str| {
        let text = format!(
            "[[rule]]\nname = \"a\"\nmatch = [\"u\"]\nlimit = \"1/s\"\n{more}\n\
             [[rule.tiers]]\nname = \"t\"\nvalues = [\"x\"]\nlimit = \"2/s\"\n"
        );
        load(&text).rules.rules.iter().map(|rule| rule.envoy_name.to_string()).collect::<Vec<_>>()
    };
    // Tiers precede their rule.
    assert_eq!(names(""), ["a/t", "a"]);
    assert_eq!(names("envoy_name = \"other\""), ["other", "other"]);
    assert_eq!(names("envoy_name = \"\""), ["", ""]);
    let long =
        format!("[[rule]]\nname = \"a\"\nlimit = \"1/s\"\nenvoy_name = {:?}", "x".repeat(4097));
    assert_eq!(invalid(&long).problems()[0].line(), Some(4));
}

#[test]
fn modes_and_networks_that_are_none_are_refused() {
    for (text, reported) in [
        ("[server]\nresp = { address = \"unix:/run/r\", mode = \"0999\" }", "0777"),
        ("[server]\nresp = { address = \"unix:/run/r\", mode = \"rw\" }", "0777"),
        ("[server]\nresp = { address = \"127.0.0.1:1\", mode = \"0666\" }", "only a socket"),
        ("[http]\ntrusted_proxies = [\"10.0.0.1/8\"]", "10.0.0.1/8"),
        ("[http]\ntrusted_proxies = [\"proxy\"]", "proxy"),
    ] {
        let report = invalid(text).report();
        assert!(report.contains(reported), "{text}: {report}");
    }
}

#[test]
fn nothing_is_the_default() {
    let loaded = load("");
    assert_eq!(loaded.settings, Settings::default());
    assert!(loaded.rules.rules.is_empty());
}

#[test]
fn open_listeners_are_refused_unless_allowed() {
    let open = "[server]\nhttp = \"0.0.0.0:80\"\n";
    let error = invalid(open);
    assert_eq!((error.problems()[0].line(), error.problems()[0].column()), (Some(2), Some(8)));
    assert!(error.report().contains("insecure"), "{}", error.report());
    let requires_token = |more: &str| {
        let server = load(&format!("{open}{more}")).settings.server;
        server.requires_token(&server.http[0])
    };
    assert!(!requires_token("insecure = true"));
    assert!(requires_token("token = \"t\""));
    assert!(!requires_token("token = \"t\"\nauth = false"));
    assert!(invalid("[server]\nauth = true").to_string().contains("token"));
    assert!(
        invalid("[server]\nresp = { address = \"127.0.0.1:1\", tls = true }")
            .to_string()
            .contains("certificate")
    );
    assert!(invalid("[server]\nresp = \"127.0.0.1:8080\"").to_string().contains("also"));
}

#[test]
fn a_secret_may_be_in_a_file_or_a_variable() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    std::fs::write(&path, "from a file\n").unwrap();
    let in_file = load(&format!("[server]\ntoken = {{ file = {path:?} }}"));
    assert_eq!(in_file.settings.server.token.unwrap().expose(), "from a file");
    let variable = std::env::var("CARGO_PKG_NAME").unwrap();
    let in_variable = load("[server]\ntoken = { env = \"CARGO_PKG_NAME\" }");
    assert_eq!(in_variable.settings.server.token.unwrap().expose(), variable);
    for text in [
        "{ env = \"NO_SUCH_VARIABLE\" }",
        "{ file = \"/no/such\" }",
        "\"\"",
        "5",
        "{}",
        "{ env = \"A\", file = \"b\" }",
    ] {
        let error = invalid(&format!("[server]\ntoken = {text}"));
        assert_eq!((error.problems().len(), error.problems()[0].line()), (1, Some(2)), "{error}");
    }
}

/// Each text has one problem: a part of its message, the line and the column.
#[test]
fn problems_are_reported_with_their_position() {
    let rule = "[[rule]]\nname = \"r\"\nlimit = \"1/s\"\n";
    let cases = [
        ("[servr]\n", "unknown key `servr`", 1, 2),
        ("[server]\nthread = 1\n", "unknown key `thread`", 2, 1),
        ("[server]\nthreads = 0\n", "from 1 on", 2, 11),
        ("[server]\nthreads = 5000\n", "1024", 2, 11),
        ("[server]\nresp = \"localhost:1\"\n", "no address", 2, 8),
        ("[server]\nresp = 5\n", "an address like", 2, 8),
        ("[server]\nlimits = { frame = \"x\" }\n", "a size", 2, 20),
        ("[server]\ndrain = \"10\"\n", "unit", 2, 9),
        ("[store]\nurl = [\"redis://a\", \"redis://b\"]\n", "several servers", 2, 7),
        ("[store]\nurl = \"redis://a\"\nname = \"x\"\n", "sentinel", 3, 8),
        ("[store]\nurl = \"redis://a\"\nprefix = \"a b\"\n", "prefix", 3, 10),
        ("[store]\nbudget = \"1ms\"\n", "the key `url` is missing", 1, 1),
        ("[snapshot]\npath = \"a\"\nwhen_torn = \"x\"\n", "unknown word `x`", 3, 13),
        ("[log]\nformat = \"xml\"\n", "unknown word `xml`", 2, 10),
        ("[tracing]\notlp = \"https://h:4318\"\n", "without TLS", 2, 8),
        ("[tracing]\nsample = \"200%\"\n", "100%", 2, 10),
        ("[tracing]\nservice = \"\"\n", "1 to 256 bytes", 2, 11),
        ("x = \n", "", 1, 5),
        ("rule = 1\n", "list of tables", 1, 8),
        ("[[rule]]\nname = \"a\"\n", "no limit", 1, 1),
        ("[[rule]]\nname = \"a\\n\"\nlimit = \"1/s\"\n", "printable ASCII", 2, 8),
        ("[[rule]]\nname = \"a\"\nlimit = \"1/fortnight\"\n", "unit", 3, 9),
        ("[[rule]]\nname = \"a\"\nlimit = \"1 s\"\n", "N/PERIOD", 3, 9),
        ("[[rule]]\nname = \"a\"\nlimit = \"0/s\"\n", "never", 3, 9),
        ("[[rule]]\nname = \"a\"\nlimit = 5\n", "5/min", 3, 9),
        ("[[rule]]\nname = \"a\"\nlimit = { permits = 1, unit = \"eon\" }\n", "eon", 3, 31),
        (
            "[[rule]]\nname = \"a\"\nlimit = { permits = 1, pro = \"day\" }\n",
            "unknown key `pro`",
            3,
            24,
        ),
        (
            "[[rule]]\nname = \"a\"\nlimit = 3\nalgorithm = \"concurrency\"\nlease = \"0s\"\n",
            "no time",
            5,
            9,
        ),
        (
            "[store]\nurl = \"redis://h\"\n[[rule]]\nname = \"a\"\nlimit = 3\nalgorithm = \"concurrency\"\nstore = \"leased\"\n",
            "cannot be leased",
            7,
            9,
        ),
        (
            "[store]\nurl = \"redis://h\"\n[[rule]]\nname = \"a\"\nlimit = \"1/s\"\nstore = \"exact\"\n[[rule.schedule]]\nlimit = \"2/s\"\n",
            "in the store",
            8,
            9,
        ),
        (
            "[[rule]]\nname = \"a\"\nlimit = \"unlimited\"\nalgorithm = \"concurrency\"\n[[rule.schedule]]\nlimit = 5\n",
            "in flight",
            6,
            9,
        ),
        (
            "[store]\nurl = \"redis://h\"\n[[rule]]\nname = \"a\"\nmatch = [\"u\"]\nlimit = \"1/s\"\nstore = \"leased\"\n[[rule.tiers]]\nname = \"t\"\nlimit = \"1/s\"\nvalues = [\"x\"]\n[[rule.tiers.schedule]]\nlimit = \"2/s\"\n",
            "in the store",
            13,
            9,
        ),
        (
            "[[rule]]\nname = \"a\"\nmatch = [\"u\"]\nlimit = \"1/s\"\n[[rule.tiers]]\nname = \"t\"\nlimit = \"1/s\"\n",
            "tier has no values",
            6,
            8,
        ),
        (
            "[[rule]]\nname = \"a\"\nmatch = [\"u\", \"v\"]\nlimit = \"1/s\"\n[[rule.tiers]]\nname = \"t\"\nlimit = \"1/s\"\nvalues = [\"x\"]\n",
            "more than one",
            6,
            8,
        ),
        (
            "[[rule]]\nname = \"a\"\nmatch = [\"u\"]\nlimit = \"1/s\"\n[[rule.tiers]]\nname = \"t\"\nlimit = \"1/s\"\npattern = \"x\"\n",
            "has a *",
            8,
            11,
        ),
    ];
    // Keys of a rule, behind its name and its limit.
    let of_a_rule = [
        ("limitss = 1\n", "unknown key `limitss`", 4, 1),
        ("burst = 0\n", "1 permit", 4, 9),
        ("algorithm = \"leaky\"\n", "unknown word `leaky`", 4, 13),
        ("algorithm = \"sliding-log\"\nburst = 2\n", "burst", 5, 9),
        ("enforce = \"half\"\n", "it is \"all\"", 4, 11),
        ("match = [\"\"]\n", "empty", 4, 10),
        ("match = [5]\n", "a key like", 4, 10),
        ("match = [{ key = \"k\", vaule = \"\" }]\n", "unknown key `vaule`", 4, 23),
        ("match = [{ key = \"k\", shared = true }]\n", "patterns", 4, 10),
        ("match = [{ key = \"k\", values = [] }]\n", "the list is empty", 4, 10),
        ("replaces = [\"b\"]\n", "unknown rule", 4, 13),
        ("replaces = [\"a\"]\n", "itself", 4, 13),
        ("store = \"exact\"\n", "in the store", 4, 9),
        ("lease = \"1s\"\n", "leased", 4, 9),
        ("on_unavailable = \"deny\"\n", "here", 4, 18),
        ("keys = 0\n", "from 1 on", 4, 8),
        ("[[rule.schedule]]\nlimit = \"1/s\"\nzone = \"Mars/Base\"\n", "Mars/Base", 6, 8),
        ("[[rule.schedule]]\nlimit = \"1/s\"\nfrom = \"9\"\n", "is not a time of day", 6, 8),
        ("[[rule.schedule]]\nlimit = \"1/s\"\ndays = [\"day\"]\n", "is not a day", 6, 9),
        ("[[rule.tiers]]\nname = \"t\"\nlimit = \"1/s\"\nvalues = [\"a\"]\n", "no entry", 5, 8),
    ];
    let rule_a = "[[rule]]\nname = \"a\"\nlimit = \"1/s\"\n";
    let of_a_rule =
        of_a_rule.map(|(keys, part, line, column)| (format!("{rule_a}{keys}"), part, line, column));
    let cases = cases.map(|(text, part, line, column)| (text.to_owned(), part, line, column));
    let mut other = String::new();
    for (text, fragment, line, column) in cases.into_iter().chain(of_a_rule) {
        let error = invalid(&text);
        let problem = &error.problems()[0];
        let location = (problem.line(), problem.column());
        let is_reported = error.report().contains(&format!("rules.toml:{line}:{column}"));
        if !problem.message().contains(fragment)
            || location != (Some(line), Some(column))
            || !is_reported
        {
            other +=
                &format!("{text}{fragment:?} at {line}:{column}, and it is\n{}\n", error.report());
        }
    }
    assert!(other.is_empty(), "{other}");
    let twice = invalid(&format!("{rule}{rule}"));
    assert!(
        twice.to_string().starts_with(
            "rules.toml:5:8: the name \"r\" is also that of the rule at rules.toml:2:8"
        ),
        "{twice}"
    );
}

#[test]
fn all_problems_are_reported_at_once() {
    let text = "[server]\nx = 1\n[[rule]]\nname = \"\"\nlimit = \"1/s\"\n[[rule]]\nname = \"b\"\n\
                limit = \"x\"\n[log]\ny = 1\n";
    let error = invalid(text);
    let lines: Vec<_> = error.problems().iter().map(|problem| problem.line().unwrap()).collect();
    assert_eq!(lines, [2, 4, 8, 10]);
}

/// Two rates for the same calls are allowed, up to a bound; a rule with tiers cannot share its
/// match.
#[test]
fn rules_that_match_the_same_go_together() {
    let text = "rule = [\n{ name = \"a\", match = [\"u\"], limit = \"10/s\" },\n\
                { name = \"b\", match = [\"u\"], limit = \"1000/d\" }]";
    let domains: Vec<_> = rules(text).iter().map(|rule| rule.domain.to_string()).collect();
    assert_eq!(domains, ["default", "default"]);
    let loaded = load(text);
    let reported =
        rategate_server::config::explain(&loaded.rules, "default", &[("u", "x")]).to_string();
    assert!(
        reported.contains("rule:      a\n") && reported.contains("as well:\nrule:      b\n"),
        "{reported}"
    );
    assert!(!reported.contains("not matched"), "{reported}");
    let many = |rules: usize| {
        let rules = (0..rules)
            .map(|nth| format!("{{ name = \"r{nth}\", match = [\"u\"], limit = \"1/s\" }}"));
        format!("rule = [\n{}]", rules.collect::<Vec<_>>().join(",\n"))
    };
    assert_eq!(rules(&many(8)).len(), 8);
    let error = invalid(&many(9));
    assert_eq!((error.problems().len(), error.problems()[0].line()), (1, Some(10)), "{error}");
    assert!(error.problems()[0].help_text().unwrap().contains("at most 8 rules"));
    // The number is the problem, not the similarity of two rules.
    assert!(error.to_string().contains("too many rules for the same calls"), "{error}");
    assert!(!error.to_string().contains("duplicate"), "{error}");
    let apart = "rule = [{ name = \"a\", match = [\"u\"], limit = \"1/s\" }, { name = \"b\", \
                 domain = \"x\", match = [\"u\"], limit = \"9/d\" }, { name = \"c\", \
                 limit = \"1/s\" }, { name = \"d\", limit = \"1/s\" }]";
    let domains: Vec<_> = rules(apart).iter().map(|rule| rule.domain.to_string()).collect();
    assert_eq!(domains, ["default", "x", "c", "d"]);
    let value = "rule = [{ name = \"a\", match = [{ key = \"u\", value = \"x\" }], \
                 limit = \"1/s\" }, { name = \"b\", match = [\"u\"], limit = \"9/d\", \
                 tiers = [{ name = \"t\", values = [\"y\", \"x\"], limit = \"1/s\" }] }]";
    let error = invalid(value);
    assert!(error.to_string().contains("duplicate composite key: \"b/t\""));
    assert!(error.problems()[0].help_text().unwrap().contains("domain"));
}

#[test]
fn the_digest_is_of_the_text() {
    let hash = |text: &str| load(text).hash;
    assert_eq!(hash("# a"), hash("# a"));
    assert_ne!(hash("# a"), hash("# b"));
    assert_eq!(load("# a").rules.hash, hash("# a"));
}

/// `check` is as strict as `serve`: a rule that no store can keep is reported with its line.
#[test]
fn a_rule_is_held_to_what_its_store_can_keep() {
    let store = "[store]\nurl = \"redis://127.0.0.1:1\"\n[[rule]]\nname = \"r\"\n";
    for (rule, what) in [
        ("limit = \"100000/s\"\nalgorithm = \"sliding-log\"\nstore = \"exact\"", "65536"),
        ("limit = \"5/1500ns\"\nalgorithm = \"fixed-window\"\nstore = \"leased\"", "microsecond"),
    ] {
        let error = invalid(&format!("{store}{rule}\n"));
        let [problem] = error.problems() else { panic!("{error}") };
        assert_eq!(problem.line(), Some(4), "{error}");
        assert!(error.to_string().contains(what), "{error}");
    }
    for rule in ["limit = \"10/s\"\nstore = \"leased\"", "limit = \"unlimited\"\nstore = \"exact\""]
    {
        load(&format!("{store}{rule}\n"));
    }
}

/// Lists multiply in the matcher's tree; a short text must not take all memory.
#[test]
fn lists_multiply_up_to_a_bound() {
    let list = |count: usize| {
        let values: Vec<_> = (0..count).map(|nth| format!("\"{nth}\"")).collect();
        format!("values = [{}]", values.join(", "))
    };
    let rule = |name: &str, counts: &[usize]| {
        let entries = counts.iter().enumerate();
        let entries: Vec<_> = entries
            .map(|(nth, count)| format!("{{ key = \"{name}{nth}\", {} }}", list(*count)))
            .collect();
        format!("[[rule]]\nname = \"{name}\"\nlimit = \"5/s\"\nmatch = [{}]\n", entries.join(", "))
    };
    let error = invalid(&rule("r", &[1_000, 1_000, 1_000]));
    let [problem] = error.problems() else { panic!("{error}") };
    assert_eq!(problem.line(), Some(2));
    assert!(error.to_string().contains("1000000"), "{error}");
    load(&rule("r", &[100, 100]));
    // Over all rules together.
    let error =
        invalid(&(0..5).map(|nth| rule(&format!("r{nth}"), &[600, 500])).collect::<String>());
    assert_eq!(error.problems().len(), 1, "{error}");
}

#[test]
fn a_schedule_of_no_day_is_none() {
    let error = invalid(
        "[[rule]]\nname = \"r\"\nlimit = \"5/s\"\n[[rule.schedule]]\ndays = []\nlimit = \"1/s\"\n",
    );
    assert!(error.to_string().contains("days"), "{error}");
}

/// Permits in flight in other processes are unknown, so the fallback cannot be local.
#[test]
fn permits_in_flight_are_not_counted_alone() {
    let rule = |setting: &str| {
        format!(
            "[store]\nurl = \"redis://127.0.0.1:1\"\n[[rule]]\nname = \"r\"\nlimit = 5\n\
             algorithm = \"concurrency\"\nstore = \"exact\"\n{setting}"
        )
    };
    let error = invalid(&rule("on_unavailable = \"local\"\n"));
    assert!(error.to_string().contains("in flight"), "{error}");
    assert_eq!(error.problems()[0].line(), Some(8));
    load(&rule(""));
    load(&rule("on_unavailable = \"admit\"\n"));
}

#[test]
fn a_lost_snapshot_counts_as_exhausted() {
    let settings = load("[snapshot]\npath = \"s\"\n").settings;
    assert_eq!(settings.snapshot.unwrap().when_torn, OnCorruptSnapshot::Full);
}

/// An import keeps the algorithm of a rule that is unlimited for most of the day.
#[test]
fn a_schedule_of_a_rule_without_a_limit_keeps_its_algorithm() {
    let text = "[[rule]]\nname = \"r\"\nlimit = \"unlimited\"\nalgorithm = \"sliding-log\"\n\
                [[rule.schedule]]\nfrom = \"09:00\"\nto = \"17:00\"\nlimit = \"5/min\"\n";
    let before = rules(text);
    let after = rules(&to_toml(&load(text).rules).unwrap());
    assert_eq!(before[0].schedule, after[0].schedule);
}

/// The problems of several rules and tables, each with its line and a suggestion.
#[test]
fn all_faults_of_a_set_are_reported_at_once() {
    let text = r#"
[[rule]]
name = "a"
match = ["user"]
limit = "5/s"
algorithm = "token-bucket"
enforce = "maybe"
burts = 5
[[rule]]
name = "b"
limit = "5/fortnight"
store = "exakt"
[[rule]]
limit = 3
quota = "yes"
[sever]
[server]
htp = "x"
threads = 0
[log]
format = "jsn"
[server.limits]
idel = "1s"
body = "much"
"#;
    let error = invalid(text);
    let reported: Vec<_> = error
        .problems()
        .iter()
        .map(|problem| (problem.line().unwrap(), problem.message().to_owned(), problem.help_text()))
        .collect();
    let lines: Vec<usize> = reported.iter().map(|(line, ..)| *line).collect();
    assert_eq!(lines, [6, 7, 8, 11, 12, 13, 14, 15, 16, 18, 19, 21, 23, 24], "{error}");
    let help = |line| reported.iter().find(|(at, ..)| *at == line).unwrap().2.unwrap_or_default();
    for (line, meant) in
        [(8, "burst"), (12, "exact"), (16, "server"), (18, "http"), (21, "json"), (23, "idle")]
    {
        assert!(
            help(line).starts_with(&format!("did you mean {meant}? It is one of ")),
            "{line}: {}",
            help(line)
        );
    }
    assert!(help(6).starts_with("it is one of gcra, "), "{}", help(6));
    let report = error.report();
    assert!(
        report.contains("6 | algorithm = \"token-bucket\"") && report.contains("^^^^^^^^^^^^^^"),
        "{report}"
    );
    assert!(!report.contains("Some("), "{report}");
    let error = invalid(
        "rule = [{ name = \"api\", limit = \"1/s\" }, { name = \"b\", limit = \"1/s\", \
         replaces = [\"apii\"] }]",
    );
    assert_eq!(error.problems()[0].help_text(), Some("did you mean \"api\"?"));
}
