//! Reservations over connections that come and go.

use rategate_server::serve::Running;

use super::client::{Client, Reply, command, serve_text};

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
    serve_text(rules)
}

/// Two clients of the same service, by the version of their protocol.
fn clients(running: &Running) -> [(i64, Client); 2] {
    [2, 3].map(|version| {
        let mut client = Client::to(running);
        client.ask(&format!("HELLO {version}"));
        (version, client)
    })
}

/// Returns the names of a map, in their order.
fn names(reply: &Reply) -> String {
    let names: Vec<_> = match reply {
        Reply::Map(pairs) => pairs.iter().map(|(name, _)| name).collect(),
        Reply::List(all) => all.iter().step_by(2).collect(),
        other => panic!("no map: {other:?}"),
    };
    let text = |name: &&Reply| match name {
        Reply::Bulk(name) => String::from_utf8(name.clone()).unwrap(),
        other => panic!("no name: {other:?}"),
    };
    names.iter().map(text).collect::<Vec<_>>().join(" ")
}

fn id_of(reply: &Reply) -> String {
    match reply.named("id") {
        Reply::Bulk(id) => String::from_utf8(id.clone()).unwrap(),
        other => panic!("no id: {other:?}"),
    }
}

/// A new id has 32 digits, in either case, and the answer has all its names in their order.
#[test]
fn an_id_is_drawn() {
    const OWN: &str = "verdict permits limit remaining debt retry_after_ms reset_after_ms";
    let running = model();
    for (version, mut client) in clients(&running) {
        let both = format!("ITEMS 2 calls 1 1 u{version} tokens 800 2 u{version} m");
        let held = client.ask(&format!("rategate.reserve * - {both}"));
        let ends = held.named("ends_after_ms").int();
        assert!((50_000..=60_000).contains(&ends), "{ends}: the rules' own time");
        let id = id_of(&held);
        assert!(id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
        let again = format!("RATEGATE.RESERVE {} 9 {both}", id.to_uppercase());
        let items =
            "[{permits: 1, remaining: 1}, {verdict: granted, permits: 800, remaining: 200}]";
        client.check(&again, &format!("{{id: {id:?}, repeated: 1, items: {items}}}"));
        let again = client.ask(&again);
        assert!(again.named("ends_after_ms").int() <= ends, "nor does it last longer");
        assert_eq!(names(&held), "allowed id ends_after_ms repeated items");
        let Reply::List(items) = held.named("items") else { panic!("{held:?}") };
        assert_eq!(names(&items[0]), format!("rule {OWN}"));
        let held = client.ask("RATEGATE.RESERVE * 60000 tokens 10 ann m");
        assert_eq!(names(&held), format!("rule allowed {OWN} id ends_after_ms repeated"));
        let is_third = matches!(held.named("repeated"), Reply::Truth(false));
        assert_eq!(is_third, version == 3, "{held:?}");
    }
}

#[test]
fn reservations_are_of_one_rule_or_of_items() {
    let running = model();
    let mut client = Client::to(&running);
    client.play(
        "
        // The forms without an id count each time. What is no id, as 33 digits, is a rule.
        RATEGATE.CHARGE $10 tokens 700 eve m
            => {verdict: charged, permits: 700, remaining: 300, repeated: 0}
        RATEGATE.CHARGE 0$10 tokens 5 eve m => -ERR...
        RATEGATE.CHARGE tokens 100 eve m => {verdict: charged, permits: 100, remaining: 200}
        RATEGATE.CHARGE - tokens 100 eve m => {verdict: charged, permits: 100, remaining: 100}
        RATEGATE.CHARGE - none 100 x m => -ERR there is no rule...
        // What counts nothing is granted, and holds nothing.
        RATEGATE.RESERVE * 60000 ITEMS 2 open 5 0 shadow 6 0
            => {items: [{verdict: unlimited, permits: 0}, {verdict: shadowed, permits: 0}]}
        // The word and a number are the form for several items. Without one the word is a rule.
        RATEGATE.RESERVE $1 60000 Items 2 items 4 1 8 ITEMS 3 0
            => {items: [{verdict: granted, permits: 4, remaining: 5}, {permits: 3, remaining: 4}]}
        RATEGATE.CANCEL $1 items 2 items 1 8 ITEMS 0
            => {items: [{verdict: cancelled, permits: 4, remaining: 9}, {remaining: 7}]}
        RATEGATE.RESERVE $2 60000 ITEMS 1 ITEMS 3 0 => {items: [{permits: 3}]}
        RATEGATE.CANCEL $2 ITEMS => {verdict: cancelled, permits: 3, remaining: 7}
        ",
    );
    // As many items as are accepted, and one more.
    let list = |number: usize| {
        let items: Vec<String> = (0..number).map(|n| format!("calls 2 1 user{n}")).collect();
        format!("RATEGATE.RESERVE * 60000 ITEMS {number} {}", items.join(" "))
    };
    let granted = vec!["{verdict: granted, permits: 2, remaining: 0}"; 64].join(",");
    client.check(&list(64), &format!("{{items: [{granted}]}}"));
    let counts = "-ERR the number of items is '65'; write a whole number from 1 to 64";
    client.check(&list(65), counts);
}

/// Where the fault is, what was sent, and what would be right.
#[test]
fn what_is_no_reservation_says_what_would_be_and_takes_nothing() {
    let running = model();
    let mut client = Client::to(&running);
    client.check("RATEGATE.RESERVE ffffffffffffffffffffffffffffffff 60000 tokens 7 ann m", "");
    let story = "
        RESERVE => {words 'rategate.reserve'}...
        RESERVE * => {words 'rategate.reserve'} command; write RATEGATE.RESERVE id|* ttl_ms|- rule...
        RESERVE * 9 tokens => {words 'rategate.reserve'}...
        // Under an id in use a fault in an item is the cause.
        RESERVE $f 60000 tokenz 7 ann m => -ERR there is no rule `tokenz`...
        RESERVE $f 60000 tokens 7 ann => -ERR rule `tokens` needs 2 values...
        RESERVE x 9 tokens 1 ann m
            => -ERR the id is 'x'; a reservation's id is 32 hexadecimal digits, or * to draw a new one
        RESERVE 0 9 tokens 1 ann m => -ERR the id is '0'; a reservation's id is 32...
        RESERVE * x tokens 1 ann m => -ERR ttl_ms is 'x'...
        RESERVE * -1 tokens 1 ann m => -ERR ttl_ms is '-1'...
        RESERVE * 1.5 tokens 1 ann m => -ERR ttl_ms is '1.5'...
        RESERVE * 30s tokens 1 ann m => -ERR ttl_ms is '30s'; write a number of milliseconds from 1
            .. on, or - for the rules' own
        RESERVE * 0 tokens 1 ann m => -ERR the time of a reservation of rule `tokens` is 0ns; it is
            .. longer than 0, and 600s at most
        RESERVE * 600001 tokens 1 ann m => -ERR the time of a reservation of rule `tokens` is...
        RESERVE * 9 tokens -5 ann m => {number '-5'; write a whole number...
        RESERVE * 9 tokens many ann m => {number 'many'; write a whole number...
        RESERVE * 9 tokens 1..5 ann m => {number '1..5'; write a whole number...
        RESERVE * 9 tokens 18446744073709551616 ann m => {number '18446744073709551616'...
        RESERVE * 9 tokens NaN ann m => {number 'NaN'; write a whole number...
        RESERVE * 9 tokens 1 ann => -ERR rule `tokens` needs 2 values, and 1 is given
        RESERVE * 9 none 1 => -ERR there is no rule `none`...
        RESERVE * 9 ITEMS 0 => {count} '0'; write a whole number from 1 to 64
        RESERVE * 9 ITEMS -1 => {count} '-1'; write a whole number from 1 to 64
        RESERVE * 9 ITEMS 65 => {count} '65'; write a whole number from 1 to 64
        RESERVE * 9 ITEMS 99999999999999999 => {count} '99999999999999999'; write a whole number...
        RESERVE * 9 ITEMS two => {count} 'two'; write a whole number from 1 to 64
        RESERVE * 9 ITEMS 2 calls 1 1 ann => {item 1} it is missing{form}
        RESERVE * 9 ITEMS 1 calls => {item 0} it is 'calls'{form}
        RESERVE * 9 ITEMS 1 calls 1 => {item 0} it is 'calls' '1'{form}
        RESERVE * 9 ITEMS 1 calls 1 ann => {item 0} it is 'calls' '1' 'ann'{form}
        RESERVE * 9 ITEMS 1 calls 1 -1 => {item 0} it is 'calls' '1' '-1'{form}
        RESERVE * 9 ITEMS 1 calls 1 2 ann => {item 0} it is 'calls' '1' '2' 'ann'{form}
        RESERVE * 9 ITEMS 1 calls 1 18446744073709551615 ann
            => {item 0} it is 'calls' '1' '18446744073709551615' 'ann'{form}
        RESERVE * 9 ITEMS 2 calls 1 1 ann tokens 1 x ann m
            => {item 1} it is 'tokens' '1' 'x' 'ann' and 1 word more{form}
        RESERVE * 9 ITEMS 1 calls one 1 ann
            => {item 0} permits is not an integer or out of range: 'one'; write a whole number...
        RESERVE * 9 ITEMS 2 calls 1 1 ann ovens 0 0
            => {item 1} rule `ovens` holds at least 1 permit...
        RESERVE * 9 ovens 0 => -ERR rule `ovens` holds at least 1 permit...
        RESERVE * 9 ITEMS 1 calls 1 1 ann tokens 1
            => -ERR words behind the last item: 'tokens' '1'; none are accepted
        RESERVE * 9 ITEMS 2 calls 1 0 tokens 1 2 ann m
            => -ERR rule `calls` needs 1 value, and 0 are given
        RESERVE * 9 ITEMS 2 calls 1 1 ann none 1 0 => -ERR there is no rule `none`...
        RESERVE * 9 ITEMS 3 calls 1 1 ann tokens 1 2 ann m calls 1 1 ann
            => -ERR items 0 and 2 name the same counter...
        RESERVE $f 60000 tokens 8 ann m => {others}
        RESERVE $f 60000 calls 7 ann => {others}
        COMMIT $f tokens => {words 'rategate.commit'} command; write RATEGATE.COMMIT id rule permits
            .. [value ...]...
        COMMIT * tokens 1 ann m => -ERR the id is '*'; a reservation's id is 32 hexadecimal digits
        COMMIT $f tokens 1 bob m => {others}
        COMMIT $f tokens -1 ann m => {number '-1'...
        COMMIT $f none 7 ann m => -ERR there is no rule `none`; known: `calls`, `tokens`, `shadow`,
            .. `open`, `ovens` and others
        COMMIT $0 none 7 => -ERR there is no rule `none`...
        COMMIT $0 tokens 7 ann => -ERR rule `tokens` needs 2 values, and 1 is given
        COMMIT $f ITEMS 2 tokens 1 2 ann m calls 1 1 ann
            => -ERR the id is of 1 item, and 2 are given; send what it was first sent with...
        COMMIT $f ITEMS x tokens 1 2 ann m => {count} 'x'; write a whole number from 1 to 64
        COMMIT $f ITEMS 0 => {count} '0'; write a whole number from 1 to 64
        COMMIT $f ITEMS 1 tokens 2 ann m => {item 0} it is 'tokens' '2' 'ann' 'm'{form}
        CANCEL $f => {words 'rategate.cancel'}...
        CANCEL * tokens ann m => -ERR the id is '*'; a reservation's id is 32 hexadecimal digits
        CANCEL $f calls ann => {others}
        // For a cancellation any word is the rule `items`.
        CANCEL $f items x => {others}
        CANCEL $f ITEMS 1 tokens => {item 0} it is 'tokens'; write `rule n_values value ...`...
        CANCEL $f ITEMS 2 tokens 2 ann m => {item 1} it is missing; write `rule n_values...
        CANCEL $f ITEMS 1 tokens 2 ann m m
            => -ERR words behind the last item: 'm'; none are accepted
        REFUND $f ovens 1 => -ERR rule `ovens` counts permits in flight...
        PEEK tokens 1 ann m => {verdict: granted, remaining: 993}
        PEEK calls 1 ann => {verdict: granted, remaining: 2}
        CANCEL $f tokens ann m => {verdict: cancelled, permits: 7, remaining: 1000}
    ";
    let form = "; write `rule permits n_values value ...`, as many values as n_values says";
    let others = "-ERR the id is of another operation, other items or other permits; send what it \
                  was first sent with, in the same order, or draw a new one";
    let words = [
        ("{words ", "-ERR wrong number of arguments for "),
        ("'}", "'"),
        ("{number ", "-ERR permits is not an integer or out of range: "),
        ("{count}", "-ERR the number of items is"),
        ("{item 0}", "-ERR item 0, counted from 0:"),
        ("{item 1}", "-ERR item 1, counted from 0:"),
        ("{form}", form),
        ("{others}", others),
    ];
    let story = words.iter().fold(story.to_owned(), |it, (from, to)| it.replace(from, to));
    crate::lines::each(&story, |words, expected| {
        client.check(&format!("RATEGATE.{words}"), expected);
    });
    // Long words are cut.
    let (item, permits) = ("r".repeat(100), "7".repeat(100));
    let error =
        format!("-ERR item 0, counted from 0: it is '{}...' '1' '9' 'a' and...", &item[..64]);
    client.check(&format!("RATEGATE.RESERVE * 9 ITEMS 1 {item} 1 9 a b c"), &error);
    let error = format!("-ERR permits is not an integer or out of range: '{}...", &permits[..64]);
    client.check(&format!("RATEGATE.CHARGE tokens {permits} ann m"), &error);
    let id = "0".repeat(32);
    for (words, place) in
        [(vec![&b"\xff"[..]], ""), (vec![b"ITEMS", b"1", b"\xff", b"0"], "item 0, ")]
    {
        client.send(&command(&[vec![&b"RATEGATE.CANCEL"[..], id.as_bytes()], words].concat()));
        let reply = client.read();
        let error = reply.error();
        assert!(error.starts_with(&format!("ERR {place}")), "{error}");
        assert!(error.ends_with("a rule's name is text in UTF-8"), "{error}");
    }
}
