//! The text for Prometheus, parsed by a strict reader of its format.

use std::collections::{BTreeMap, BTreeSet};

use rategate_server::engine::{
    Cost, DEFAULT_TTL, Decided, Inline, Item, Request, Target, UniqueId, Verb,
};
use rategate_server::net::Tally as _;
use rategate_server::observe::Protocol;
use rategate_server::rule::{Limit, Rule, RuleSet, Unit};

use crate::engine::common::now;
use crate::observe::common::{Bench, SECOND_NS, bucket, rule, rules};

/// A series: its name and labels.
pub(crate) type Series = (String, BTreeMap<String, String>);

/// A scrape: the types of metrics, and the values of series.
#[derive(Debug, Default)]
pub(crate) struct Scrape {
    pub(crate) kinds: BTreeMap<String, String>,
    pub(crate) values: BTreeMap<Series, f64>,
}

impl Scrape {
    /// Parses the text format, and fails on everything that Prometheus would reject.
    pub(crate) fn read(text: &str) -> Self {
        let (mut scrape, mut helped, mut closed) =
            (Self::default(), BTreeSet::new(), BTreeSet::new());
        let mut current = String::new();
        assert!(text.ends_with('\n'), "the last line ends");
        for line in text.lines().filter(|line| !line.is_empty()) {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, _) = rest.split_once(' ').unwrap();
                assert!(helped.insert(name.to_owned()), "{name} is helped twice");
                continue;
            }
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').unwrap();
                assert!(["counter", "gauge", "histogram", "summary"].contains(&kind), "{line}");
                assert!(
                    scrape.kinds.insert(name.to_owned(), kind.to_owned()).is_none(),
                    "{name} twice"
                );
                closed.insert(std::mem::replace(&mut current, name.to_owned()));
                assert!(!closed.contains(name), "{name} is not in one piece");
                continue;
            }
            let (series, value) = read_line(line);
            let family = ["_bucket", "_sum", "_count"].iter().find_map(|end| {
                let family = series.0.strip_suffix(end)?;
                (scrape.kinds.get(family).map(String::as_str) == Some("histogram"))
                    .then_some(family)
            });
            assert_eq!(family.unwrap_or(&series.0), current, "{line} is in the wrong position");
            assert!(scrape.values.insert(series, value).is_none(), "{line} is there twice");
        }
        scrape
    }

    pub(crate) fn value(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let labels = labels.iter().map(|(label, value)| ((*label).to_owned(), (*value).to_owned()));
        *self
            .values
            .get(&(name.to_owned(), labels.collect()))
            .unwrap_or_else(|| panic!("no {name}"))
    }
}

fn read_line(line: &str) -> (Series, f64) {
    let end = line.find(['{', ' ']).unwrap();
    let (name, mut rest) = line.split_at(end);
    let is_name = |text: &str| {
        text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            && !text.starts_with(|c: char| c.is_ascii_digit())
    };
    assert!(is_name(name) && !name.is_empty(), "{line}");
    let mut labels = BTreeMap::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        loop {
            let (label, after) = rest.split_once("=\"").unwrap();
            assert!(is_name(label), "{line}");
            let (mut value, mut escaped, mut end) = (String::new(), false, None);
            for (at, character) in after.char_indices() {
                match (escaped, character) {
                    (true, 'n') => value.push('\n'),
                    (true, other) => {
                        assert!(['\\', '"'].contains(&other), "{line}");
                        value.push(other);
                    }
                    (false, '\\') => {}
                    (false, '"') => {
                        end = Some(at);
                        break;
                    }
                    (false, other) => value.push(other),
                }
                escaped = !escaped && character == '\\';
            }
            assert!(labels.insert(label.to_owned(), value).is_none(), "{line}");
            rest = &after[end.unwrap() + 1..];
            if let Some(after) = rest.strip_prefix('}') {
                rest = after;
                break;
            }
            rest = rest.strip_prefix(',').unwrap();
        }
    }
    let value = rest.strip_prefix(' ').unwrap();
    ((name.to_owned(), labels), value.parse().unwrap())
}

pub(crate) fn scrape(bench: &Bench) -> Scrape {
    let (status, text) = bench.call("GET", "/metrics", "");
    assert_eq!(status, 200);
    Scrape::read(&text)
}

#[test]
fn decisions_are_counted_by_rule_and_outcome() {
    let bench = Bench::new(rules());
    for _ in 0..30 {
        bench.take("per-address", &["a"], 1);
    }
    bench.take("per-address", &["b"], 5);
    for _ in 0..12 {
        bench.take("uploads", &["ann"], 40);
    }
    let inline = Inline { capacity: 1, count: 1, period_ns: SECOND_NS };
    for _ in 0..3 {
        bench.engine.inline(inline, b"k", Verb::Take, 1).unwrap();
    }
    bench.engine.inline(inline, b"k", Verb::Peek, 1).unwrap();
    bench.engine.inline(inline, b"k", Verb::Take, 0).unwrap();
    let listener = bench.observe.status().listener(Protocol::Resp, "127.0.0.1:6380", false);
    listener.opened();
    listener.opened();
    listener.closed();
    let scrape = scrape(&bench);
    let decisions = |rule, outcome| {
        scrape.value("rategate_decisions_total", &[("rule", rule), ("outcome", outcome)])
    };
    assert_eq!(
        (decisions("per-address", "granted"), decisions("per-address", "denied")),
        (21.0, 10.0)
    );
    assert_eq!(
        (decisions("uploads", "granted"), decisions("uploads", "shadow_denied")),
        (10.0, 2.0)
    );
    assert_eq!((decisions("*inline", "granted"), decisions("*inline", "denied")), (1.0, 2.0));
    let permits = [("rule", "per-address"), ("outcome", "granted")];
    assert_eq!(scrape.value("rategate_decided_permits_total", &permits), 25.0);
    // Of 20, those that left one or none: two of `a`.
    assert_eq!(scrape.value("rategate_near_limit_total", &[("rule", "per-address")]), 2.0);
    assert_eq!(scrape.value("rategate_rule_keys", &[("rule", "per-address")]), 2.0);
    let wait = |end| {
        scrape.value("rategate_retry_after_seconds_bucket", &[("rule", "per-address"), ("le", end)])
    };
    assert_eq!((wait("0.03"), wait("0.1"), wait("86400"), wait("+Inf")), (0.0, 10.0, 10.0, 10.0));
    assert_eq!(scrape.value("rategate_retry_after_seconds_sum", &[("rule", "per-address")]), 1.0);
    assert_eq!(
        scrape.value("rategate_retry_after_seconds_count", &[("rule", "per-address")]),
        10.0
    );
    assert_eq!(scrape.value("rategate_connections", &[("protocol", "resp")]), 1.0);
    assert_eq!(scrape.value("rategate_connections_accepted_total", &[("protocol", "resp")]), 2.0);
    assert_eq!(scrape.value("rategate_config_reload_failed", &[]), 0.0);
    bench.observe.status().load_failed("no");
    assert_eq!(self::scrape(&bench).value("rategate_config_reload_failed", &[]), 1.0);
}

/// Gateways ask with a look before they call: what it denies is denied to a caller, of 0 permits.
/// A peek is no decision.
#[test]
fn denied_looks_are_counted_and_peeks_are_not() {
    let bench = Bench::new(rules());
    let look = |bench: &Bench| bench.take("per-address", &["a"], 0);
    let (values, inline) =
        ([b"a".as_slice()], Inline { capacity: 1, count: 1, period_ns: SECOND_NS });
    let target = Target::Rule { name: "per-address", values: &values };
    let own = Target::Inline { limit: inline, key: b"k" };
    let decide = |verb, item| {
        let request = Request { verb, items: &[item], counts_denied: false };
        let Decided::Now(answer) = bench.engine.decide(&request) else { panic!("it is here") };
        answer.unwrap().allowed
    };
    assert!(look(&bench));
    assert!(decide(Verb::Charge, Item::of(target, 25)));
    assert!(!look(&bench));
    assert!(!decide(Verb::Peek, Item::of(target, 1)));
    assert!(decide(Verb::Charge, Item::of(own, 3)));
    assert!(bench.engine.inline(inline, b"k", Verb::Take, 0).unwrap().verdict.is_over());
    assert!(bench.engine.inline(inline, b"k", Verb::Peek, 0).unwrap().verdict.is_over());
    bench.second();
    let scrape = scrape(&bench);
    let figures = |rule, outcome| {
        let labels = [("rule", rule), ("outcome", outcome)];
        ["rategate_decisions_total", "rategate_decided_permits_total"]
            .map(|name| scrape.value(name, &labels))
    };
    assert_eq!(figures("per-address", "granted"), [0.0, 0.0], "a look that passes takes nothing");
    assert_eq!(figures("per-address", "denied"), [1.0, 0.0]);
    assert_eq!(figures("*inline", "denied"), [1.0, 0.0]);
    let waits = scrape.value("rategate_retry_after_seconds_count", &[("rule", "per-address")]);
    assert_eq!(waits, 1.0);
    let shown = bench.json("/v1/rules?rule=per-address");
    assert_eq!(shown["detail"]["denials"].as_array().map(Vec::len), Some(1), "{shown}");
}

/// No label depends on keys, whatever their number and contents: the series stay the same.
#[test]
fn keys_make_no_series() {
    let bench = Bench::new(rules());
    bench.take("per-address", &["quiet"], 1);
    let before: BTreeSet<Series> = scrape(&bench).values.into_keys().collect();
    for key in 0..3_000 {
        bench.take("per-address", &[&format!("flood-{key}\"\n")], 1);
        bench.take("free-plan", &["free", &format!("flood-{key}")], 1);
    }
    bench.second();
    let (_, text) = bench.call("GET", "/metrics", "");
    assert!(!text.contains("flood"));
    let after = Scrape::read(&text);
    assert!(after.value("rategate_rule_overflows_total", &[("rule", "per-address")]) > 0.0);
    assert_eq!(after.values.into_keys().collect::<BTreeSet<_>>(), before);
}

/// A rule's name is arbitrary text of the configuration: it must stay within its label.
#[test]
fn names_of_rules_are_escaped() {
    let name = "a\"b\\c\nd{e=\"f\"} 1";
    let set = RuleSet {
        rules: vec![rule(name, &["k"], bucket(1, 1), 1, Unit::Second)],
        hash: "\"\n".into(),
    };
    let bench = Bench::new(set);
    bench.take(name, &["x"], 1);
    let scrape = scrape(&bench);
    assert_eq!(
        scrape.value("rategate_decisions_total", &[("rule", name), ("outcome", "granted")]),
        1.0
    );
    assert_eq!(scrape.value("rategate_config_info", &[("hash", "\"\n")]), 1.0);
}

/// The given name of a rule in Envoy's format is shown next to its own.
#[test]
fn the_envoy_name_of_a_rule_is_exported() {
    let named = |name: &str, given: &str| Rule {
        envoy_name: given.into(),
        ..rule(name, &[name], bucket(1, 1), 1, Unit::Second)
    };
    let rules = vec![named("edge.a", "of \"a\""), named("edge.b", ""), named("c", "c")];
    let bench = Bench::new(RuleSet { rules, hash: "1".into() });
    let scrape = scrape(&bench);
    let reported: Vec<_> =
        scrape.values.keys().filter(|(name, _)| name == "rategate_rule_info").collect();
    assert_eq!(reported.len(), 1, "{reported:?}");
    let labels = [("rule", "edge.a"), ("envoy_name", "of \"a\"")];
    assert_eq!(scrape.value("rategate_rule_info", &labels), 1.0);
    let shown = bench.json("/v1/rules");
    let given = |nth: usize| shown["rules"][nth]["envoy_name"].as_str();
    assert_eq!([given(0), given(1), given(2)], [Some("of \"a\""), None, None]);
    assert_eq!(bench.json("/v1/config")["rules"][0]["envoy_name"], "of \"a\"");
}

#[test]
fn counts_only_grow_and_uncounted_items_are_exported() {
    let set = RuleSet {
        rules: vec![rule("open", &["k"], Limit::Unlimited, 0, Unit::Second)],
        hash: "1".into(),
    };
    let bench = Bench::new(set);
    bench.take("open", &["x"], 7);
    let labels = [("rule", "open"), ("outcome", "uncounted")];
    assert_eq!(scrape(&bench).value("rategate_decisions_total", &labels), 1.0);
    assert_eq!(scrape(&bench).value("rategate_decided_permits_total", &labels), 7.0);
}

#[test]
fn permits_that_went_back_are_those_that_did() {
    let bench = Bench::new(rules());
    bench.take("per-address", &["a"], 3);
    let values: [&[u8]; 1] = [b"a"];
    for many in [2, 1_000_000] {
        let target = Target::Rule { name: "per-address", values: &values };
        let items = [Item::of(target, many)];
        let request = Request { verb: Verb::Refund, items: &items, counts_denied: false };
        let Decided::Now(answer) = bench.engine.decide(&request) else { panic!("it is here") };
        assert!(answer.unwrap().allowed);
    }
    let labels = [("rule", "per-address"), ("outcome", "refunded")];
    assert_eq!(scrape(&bench).value("rategate_decided_permits_total", &labels), 3.0);
}

/// Permits that were used are those granted, less those refunded, and those charged.
#[test]
fn reservations_are_counted_and_so_are_their_permits() {
    let bench = Bench::new(rules());
    let values: [&[u8]; 1] = [b"a"];
    let target = Target::Rule { name: "per-address", values: &values };
    let id = |number| UniqueId([number; 16]);
    let reserve = |number, permits| {
        now(bench.engine.reserve(id(number), DEFAULT_TTL, &[Item::of(target, permits)])).unwrap()
    };
    let used = |number, permits| {
        let cost = Cost { target, permits: Some(permits), usage: None };
        now(bench.engine.commit(id(number), &[cost])).unwrap()
    };
    for number in 0..3 {
        assert!(reserve(number, 6).answer.allowed);
    }
    assert!(!reserve(9, 1_000_000).answer.allowed);
    used(0, 4);
    used(1, 9);
    used(1, 9);
    now(bench.engine.cancel(id(9), &[target])).unwrap();
    bench.clock.advance(DEFAULT_TTL);
    bench.engine.tick(0);
    used(2, 5);
    let scrape = scrape(&bench);
    for name in ["rategate_reservations_total", "rategate_estimate_error_permits_sum"] {
        let series = scrape.values.keys().filter(|(family, _)| family == name);
        let rules: BTreeSet<_> = series.filter_map(|(_, labels)| labels.get("rule")).collect();
        assert_eq!(
            rules.iter().map(|rule| &***rule).collect::<Vec<_>>(),
            ["per-address"],
            "{name}"
        );
    }
    let permits = |outcome| {
        let labels = [("rule", "per-address"), ("outcome", outcome)];
        scrape.value("rategate_decided_permits_total", &labels)
    };
    // Of the third, 6 were granted, and came back unseen.
    assert_eq!((permits("granted"), permits("refunded"), permits("charged")), (18.0, 2.0, 8.0));
    for (outcome, expected) in [
        ("held", 3.0),
        ("denied", 1.0),
        ("committed", 2.0),
        ("cancelled", 0.0),
        ("late", 1.0),
        ("expired", 1.0),
    ] {
        let labels = [("rule", "per-address"), ("outcome", outcome)];
        let total = scrape.value("rategate_reservations_total", &labels);
        assert!((total - expected).abs() < 0.5, "{outcome}: {total}");
    }
    for (outcome, expected) in [("repeated", 1.0), ("unknown", 1.0), ("unavailable", 0.0)] {
        let total = scrape.value("rategate_reservations_total", &[("outcome", outcome)]);
        assert!((total - expected).abs() < 0.5, "{outcome}: {total}");
    }
    assert_eq!(scrape.value("rategate_unknown_ids_total", &[]), 1.0);
    let state = |state| scrape.value("rategate_reservations", &[("state", state)]);
    assert_eq!((state("open"), state("ended")), (0.0, 3.0));
}

/// A rule shows what is held, and how wrong estimates were, whatever way a reservation ends.
#[test]
fn what_reservations_hold_is_a_gauge_of_their_rule() {
    let bench = Bench::new(rules());
    let values: [&[u8]; 1] = [b"a"];
    let target = Target::Rule { name: "per-address", values: &values };
    let id = |number| UniqueId([number; 16]);
    let held =
        |bench: &Bench| scrape(bench).value("rategate_held_permits", &[("rule", "per-address")]);
    let reserve = |number, permits| {
        now(bench.engine.reserve(id(number), DEFAULT_TTL, &[Item::of(target, permits)])).unwrap()
    };
    let used = |number, permits| {
        let cost = Cost { target, permits, usage: None };
        now(bench.engine.commit(id(number), &[cost])).unwrap()
    };
    for (number, permits) in [(0, 4), (1, 5), (2, 6), (3, 1), (4, 2)] {
        assert!(reserve(number, permits).answer.allowed);
    }
    assert_eq!(held(&bench), 18.0);
    assert!(reserve(0, 4).is_repeated);
    used(0, Some(1));
    used(0, Some(1));
    used(1, Some(15));
    now(bench.engine.cancel(id(2), &[target])).unwrap();
    assert_eq!(held(&bench), 3.0);
    bench.clock.advance(DEFAULT_TTL);
    // One is committed before its end is noticed, the other after that.
    used(3, Some(2));
    assert_eq!(held(&bench), 2.0);
    bench.engine.tick(0);
    assert_eq!(held(&bench), 0.0);
    used(4, None);
    let scrape = scrape(&bench);
    let of = |outcome| {
        let labels = [("rule", "per-address"), ("outcome", outcome)];
        scrape.value("rategate_reservations_total", &labels)
    };
    assert_eq!([of("held"), of("committed"), of("cancelled")], [5.0, 2.0, 1.0]);
    // What is late has expired before, whether that was noticed by a tick or by the commit.
    assert_eq!([of("late"), of("expired"), of("denied")], [2.0, 2.0, 0.0]);
    let bucket = |le| {
        let labels = [("rule", "per-address"), ("le", le)];
        scrape.value("rategate_estimate_error_permits_bucket", &labels)
    };
    // Of 3, 10, 1 and 0 permits; a cancellation says nothing about its estimate.
    let buckets = ["0", "1", "10", "1000000", "+Inf"].map(bucket);
    assert_eq!(buckets, [1.0, 2.0, 4.0, 4.0, 4.0]);
    let rule = [("rule", "per-address")];
    assert_eq!(scrape.value("rategate_estimate_error_permits_sum", &rule), 14.0);
    assert_eq!(scrape.value("rategate_estimate_error_permits_count", &rule), 4.0);
    // What is committed late is charged, whether the end was noticed or not.
    let charged = [("rule", "per-address"), ("outcome", "charged")];
    assert_eq!(scrape.value("rategate_decided_permits_total", &charged), 10.0 + 2.0 + 2.0);
}

/// A bound on debts lets go of charges and of commits, which is counted.
#[test]
fn what_is_forgiven_is_counted() {
    let mut all = rules();
    let at = all.rules.iter().position(|rule| &*rule.name == "per-address").unwrap();
    all.rules[at].debt = rategate::charge::Debt::CARRIED.at_most(std::time::Duration::from_secs(1));
    let bench = Bench::new(all);
    let values: [&[u8]; 1] = [b"a"];
    let target = Target::Rule { name: "per-address", values: &values };
    let items = [Item::of(target, 1_000_000)];
    let request = Request { verb: Verb::Charge, items: &items, counts_denied: false };
    let Decided::Now(answer) = bench.engine.decide(&request) else { panic!("it is here") };
    let rategate_server::engine::Verdict::Charged(booked) = answer.unwrap().results[0].verdict
    else {
        panic!("a charge")
    };
    let forgiven =
        |bench: &Bench| scrape(bench).value("rategate_forgiven_total", &[("rule", "per-address")]);
    assert!(booked < 1_000_000);
    let first = forgiven(&bench);
    assert_eq!(first, f64::from(u32::try_from(1_000_000 - booked).unwrap()));
    let values: [&[u8]; 1] = [b"b"];
    let target = Target::Rule { name: "per-address", values: &values };
    let id = UniqueId([1; 16]);
    assert!(
        now(bench.engine.reserve(id, DEFAULT_TTL, &[Item::of(target, 1)])).unwrap().answer.allowed
    );
    let cost = Cost { target, permits: Some(1_000_001), usage: None };
    let settled = now(bench.engine.commit(id, &[cost])).unwrap();
    let rategate_server::engine::Verdict::Committed(rategate::charge::Settled::Owed {
        forgiven: more,
        ..
    }) = settled.answer.results[0].verdict
    else {
        panic!("owed")
    };
    assert!(more > 0);
    assert_eq!(forgiven(&bench), first + f64::from(u32::try_from(more).unwrap()));
}
