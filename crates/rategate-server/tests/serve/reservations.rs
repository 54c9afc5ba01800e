//! Answers about reservations over HTTP and RESP, and what the metrics count of them.

use crate::serve::clients::{Service, until};

const RULES: &str = r#"
[[rule]]
name = "tokens"
match = ["user"]
limit = "1000/h"

[[rule]]
name = "slots"
match = ["user"]
limit = 3
algorithm = "concurrency"

[[rule]]
name = "seats"
match = ["user"]
limit = 3
algorithm = "concurrency"

[[rule]]
name = "shadow"
match = ["user"]
limit = 1
algorithm = "concurrency"
enforce = "shadow"

[[rule]]
name = "words"
match = ["user"]
# A permit comes back in 86 s, so that tests see none, however slow they are.
limit = "1000/d"
weights = { input = 1, output = 6 }
"#;

fn outcomes(service: &Service, rule: &str, outcome: &str) -> u64 {
    let name = format!("rategate_reservations_total{{rule=\"{rule}\",outcome=\"{outcome}\"}}");
    service.metric(&name).map_or(0, |count| count.parse().unwrap())
}

/// A look at permits in flight, and a request for none, say how many are left.
#[test]
fn a_request_for_no_permits_in_flight_says_how_many_are_left() {
    let service = Service::of(RULES);
    for (held, left) in [("", 3), ("{verb: reserve, rule: slots, key: ann, permits: 2}", 1)] {
        service.play(&format!(
            "{held}
            {{verb: peek, rule: slots, key: ann, permits: 0}}
                => [{{verdict: granted, remaining: {left}}}]
            {{rule: slots, key: ann, permits: 0}} => [{{verdict: granted, remaining: {left}}}]"
        ));
    }
}

/// Tokens and the slots beside them have the verdict of the end.
#[test]
fn a_reservation_that_has_ended_says_how() {
    let service = Service::of(RULES);
    let both = "items: [{rule: tokens, key: ann, permits: 5}, {rule: slots, key: ann}]";
    let story = "
        {verb: reserve, id: $1, B} => {allowed: true}
        {verb: commit, id: $1, B}
        {verb: reserve, id: $1, B} => {allowed: false, repeated: true}
            & [{verdict: committed}, {verdict: committed}]
        RATEGATE.RESERVE $1 60000 ITEMS 2 tokens 5 1 ann slots 1 1 ann
            => {items: [{verdict: committed}, {verdict: committed}]}
        {verb: reserve, id: $2, B} => {allowed: true}
        {verb: cancel, id: $2, B}
        {verb: reserve, id: $2, B} => {allowed: false, repeated: true}
            & [{verdict: cancelled}, {verdict: cancelled}]
        {verb: reserve, id: $3, ttl: 1ms, B} => {allowed: true}
    ";
    service.play(&story.replace('B', both));
    std::thread::sleep(std::time::Duration::from_millis(5));
    let late = "{verb: reserve, id: $3, ttl: 1ms, B} => {allowed: false, repeated: true}
        & [{verdict: late}, {verdict: late}]";
    service.play(&late.replace('B', both));
}

/// A rule that is not enforced changes no answer: its reservation is known, and decided once.
#[test]
fn a_shadow_rule_of_permits_in_flight_changes_no_answer() {
    let service = Service::of(RULES);
    let denied = "rategate_decisions_total{rule=\"shadow\",outcome=\"shadow_denied\"}";
    let (tokens, shadow) = ("{rule: tokens, key: ann, permits: 5}", "{rule: shadow, key: ann}");
    for (number, before) in [("2", 0), ("3", 1)] {
        let alone = number == "3";
        let (items, first) =
            if alone { (shadow.to_owned(), "") } else { (format!("{tokens}, {shadow}"), "{}, ") };
        let committed = if alone { "" } else { "{verdict: committed}, " };
        let reserve = format!("{{verb: reserve, id: ${number}, items: [{items}]}}");
        let commit = format!("{{verb: commit, id: ${number}, items: [{items}]}}");
        let held = format!("& [{first}{{shadow: true, held: 0}}]");
        service.play(&format!(
            "
            {{verb: reserve, id: ${number}0, items: [{shadow}]}} => {{allowed: true}}
            {denied} => {before}
            {reserve} => {{allowed: true, repeated: false}} {held}
            {reserve} => {{allowed: true, repeated: true}} {held}
            // What was not held at first is not held when it would fit.
            {{verb: commit, id: ${number}0, items: [{shadow}]}}
            {reserve} => {{allowed: true, repeated: true}} {held}
            {denied} => {}
            {commit} => {{allowed: true, repeated: false}} & [{committed}{{verdict: committed}}]
            {commit} => {{allowed: true, repeated: true}} & [{committed}{{verdict: committed}}]
            // It is full again for the next.
            {{verb: reserve, id: ${number}1, items: [{shadow}]}} => {{allowed: true}}
            {reserve} => {{allowed: false, repeated: true}}
            {{verb: commit, id: ${number}1, items: [{shadow}]}}
            ",
            before + 1
        ));
    }
}

/// An id is of its items, also where permits in flight of this process are all of them.
#[test]
fn an_id_of_other_permits_in_flight_is_a_conflict() {
    Service::of(RULES).play(
        "
        {verb: reserve, id: $1, items: [{rule: slots, key: ann}]} => {allowed: true}
        {verb: reserve, id: $1, items: [{rule: seats, key: ann}]} => 409 & {code: other_items}
        {verb: reserve, id: $1, items: [{rule: slots, key: ann}, {rule: seats, key: ann}]}
            => 409 & ~ the id is of 1 item, and 2 are given; send what it was
        {verb: reserve, id: $1, items: [{rule: slots, key: ann, permits: 2}]} => 409
        {verb: commit, id: $1, items: [{rule: seats, key: ann}]} => 409 & {code: other_items}
        {verb: cancel, id: $1, items: [{rule: slots, key: bob}]} => 409 & {code: other_items}
        // Nothing was held.
        {verb: peek, rule: seats, key: ann} => [{remaining: 3}]
        RATEGATE.COMMIT $1 seats 1 ann => -ERR the id is of another operation...
        {verb: commit, id: $1, items: [{rule: slots, key: ann}]} => [{verdict: committed}]
        // Of an operation under the id of what has ended, too.
        {verb: commit, id: $1, items: [{rule: seats, key: ann}]} => 409
        ",
    );
}

/// An error of a usage names the item that is at fault.
#[test]
fn an_invalid_usage_is_named_at_its_item() {
    let service = Service::of(RULES);
    service.play(
        "
        {verb: reserve, id: $1, rule: words, key: ann, permits: 60} => {allowed: true}
        {verb: commit, id: $1, rule: words, key: ann, usage: null}
            => 400 & {code: invalid_request, errors: [{pointer: /usage}]}
            & ~ invalid type: null, expected an object like
        // It is still held.
        {rule: words, key: ann, permits: 0} => [{remaining: 940}]
        {verb: charge, items: [{rule: words, key: ann, usage: null}]}
            => 400 & {errors: [{pointer: /items/0/usage}]}
        ",
    );
    for verb in ["charge", "reserve", "commit, id: $7", "take"] {
        service.play(&format!(
            "{{verb: {verb}, items: [{{rule: tokens, key: ann}},
                .. {{rule: words, key: ann, usage: {{input: 5}}}},
                .. {{rule: words, key: ann, usage: {{inptu: 5}}}}]}}
                => 400 & {{code: invalid_usage, errors: [{{pointer: /items/2/usage}}]}}"
        ));
    }
}

/// In each process and each rule, what was held has ended in one of three ways, or is held still.
/// An end by time is counted, also of permits in flight, and of limits of the call in one row.
#[test]
fn what_was_held_is_what_has_ended_and_what_is_open() {
    let folder = tempfile::tempdir().unwrap();
    let rules = format!("[snapshot]\npath = {:?}\n{RULES}", folder.path().join("counters"));
    let mut service = Service::of(&rules);
    let operate = |service: &Service, verb: &str, number: u8| {
        service.play(&format!(
            "{{verb: {verb}, id: ${number}, items: [{{rule: tokens, key: ann, permits: 7}},
                .. {{rule: slots, key: ann}}, {{limit: 100/h, key: ann, permits: 5}}]}}"
        ));
    };
    let names = ["tokens", "slots", "*inline"];
    let count =
        |service: &Service, outcome: &str| names.map(|rule| outcomes(service, rule, outcome));
    // What has ended, of three kinds, and what is open.
    let adds_up = |service: &Service, ended: [u64; 3], open: u64| {
        let all = ["committed", "cancelled", "expired"].map(|outcome| count(service, outcome));
        assert_eq!(all, ended.map(|count| [count; 3]));
        assert_eq!(count(service, "held"), [ended.iter().sum::<u64>() + open; 3]);
        let held = |rule: &str| {
            let name = format!("rategate_held_permits{{rule=\"{rule}\"}}");
            service.metric(&name).map_or(0, |held| held.parse::<u64>().unwrap())
        };
        assert_eq!(["tokens", "*inline"].map(held), [7 * open, 5 * open]);
        service.play(&format!("rategate_reservations{{state=\"open\"}} => {open}"));
    };
    for number in 1..=2 {
        operate(&service, "reserve, ttl: 60s", number);
    }
    operate(&service, "commit", 1);
    operate(&service, "cancel", 2);
    operate(&service, "reserve, ttl: 1ms", 3);
    until("an end is noticed", || count(&service, "expired") == [1; 3]);
    operate(&service, "reserve, ttl: 60s", 4);
    adds_up(&service, [1, 1, 1], 1);
    operate(&service, "reserve, ttl: 1ms", 7);
    until("an end is noticed", || count(&service, "expired") == [2; 3]);
    operate(&service, "commit", 7);
    let seen = (count(&service, "expired"), count(&service, "late"));
    assert_eq!(seen, ([2; 3], [1; 3]), "not twice");
    service.play("{verb: reserve, limit: 100/h, key: ann, permits: 101} => {allowed: false}");
    assert_eq!(count(&service, "denied"), [0, 0, 1]);
    // What is open ends with the process, and what it held counts as used.
    service.restart();
    adds_up(&service, [0, 0, 0], 0);
    operate(&service, "commit", 4);
    adds_up(&service, [0, 0, 0], 0);
    operate(&service, "reserve, ttl: 60s", 6);
    operate(&service, "cancel", 6);
    adds_up(&service, [0, 1, 0], 0);
}
