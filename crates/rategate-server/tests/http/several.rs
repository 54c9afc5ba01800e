//! Items under several limits, and what was used in place of permits.

use crate::http::common::{Service, with_text};

const RULES: &str = r#"
[[rule]]
name = "calls"
domain = "llm"
match = ["user"]
algorithm = "fixed-window"
weights = { input = 1, cached = "0.1", cache_write = "1.25", output = 6 }
prices.small.input = "0.25/1M"
prices.small.output = "2/1M"
prices."*".input = "3/1M"
limits = [
    { name = "rpm", limit = "5/min", counts = "requests" },
    { name = "tpm", limit = "1000/min" },
    { name = "usd", limit = "5000/d", counts = "money" },
]

[[rule]]
name = "plain"
match = ["user"]
limit = "10/min"

[[rule]]
name = "weighted"
match = ["user"]
limit = "1000/min"
algorithm = "fixed-window"
weights = { a = "0.5", b = 2 }

[[rule]]
name = "fields"
match = ["user"]
algorithm = "fixed-window"
weights = { input = 1 }
limits = [
    { name = "rpm", limit = "9/min", counts = "requests" },
    { name = "tpm", limit = "1000/min" },
]
"#;

fn service() -> Service {
    with_text(RULES)
}

#[test]
fn a_usage_counts_in_each_limit_what_that_counts() {
    service().play(
        "
        // 100 + 6 * 50 tokens, and 25 + 100 millionths of money. The item names the limit with the
        // least left.
        {rule: calls, key: k, usage: {input: 100, output: 50}, model: small}
            => [{rule: calls/rpm, limits: [{dimension: rpm, cost: null, remaining: 4},
            .. {dimension: tpm, cost: 400, remaining: 600},
            .. {dimension: usd, cost: 125, remaining: 4875}]}]
        // A descriptor is the same.
        {domain: llm, descriptor: {user: k}, usage: {input: 100, output: 50}, model: small}
            => [{limits: [{remaining: 3}, {remaining: 200}, {remaining: 4750}]}]
        {rule: calls, key: k, usage: {input: 100, output: 50}, model: small} => {allowed: false}
            & [{dimension: tpm, cost: 400,
            .. limits: [{remaining: 3}, {remaining: 200}, {remaining: 4750}]}]
        // Another model has the prices of all others, in which output has none.
        {rule: calls, key: k, usage: {input: 10}, model: large}
            => [{limits: [{cost: null}, {cost: 10}, {cost: 30}]}]
        // A look at no usage counts nothing, and permits of one limit count as they are.
        {verb: peek, rule: calls, key: k, permits: 0}
            => [{limits: [{remaining: 2}, {remaining: 190}, {remaining: 4720}]}]
        {verb: refund, rule: calls/usd, key: k, permits: 280} => [{remaining: 5000}]
        // Of a single limit the item says the cost: 2.5 is rounded up.
        {rule: weighted, key: k, usage: {a: 1, b: 1}} => [{cost: 3, remaining: 997}]
        {verb: charge, rule: weighted, key: k, usage: {a: 3}} => [{cost: 2, remaining: 995}]
        {verb: refund, rule: weighted, key: k, usage: {a: 3}} => [{cost: 2, remaining: 997}]
        {verb: peek, rule: weighted, key: k, usage: {b: 500}} => [{cost: 1000, remaining: 997}]
        {rule: weighted, key: k, usage: {a: 0}} => [{cost: 0, remaining: 997}]
        {rule: weighted, key: k, permits: 7} => [{remaining: 990, cost: null, limits: null}]
        // The header fields show the strictest limit.
        POST /v1/check {rule: fields, key: ann, permits: 300} & prefer: status=429
            => ratelimit: \"fields/rpm\";r=8;t=60
        ",
    );
}

/// The numbers of an item are of the limit that it names, and each limit has its own.
#[test]
fn a_reservation_is_settled_by_what_was_used() {
    service().play(
        "
        {verb: reserve, id: $1, rule: calls, key: k, usage: {input: 100, output: 100}, model: small}
            => {repeated: false} & [{dimension: rpm, remaining: 4, held: null,
            .. limits: [{held: 1, cost: null, remaining: 4},
            .. {held: 700, cost: 700, remaining: 300}, {held: 225, cost: 225, remaining: 4775}]}]
        {verb: reserve, id: $1, rule: calls, key: k, usage: {input: 100, output: 100}, model: small}
            => {repeated: true}
            & [{limits: [{held: 1, remaining: 4}, {held: 700, remaining: 300}, {held: 225}]}]
        // Another usage is another reservation.
        {verb: reserve, id: $1, rule: calls, key: k, usage: {input: 100, output: 99}, model: small}
            => 409 & {code: other_items}
        // What has no cost settles nothing.
        {verb: commit, id: $1, rule: calls, key: k, usage: {input: 1, typo: 1}, model: small}
            => 400 & {code: invalid_usage}
        {verb: commit, id: $1, rule: calls, key: k, permits: 1} => 400 & {code: invalid_usage}
        {verb: commit, id: $1, rule: calls, key: k, usage: {}}
            => 400 & {errors: [{pointer: /usage}]}
        {verb: commit, id: $1, rule: calls, key: k, usage: {input: 100, output: 20}, model: small}
            => {repeated: false} & [{limits: [{verdict: committed, refunded: null, remaining: 4},
            .. {verdict: committed, cost: 220, refunded: 480, remaining: 780},
            .. {verdict: committed, cost: 65, refunded: 160, remaining: 4935}]}]
        {verb: commit, id: $1, rule: calls, key: k, usage: {input: 100, output: 20}, model: small}
            => {repeated: true} & [{limits: [{}, {cost: 220, refunded: 480}, {refunded: 160}]}]
        // Without a usage, as much as was held.
        {verb: reserve, id: $2, rule: calls, key: k, usage: {input: 80}, model: small}
            => {allowed: true}
        {verb: commit, id: $2, rule: calls, key: k}
            => [{limits: [{remaining: 3}, {remaining: 700}, {remaining: 4915}]}]
        // A late one charges what was held, each limit its own.
        {verb: reserve, id: $3, rule: calls, key: k, usage: {output: 10}, model: small, ttl: 5s}
            => [{limits: [{remaining: 2}, {remaining: 640}, {remaining: 4895}]}]
        pass 6s
        {verb: commit, id: $3, rule: calls, key: k}
            => [{limits: [{verdict: late, charged: 1, remaining: 2},
            .. {verdict: late, charged: 60, remaining: 640}, {charged: 20, remaining: 4895}]}]
        // Nothing is counted of an unknown id, and its usage is judged as that of a known one.
        {verb: commit, id: $9, rule: calls, key: k, usage: {input: 5}, model: small}
            => [{limits: [{verdict: unknown, cost: null}, {cost: null}, {cost: null}]}]
        {verb: commit, id: $9, rule: calls, key: k, usage: {input: 1, typo: 1}, model: small}
            => 400 & {code: invalid_usage}
        {verb: commit, id: $9, rule: calls, key: k, usage: {input: 1}} => 400 & {code: invalid_usage}
        {verb: commit, id: $9, rule: calls, key: k, permits: 1} => 400 & {code: invalid_usage}
        // A rule that does not exist is that, whether the id is known or not.
        {verb: commit, id: $1, rule: cals, key: k} => 404 & {code: no_such_rule}
        {verb: commit, id: $9, rule: cals, key: k} => 404 & {code: no_such_rule}
        // A charge is made once with its usage.
        {verb: charge, once: $c, rule: calls, key: c, usage: {input: 1200}, model: small}
            => {repeated: false}
            & [{limits: [{charged: 1, debt: null}, {charged: 1200, debt: 200}, {charged: 300}]}]
        {verb: charge, once: $c, rule: calls, key: c, usage: {input: 1200}, model: small}
            => {repeated: true}
            & [{limits: [{charged: 1, debt: null}, {charged: 1200, debt: 200}, {charged: 300}]}]
        {verb: charge, once: $c, rule: calls, key: c, usage: {input: 1201}, model: small}
            => 409 & {code: other_items}
        ",
    );
}

/// A charge and a commit say it where the state of their limit counts less than was used, and say
/// the same when they are sent again.
#[test]
fn what_a_state_cannot_count_is_said() {
    let story = "
        {verb: charge, rule: weighted, key: k, permits: 18446744073709546615} => [{saturated: true}]
        {verb: charge, rule: weighted, key: k, permits: 1} => [{saturated: true}]
        {verb: charge, rule: weighted, key: k, permits: 0} => [{saturated: null}]
        {verb: charge, once: $1, rule: plain, key: k, permits: MAX} => [{saturated: true}]
        {verb: charge, once: $1, rule: plain, key: k, permits: MAX} => [{saturated: true}]
        {verb: charge, rule: plain, key: less, permits: 1000} => [{saturated: null}]
        {verb: reserve, id: $6, rule: weighted, key: c, permits: 5} => {allowed: true}
        {verb: reserve, id: $7, rule: weighted, key: l, permits: 5} => {allowed: true}
        {verb: reserve, id: $8, rule: weighted, key: f, permits: 5} => {allowed: true}
        {verb: commit, id: $6, rule: weighted, key: c, permits: MAX}
            => [{verdict: committed, saturated: true}]
        {verb: commit, id: $6, rule: weighted, key: c, permits: MAX}
            => [{verdict: committed, saturated: true}]
        pass 61s
        // Whatever a later one says was used.
        {verb: commit, id: $7, rule: weighted, key: l, permits: MAX}
            => [{verdict: late, saturated: true}]
        {verb: commit, id: $7, rule: weighted, key: l, permits: 1}
            => [{verdict: late, saturated: true}]
        {verb: commit, id: $8, rule: weighted, key: f, permits: 6}
            => [{verdict: late, saturated: null}]
        {verb: commit, id: $8, rule: weighted, key: f, permits: MAX}
            => [{verdict: late, saturated: null}]
    ";
    service().play(&story.replace("MAX", "18446744073709551615"));
}

#[test]
fn faults_of_a_usage_say_where_and_what() {
    service().play(
        "
        {rule: calls, key: k, usage: {inptu: 1}, model: small}
            => 400 & {code: invalid_usage} & ~ inptu
        {rule: calls, key: k, usage: {input: 1}} => 400 & {code: invalid_usage} & ~ send the `model`
        {rule: calls, key: k, permits: 3} => 400 & {code: invalid_usage} & ~ counts money
        {rule: calls, key: k, usage: {output: 1}, model: huge}
            => 400 & {code: invalid_usage} & ~ no weight for
        {rule: calls, key: k, usage: {output: 18446744073709551615}, model: small}
            => 400 & {code: invalid_usage} & ~ 18446744073709551615
        {rule: calls, key: k, usage: {input: 1}, permits: 1}
            => 400 & {code: invalid_request} & ~ not both
        {rule: calls, key: k, model: small}
            => 400 & {code: invalid_request} & ~ belongs to a `usage`
        {rule: calls, key: k, usage: {input: -1}}
            => 400 & {code: invalid_request} & ~ expected a whole number
        {rule: calls, key: k, usage: [1]} => 400 & {code: invalid_request} & ~ input
        {rule: calls, key: k, usage: {}, verb: reset}
            => 400 & {code: invalid_request} & ~ only for
        {limit: 1/s, key: k, usage: {}} => 400 & {code: invalid_request} & ~ weights
        {rule: plain, key: k, usage: {a: 1}} => 400 & {code: invalid_usage} & ~ no weights
        {items: [{rule: plain, key: k}, {rule: weighted, key: k, usage: {c: 1}}]}
            => 400 & {code: invalid_usage} & ~ /items/1/usage
        // Nothing was counted.
        {verb: peek, rule: calls, key: k, permits: 0}
            => [{limits: [{remaining: 5}, {remaining: 1000}, {remaining: 5000}]}]
        {verb: peek, rule: plain, key: k} => [{remaining: 10}]
        // A descriptor that no rule matches passes, with a usage too.
        {domain: llm, descriptor: {x: k}, usage: {y: 1}} => [{verdict: unmatched}]
        ",
    );
}
