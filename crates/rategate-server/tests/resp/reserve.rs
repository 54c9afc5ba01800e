//! Reservations over connections that come and go.

use rategate_server::config::load_text;
use rategate_server::serve::Running;

use super::client::{Client, Reply, command, serve_rules, text};

const ID: &str = "00112233445566778899aabbccddeeff";

/// A model with calls and tokens for each user, a rule in shadow, one of operations in flight, and
/// two whose names are words of the commands.
fn model() -> Running {
    let rules = r#"
        [[rule]]
        name = "calls"
        match = ["user"]
        limit = "2/h"
        algorithm = "sliding-log"

        [[rule]]
        name = "tokens"
        match = ["user", "model"]
        limit = "1000/h"
        algorithm = "sliding-log"

        [[rule]]
        name = "shadow"
        limit = "5/h"
        algorithm = "sliding-log"
        enforce = "shadow"

        [[rule]]
        name = "open"
        limit = "unlimited"

        [[rule]]
        name = "ovens"
        limit = 2
        algorithm = "concurrency"

        [[rule]]
        name = "items"
        match = ["n"]
        limit = "9/h"
        algorithm = "sliding-log"

        [[rule]]
        name = "ITEMS"
        limit = "7/h"
        algorithm = "sliding-log"
    "#;
    serve_rules(load_text("rules.toml", rules).unwrap().rules.set().as_ref().clone(), |_| ())
}

/// Two clients of the same service, by the version of their protocol.
fn clients(running: &Running) -> [(i64, Client); 2] {
    [2, 3].map(|version| {
        let mut client = Client::to(running);
        client.ask(&format!("HELLO {version}"));
        (version, client)
    })
}

fn truth(version: i64, is_true: bool) -> Reply {
    if version == 3 { Reply::Truth(is_true) } else { Reply::Int(is_true.into()) }
}

fn is_true(reply: &Reply) -> bool {
    matches!(reply, Reply::Truth(true) | Reply::Int(1))
}

/// Returns the names of a map, in their order.
fn names(reply: &Reply) -> Vec<Reply> {
    match reply {
        Reply::Map(pairs) => pairs.iter().map(|(name, _)| name.clone()).collect(),
        Reply::List(all) => all.iter().step_by(2).cloned().collect(),
        other => panic!("no map: {other:?}"),
    }
}

fn id_of(reply: &Reply) -> String {
    match reply.named("id") {
        Reply::Bulk(id) => String::from_utf8(id.clone()).unwrap(),
        other => panic!("no id: {other:?}"),
    }
}

/// Returns the verdict of a reply about one rule, and `permits` and `remaining`.
fn reported(reply: &Reply) -> (String, [i64; 2]) {
    let Reply::Bulk(verdict) = reply.named("verdict") else { panic!("{reply:?}") };
    let numbers = ["permits", "remaining"].map(|name| reply.named(name).int());
    (String::from_utf8(verdict.clone()).unwrap(), numbers)
}

/// Returns that of each item of a reply about several.
fn items(reply: &Reply) -> Vec<(String, [i64; 2])> {
    let Reply::List(items) = reply.named("items") else { panic!("{reply:?}") };
    items.iter().map(reported).collect()
}

fn of(verdict: &str, permits: i64, remaining: i64) -> (String, [i64; 2]) {
    (verdict.to_owned(), [permits, remaining])
}

const OWN: [&str; 8] = [
    "rule",
    "verdict",
    "permits",
    "limit",
    "remaining",
    "debt",
    "retry_after_ms",
    "reset_after_ms",
];

/// The forms without an id go on, and count each time. What is no id is a rule.
#[test]
fn a_charge_has_an_id_or_none() {
    let running = model();
    for (version, mut client) in clients(&running) {
        let (user, id) = (format!("u{version}"), format!("{version}{}", &ID[1..]));
        let charged = client.ask(&format!("RATEGATE.CHARGE {id}0 tokens 5 {user} m"));
        assert!(matches!(charged, Reply::Error(_)), "33 digits are a rule: {charged:?}");
        let charged = client.ask(&format!("RATEGATE.CHARGE {id} tokens 700 {user} m"));
        assert_eq!((reported(&charged), names(&charged).len()), (of("charged", 700, 300), 10));
        for (form, left) in [("", 200), ("- ", 100)] {
            let plain = client.ask(&format!("RATEGATE.CHARGE {form}tokens 100 {user} m"));
            assert_eq!((reported(&plain), names(&plain).len()), (of("charged", 100, left), 9));
        }
        let none = client.ask("RATEGATE.CHARGE - none 100 x m");
        assert!(matches!(none, Reply::Error(_)), "{none:?}");
    }
}

/// A new id has 32 digits, in either case.
#[test]
fn an_id_is_drawn() {
    let running = model();
    for (version, mut client) in clients(&running) {
        let both = format!("ITEMS 2 calls 1 1 u{version} tokens 800 2 u{version} m");
        let held = client.ask(&format!("rategate.reserve * - {both}"));
        assert_eq!(items(&held), [of("granted", 1, 1), of("granted", 800, 200)]);
        let ends = held.named("ends_after_ms").int();
        assert!((50_000..=60_000).contains(&ends), "{ends}: the rules' own time");
        let id = id_of(&held);
        assert!(id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
        let again = client.ask(&format!("RATEGATE.RESERVE {} 9 {both}", id.to_uppercase()));
        assert_eq!((id_of(&again), items(&again)), (id, items(&held)));
        assert!(again.named("ends_after_ms").int() <= ends, "nor does it last longer");
    }
}

#[test]
fn the_answer_has_all_its_names_in_their_order() {
    let running = model();
    for (version, mut client) in clients(&running) {
        let held = client.ask("RATEGATE.RESERVE * 60000 tokens 10 ann m");
        let (rule, own) = OWN.split_first().unwrap();
        let short = [&[*rule, "allowed"], own, &["id", "ends_after_ms", "repeated"]].concat();
        assert_eq!(names(&held), short.iter().map(|name| text(name)).collect::<Vec<_>>());
        assert_eq!(held.named("allowed"), &truth(version, true));
        assert_eq!(held.named("repeated"), &truth(version, false));
        let listed = client.ask("RATEGATE.RESERVE * 60000 ITEMS 1 tokens 10 2 ann m");
        let long = ["allowed", "id", "ends_after_ms", "repeated", "items"];
        assert_eq!(names(&listed), long.map(text));
        let Reply::List(items) = listed.named("items") else { panic!("{listed:?}") };
        assert_eq!(names(&items[0]), OWN.map(text));
        assert_eq!(items[0].named("rule"), &text("tokens"));
    }
}

#[test]
fn what_counts_nothing_is_granted_and_holds_nothing() {
    let running = model();
    let mut client = Client::to(&running);
    let words = "RATEGATE.RESERVE * 60000 ITEMS 2 open 5 0 shadow 6 0";
    let Reply::List(held) = client.ask(words).named("items").clone() else { panic!("a list") };
    for (item, verdict) in held.iter().zip(["unlimited", "shadowed"]) {
        let actual = (item.named("verdict"), item.named("permits"));
        assert_eq!(actual, (&text(verdict), &Reply::Int(0)));
    }
}

/// The word and a number are the form for several items. Without a number the word is a rule.
#[test]
fn a_rule_may_have_the_name_of_the_form() {
    let running = model();
    let mut client = Client::to(&running);
    let held = client.ask("RATEGATE.RESERVE * 60000 Items 2 items 4 1 8 ITEMS 3 0");
    assert_eq!(items(&held), [of("granted", 4, 5), of("granted", 3, 4)]);
    let cancel = format!("RATEGATE.CANCEL {} items 2 items 1 8 ITEMS 0", id_of(&held));
    assert_eq!(items(&client.ask(&cancel)), [of("cancelled", 4, 9), of("cancelled", 3, 7)]);
    let held = client.ask("RATEGATE.RESERVE * 60000 ITEMS 1 ITEMS 3 0");
    let short = client.ask(&format!("RATEGATE.CANCEL {} ITEMS", id_of(&held)));
    assert_eq!(reported(&short), of("cancelled", 3, 7));
}

/// As many items as are accepted, and one more.
#[test]
fn items_are_64_at_most() {
    let running = model();
    let mut client = Client::to(&running);
    let list = |number: usize| {
        let items: Vec<String> = (0..number).map(|n| format!("calls 2 1 user{n}")).collect();
        format!("RATEGATE.RESERVE * 60000 ITEMS {number} {}", items.join(" "))
    };
    assert_eq!(items(&client.ask(&list(64))), vec![of("granted", 2, 0); 64]);
    assert_eq!(
        client.ask(&list(65)).error(),
        "ERR the number of items is '65'; write a whole number from 1 to 64"
    );
}

#[test]
fn what_is_no_reservation_says_what_would_be_and_takes_nothing() {
    let running = model();
    let mut client = Client::to(&running);
    assert!(is_true(
        client.ask(&format!("RATEGATE.RESERVE {ID} 60000 tokens 7 ann m")).named("allowed")
    ));
    let count = |name: &str| format!("ERR wrong number of arguments for 'rategate.{name}' command");
    let (new_id, id) = (
        "ERR the id is 'x'; a reservation's id is 32 hexadecimal digits, or * to draw a new one",
        "ERR the id is '*'; a reservation's id is 32 hexadecimal digits",
    );
    let ttl = "ERR ttl_ms is '";
    let time = "ERR the time of a reservation of rule `tokens` is ";
    let number = "ERR permits is not an integer or out of range: '";
    let others = "ERR the id is of another operation, other items or other permits; send what it \
                  was first sent with, in the same order, or draw a new one";
    let counts = |word: &str| {
        format!("ERR the number of items is '{word}'; write a whole number from 1 to 64")
    };
    let in_item = |at: usize, error: &str| format!("ERR item {at}, counted from 0: {error}");
    let item = |at: usize, sent: &str| {
        let form = "`rule permits n_values value ...`, as many values as n_values says";
        in_item(at, &format!("it is {sent}; write {form}"))
    };
    let bare = |at: usize, sent: &str| {
        let form = "`rule n_values value ...`, as many values as n_values says";
        in_item(at, &format!("it is {sent}; write {form}"))
    };
    let long_item = format!("RESERVE * 9 ITEMS 1 {} 1 9 a b c", "r".repeat(100));
    let table: &[(&str, &str)] = &[
        ("RESERVE", &count("reserve")),
        ("RESERVE * 9 tokens", &count("reserve")),
        // Under an id in use a fault in an item is the cause.
        ("RESERVE {ID} 60000 tokenz 7 ann m", "ERR there is no rule `tokenz`"),
        ("RESERVE {ID} 60000 tokens 7 ann", "ERR rule `tokens` needs 2 values"),
        ("RESERVE x 9 tokens 1 ann m", new_id),
        ("RESERVE 0 9 tokens 1 ann m", "ERR the id is '0'; a reservation's id is 32"),
        ("RESERVE * x tokens 1 ann m", ttl),
        ("RESERVE * -1 tokens 1 ann m", ttl),
        ("RESERVE * 1.5 tokens 1 ann m", ttl),
        ("RESERVE * 0 tokens 1 ann m", time),
        ("RESERVE * 600001 tokens 1 ann m", time),
        ("RESERVE * 9 tokens -1 ann m", number),
        ("RESERVE * 9 tokens many ann m", number),
        ("RESERVE * 9 tokens 1..5 ann m", number),
        ("RESERVE * 9 tokens 18446744073709551616 ann m", number),
        ("COMMIT {ID} tokens 1..5 ann m", number),
        ("RESERVE * 9 tokens 1 ann", "ERR rule `tokens` needs 2 values, and 1 is given"),
        ("RESERVE * 9 none 1", "ERR there is no rule `none`"),
        ("RESERVE * 9 ITEMS 0", &counts("0")),
        ("RESERVE * 9 ITEMS -1", &counts("-1")),
        ("RESERVE * 9 ITEMS 65", &counts("65")),
        ("RESERVE * 9 ITEMS 99999999999999999", &counts("99999999999999999")),
        ("RESERVE * 9 ITEMS two", &counts("two")),
        ("COMMIT {ID} ITEMS x tokens 1 2 ann m", &counts("x")),
        // For a cancellation any word is a value of a rule of that name.
        ("CANCEL {ID} items x", others),
        ("RESERVE * 9 ITEMS 2 calls 1 1 ann", &item(1, "missing")),
        ("RESERVE * 9 ITEMS 1 calls", &item(0, "'calls'")),
        ("RESERVE * 9 ITEMS 1 calls 1", &item(0, "'calls' '1'")),
        ("RESERVE * 9 ITEMS 1 calls 1 ann", &item(0, "'calls' '1' 'ann'")),
        ("RESERVE * 9 ITEMS 1 calls 1 -1", &item(0, "'calls' '1' '-1'")),
        ("RESERVE * 9 ITEMS 1 calls 1 2 ann", &item(0, "'calls' '1' '2' 'ann'")),
        (
            "RESERVE * 9 ITEMS 1 calls 1 18446744073709551615 ann",
            &item(0, "'calls' '1' '18446744073709551615' 'ann'"),
        ),
        (
            "RESERVE * 9 ITEMS 2 calls 1 1 ann tokens 1 x ann m",
            &item(1, "'tokens' '1' 'x' 'ann' and 1 word more"),
        ),
        (&*long_item, &item(0, &format!("'{}...' '1' '9' 'a' and 2 words more", "r".repeat(64)))),
        (
            "RESERVE * 9 ITEMS 1 calls one 1 ann",
            &in_item(0, "permits is not an integer or out of range: 'one'; write a whole number"),
        ),
        (
            "RESERVE * 9 ITEMS 2 calls 1 1 ann ovens 0 0",
            &in_item(1, "rule `ovens` holds at least 1 permit"),
        ),
        ("RESERVE * 9 ovens 0", "ERR rule `ovens` holds at least 1 permit"),
        (
            "COMMIT {ID} ITEMS 1 tokens 1..5 2 ann m",
            &in_item(0, "permits is not an integer or out of range: '1..5'; write a whole number"),
        ),
        (
            "RESERVE * 9 ITEMS 1 calls 1 1 ann tokens 1",
            "ERR words behind the last item: 'tokens' '1'; none are accepted",
        ),
        (
            "RESERVE * 9 ITEMS 2 calls 1 0 tokens 1 2 ann m",
            "ERR rule `calls` needs 1 value, and 0 are given",
        ),
        ("RESERVE * 9 ITEMS 2 calls 1 1 ann none 1 0", "ERR there is no rule `none`"),
        (
            "RESERVE * 9 ITEMS 3 calls 1 1 ann tokens 1 2 ann m calls 1 1 ann",
            "ERR items 0 and 2 name the same counter",
        ),
        ("RESERVE {ID} 60000 tokens 8 ann m", others),
        ("RESERVE {ID} 60000 calls 7 ann", others),
        ("COMMIT {ID} tokens", &count("commit")),
        ("COMMIT * tokens 1 ann m", id),
        ("COMMIT {ID} tokens 1 bob m", others),
        ("COMMIT {ID} tokens -1 ann m", number),
        (
            "COMMIT {ID} ITEMS 2 tokens 1 2 ann m calls 1 1 ann",
            "ERR the id is of 1 item, and 2 are given; send what it was first sent with",
        ),
        ("COMMIT {ID} ITEMS 0", &counts("0")),
        ("COMMIT {ID} ITEMS 1 tokens 2 ann m", &item(0, "'tokens' '2' 'ann' 'm'")),
        ("CANCEL {ID}", &count("cancel")),
        ("CANCEL * tokens ann m", id),
        ("CANCEL {ID} calls ann", others),
        ("CANCEL {ID} ITEMS 1 tokens", &bare(0, "'tokens'")),
        ("CANCEL {ID} ITEMS 2 tokens 2 ann m", &bare(1, "missing")),
        (
            "CANCEL {ID} ITEMS 1 tokens 2 ann m m",
            "ERR words behind the last item: 'm'; none are accepted",
        ),
    ];
    for (words, error) in table {
        let words = format!("RATEGATE.{}", words.replace("{ID}", ID));
        let reply = client.ask(&words);
        assert!(reply.error().starts_with(error), "{words}: {reply:?}");
    }
    // Where, what was sent, and what would be right.
    let permits = "ERR permits is not an integer or out of range";
    let whole = "write a whole number from 0 to 18446744073709551615";
    let long = "7".repeat(100);
    for (words, error) in [
        ("RESERVE * 9 tokens -5 ann m", format!("{permits}: '-5'; {whole}")),
        ("RESERVE * 9 tokens NaN ann m", format!("{permits}: 'NaN'; {whole}")),
        ("COMMIT {ID} tokens 1..5 ann m", format!("{permits}: '1..5'; {whole}")),
        ("CHARGE tokens -5 ann m", format!("{permits}: '-5'; {whole}")),
        (
            &*format!("CHARGE tokens {long} ann m"),
            format!("{permits}: '{}...'; {whole}", &long[..64]),
        ),
        (
            "RESERVE * 30s tokens 1 ann m",
            "ERR ttl_ms is '30s'; write a number of milliseconds from 1 on, or - for the rules' own"
                .to_owned(),
        ),
        ("RESERVE * 0 tokens 1 ann m", format!("{time}0ns; it is longer than 0, and 600s at most")),
        (
            "COMMIT {ID} tokens",
            format!("{}; write RATEGATE.COMMIT id rule permits [value ...]", count("commit")),
        ),
        (
            "RESERVE *",
            format!(
                "{}; write RATEGATE.RESERVE id|* ttl_ms|- rule permits [value ...]",
                count("reserve")
            ),
        ),
        (
            "COMMIT {ID} none 7 ann m",
            "ERR there is no rule `none`; known: `calls`, `tokens`, `shadow`, `open`, `ovens` and \
             others"
                .to_owned(),
        ),
        ("COMMIT 00000000000000000000000000000000 none 7", "ERR there is no rule `none`".to_owned()),
        (
            "COMMIT 00000000000000000000000000000000 tokens 7 ann",
            "ERR rule `tokens` needs 2 values, and 1 is given".to_owned(),
        ),
    ] {
        let words = format!("RATEGATE.{}", words.replace("{ID}", ID));
        let reply = client.ask(&words);
        assert!(reply.error().starts_with(&error), "{words}: {reply:?}");
    }
    let once = client.ask(&format!("RATEGATE.REFUND {ID} ovens 1"));
    assert!(once.error().starts_with("ERR rule `ovens` counts permits in flight"), "{once:?}");
    client.send(&command(&[&b"RATEGATE.CANCEL"[..], ID.as_bytes(), b"\xff"]));
    assert_eq!(client.read().error(), "ERR a rule's name is text in UTF-8");
    client.send(&command(&[&b"RATEGATE.CANCEL"[..], ID.as_bytes(), b"ITEMS", b"1", b"\xff", b"0"]));
    assert_eq!(client.read().error(), in_item(0, "a rule's name is text in UTF-8"));
    assert_eq!(reported(&client.ask("RATEGATE.PEEK tokens 1 ann m")), of("granted", 0, 993));
    assert_eq!(reported(&client.ask("RATEGATE.PEEK calls 1 ann")), of("granted", 0, 2));
    let cancel = client.ask(&format!("RATEGATE.CANCEL {ID} tokens ann m"));
    assert_eq!(reported(&cancel), of("cancelled", 7, 1000));
}

#[test]
fn the_commands_are_listed() {
    let running = model();
    let mut client = Client::to(&running);
    let about = client.ask("COMMAND INFO rategate.reserve rategate.commit rategate.cancel");
    let Reply::List(about) = about else { panic!("a list") };
    for (about, (name, words)) in
        about.iter().zip([("reserve", -5), ("commit", -4), ("cancel", -3)])
    {
        let Reply::List(about) = about else { panic!("{about:?}") };
        assert_eq!(about[..2], [text(&format!("rategate.{name}")), Reply::Int(words)]);
    }
}
